package sim

import (
	"time"

	"github.com/sluice-go/sluice"
)

// tenure is a lease without what its owner learns while it holds it.
type tenure struct {
	group            sluice.Group
	partition, owner string
	epoch            int64
}

func tenureOf(l sluice.Lease) tenure { return tenure{l.Group, l.Partition, l.Owner, l.Epoch} }

// tenancy is the newest lease of a partition.
type tenancy struct {
	epoch   int64
	process *process
	began   time.Time
}

// Work under a lease may go on for so long after another owner has acquired it: an owner
// looks at its clocks at least this often.
const overlap = 2 * time.Second

// acquired notes that a process has acquired a lease.
func (w *world) acquired(p *process, l sluice.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaseOf[tenureOf(l)] = p
	delete(w.claimedAt, tenureOf(l)) // after a loss of the leases the process may have had an equal one
	name := partitionName(l)
	w.blame.assignments[name]++
	if l.Epoch > w.tenancies[name].epoch {
		w.tenancies[name] = tenancy{l.Epoch, p, time.Now()}
	}
}

// extended notes until when the store keeps a lease for its owner.
func (w *world) extended(l sluice.Lease, ttl time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaseEnds[tenureOf(l)] = time.Now().Add(ttl)
}

// worksUnder records a violation if a process works under a lease that has expired in the
// store, or that another one has acquired since. It does not know better after the lease
// store has lost its leases, or if both its clocks were wrong.
func (p *process) worksUnder(topic, partition string, epoch int64) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.misled || p.skew != 0 || p.dead || time.Since(w.leasesLost) < time.Minute || w.cfg.Free || w.has(twins) {
		return
	}
	group := w.group
	group.Topic = topic
	end, known := w.leaseEnds[tenure{group, partition, p.owner, epoch}]
	if p.pausedUntil.After(end) {
		end = p.pausedUntil
	}
	if late := time.Since(end); known && late > overlap {
		w.stale = append(w.stale, "partition "+topic+"/"+partition+": "+p.name+" works under a lease that expired "+late.String()+" ago")
	}
	t := w.tenancies[topic+"/"+partition]
	since := t.began
	if p.pausedUntil.After(since) {
		since = p.pausedUntil
	}
	if late := time.Since(since); t.epoch > epoch && t.process != p && late > overlap {
		w.stale = append(w.stale, "partition "+topic+"/"+partition+": "+p.name+" works under a lease that "+t.process.name+" has had for "+late.String())
	}
}

// releases records a violation if a process releases a partition without having left its
// checkpoint: the claim would count as one that ended in a crash.
func (p *process) releases(lease sluice.Lease) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if !lease.Member() && !p.replays && !p.leaving[tenureOf(lease)] && !p.dead {
		p.w.stale = append(p.w.stale, "partition "+partitionName(lease)+": "+p.name+" releases it without leaving its checkpoint")
	}
}
