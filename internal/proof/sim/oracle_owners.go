package sim

import (
	"time"

	"github.com/sluice-go/sluice"
)

// tenancy is the newest lease of a partition.
type tenancy struct {
	epoch int64
	owner string
	since time.Time
}

// Work under a lease may go on for so long after another owner has acquired it: an owner
// looks at its clocks at least this often.
const overlap = 2 * time.Second

// acquired notes that a process has acquired a lease.
func (w *world) acquired(l sluice.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := partitionName(l)
	if l.Epoch > w.tenancies[name].epoch {
		w.tenancies[name] = tenancy{l.Epoch, l.Owner, time.Now()}
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
	if t.epoch <= epoch || t.owner == p.name || late <= overlap || p.misled || p.skew != 0 || p.dead || time.Since(w.leasesLost) < time.Minute || w.cfg.Free {
		return
	}
	w.stale = append(w.stale, "partition "+topic+"/"+partition+": "+p.name+" works under a lease that "+t.owner+" has had for "+late.String())
}
