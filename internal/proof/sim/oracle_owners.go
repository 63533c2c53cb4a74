package sim

import (
	"time"

	"github.com/sluice-go/sluice"
)

// tenancy is the newest lease of a partition.
type tenancy struct {
	epoch int64
	by    *process
	since time.Time
}

// Work under a lease may go on for so long after another owner has acquired it: an owner
// looks at its clocks at least this often.
const overlap = 2 * time.Second

// acquired notes that a process has acquired a lease.
func (w *world) acquired(p *process, l sluice.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaseOf[l] = p
	name := partitionName(l)
	if l.Epoch > w.tenancies[name].epoch {
		w.tenancies[name] = tenancy{l.Epoch, p, time.Now()}
	}
}

// worksUnder records a violation if a process works under a lease that another one has
// acquired since: an owner must stop before the lease can expire. It does not know better
// after the lease store has lost its leases, or if both its clocks were wrong.
func (p *process) worksUnder(topic, partition string, epoch int64) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tenancies[topic+"/"+partition]
	since := t.since
	if p.pausedUntil.After(since) {
		since = p.pausedUntil
	}
	late := time.Since(since)
	if t.epoch <= epoch || t.by == p || late <= overlap || p.misled || p.skew != 0 || p.dead || time.Since(w.leasesLost) < time.Minute || w.cfg.Free || w.has(twins) {
		return
	}
	w.stale = append(w.stale, "partition "+topic+"/"+partition+": "+p.name+" works under a lease that "+t.by.name+" has had for "+late.String())
}

// releases records a violation if a process releases a partition without having left its
// checkpoint: the claim would count as one that ended in a crash.
func (p *process) releases(lease sluice.Lease) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if !lease.Member() && !p.leaving[lease] && !p.dead {
		p.w.stale = append(p.w.stale, "partition "+partitionName(lease)+": "+p.name+" releases it without leaving its checkpoint")
	}
}
