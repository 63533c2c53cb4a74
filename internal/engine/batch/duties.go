package batch

import (
	"time"

	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// duties is what a delivery does beside the events, and when. All times are by Clock.Elapsed.
type duties struct {
	look partition.Duty // for redrives
	calm partition.Duty // end a suspicion: events that could have killed the process wait no more
	gaps partition.Duty // pass numbers without an event
	save partition.Duty // store what Batches have done

	delivered time.Duration // when a batch was delivered last
	fenced    time.Duration // when the checkpoint was known to be this lease's
}

// begin sets the times of a delivery that begins now.
func (d *duties) begin(cfg *engine.Settings, suspicious, sparse bool, saveEvery, now time.Duration) {
	idle := partition.Duty{Next: partition.Never}
	*d = duties{look: partition.Every(cfg.RedriveEvery, now), calm: idle, gaps: idle, save: idle, delivered: now, fenced: now}
	if suspicious {
		d.calm = partition.Every(cfg.RenewEvery, now)
	}
	if sparse {
		d.gaps = partition.Every(passEvery, now)
	}
	if saveEvery > 0 {
		d.save = partition.Every(saveEvery, now)
	}
}

// whileIdle does what is due while no event waits.
func (w *worker[Tx]) whileIdle() error {
	cfg, d := w.a.Settings, &w.duties
	now := cfg.Clock.Elapsed()
	if d.gaps.Due(now) {
		if err := w.pass(w.buffer.Tail()); err != nil {
			return err
		}
	}
	if d.calm.Due(now) && w.suspicious() && now-d.delivered >= cfg.RenewEvery {
		w.clearSuspicion()
	}
	if d.save.Due(now) || now-d.fenced >= cfg.LeaseFor {
		if err := w.checkFence(); err != nil {
			return err
		}
		d.fenced = now
	}
	return nil
}

// nextDuty returns when the delivery next has something to do, if no event comes.
func (w *worker[Tx]) nextDuty() time.Duration {
	d := &w.duties
	next := min(d.look.Next, d.calm.Next, d.gaps.Next, d.save.Next, d.fenced+w.a.Settings.LeaseFor)
	if w.redrives.due && w.a.Settings.Clock.Elapsed() < w.redrives.restUntil {
		next = min(next, w.redrives.restUntil)
	}
	if w.filling.waits {
		next = min(next, w.filling.end)
	}
	return next
}
