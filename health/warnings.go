package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// checkpoint compares a partition's checkpoint with what the log holds.
func (w *Watcher) checkpoint(found []Warning, id string, p *watched, b driver.Bounds, checkpoint int64, now time.Time) []Warning {
	if checkpoint != p.checkpoint {
		p.checkpoint, p.moved = checkpoint, now
	}
	waiting := b.Lag(driver.Position{Sequence: checkpoint})
	if p.waiting = waiting; waiting == 0 {
		// The next event has not waited yet.
		p.moved = now
	}
	p.samples = append(p.samples, sample{now, b.First, checkpoint})
	p.samples = p.samples[max(0, len(p.samples)-maxSamples):]
	if lost := b.First - 1 - checkpoint; lost > 0 {
		p.endanger(now)
		return append(found, Warning{WarningExpired, []string{id}, p.danger, fmt.Sprintf(
			"Partition %s: retention removed %d events before they were read, %d to %d: restore them from another source if there is one, then move the checkpoint.", id, lost, checkpoint+1, b.First-1)})
	}
	left, soon := p.expiry()
	switch {
	case waiting > 0 && soon && left < w.cfg.Ahead:
		p.endanger(now)
		found = append(found, Warning{WarningExpiring, []string{id}, p.danger, fmt.Sprintf(
			"Partition %s: at this rate retention passes the checkpoint in %s: consume faster, or extend retention.", id, rough(left))})
	default:
		p.danger = time.Time{}
	}
	if stalled := now.Sub(p.moved); stalled >= w.cfg.Stalled {
		found = append(found, Warning{WarningStalled, []string{id}, p.moved, fmt.Sprintf(
			"Partition %s: the checkpoint has been stuck at %d for %s while %d events wait.", id, checkpoint, rough(stalled), waiting)})
	}
	return found
}

// unknown returns the warnings about a partition whose bounds were not asked for lately: those that
// there were, except that of a checkpoint which has moved since. Events may have come long after
// the bounds were known, so they have not waited since then.
func (p *watched) unknown(checkpoint int64, now time.Time) []Warning {
	if checkpoint != p.checkpoint || p.waiting == 0 {
		p.waiting = max(0, p.waiting-(checkpoint-p.checkpoint))
		p.checkpoint, p.moved = checkpoint, now
		p.warned = slices.DeleteFunc(slices.Clone(p.warned), func(w Warning) bool { return w.Kind == WarningStalled })
	}
	return p.warned
}

// reset is for a partition without a checkpoint.
func (p *watched) reset(b driver.Bounds, now time.Time) {
	if p.checkpoint != driver.Unset.Sequence || b.Lag(driver.Unset) == 0 {
		p.forget(now)
	}
}

// forget begins again with what is seen of a partition.
func (p *watched) forget(now time.Time) {
	*p = watched{unowned: p.unowned, moved: now, checkpoint: driver.Unset.Sequence}
}

func (p *watched) endanger(now time.Time) {
	if p.danger.IsZero() {
		p.danger = now
	}
}

// expiry is how long it takes until retention passes the checkpoint, if both move
// on at the rate of the samples; false if that never happens.
func (p *watched) expiry() (time.Duration, bool) {
	from, to := p.samples[0], p.samples[len(p.samples)-1]
	took := to.time.Sub(from.time)
	closer := (to.first - from.first) - (to.checkpoint - from.checkpoint)
	if took < minSampled || closer <= 0 {
		return 0, false
	}
	margin := float64(to.checkpoint + 1 - to.first)
	return time.Duration(margin / float64(closer) * float64(took)), true
}

// owners looks for partitions without an owner.
func (w *Watcher) owners(found []Warning, topic driver.Topic, leases []driver.LeaseInfo, now time.Time) []Warning {
	holds := map[string]int{}
	owned := map[string]bool{}
	balanced := false
	for _, l := range leases {
		switch {
		case !l.Live():
		case l.Member():
			balanced = true
		default:
			holds[l.Owner]++
			owned[l.Partition] = true
		}
	}
	var unowned []string
	since := now
	for _, id := range topic.Partitions {
		p := w.partitions[id]
		switch {
		case owned[id]:
			p.unowned = time.Time{}
			continue
		case p.unowned.IsZero():
			p.unowned = now
		}
		if now.Sub(p.unowned) >= w.cfg.Unowned {
			unowned = append(unowned, id)
			if p.unowned.Before(since) {
				since = p.unowned
			}
		}
	}
	if len(unowned) == 0 {
		return found
	}
	if len(holds) == 0 || balanced {
		return append(found, Warning{WarningUnowned, unowned, since, fmt.Sprintf(
			"%s been without an owner for %s: check that a consumer is running and that it can reach its source and the database.", subject(unowned, "has", "have"), rough(now.Sub(since)))})
	}
	held := 0
	for _, n := range holds {
		held += n
	}
	return append(found, Warning{WarningUnderCapacity, unowned, since, fmt.Sprintf(
		"%s been without an owner for %s: %s %d of %d partitions, the most allowed by configuration: start another process, or raise the configured number of partitions.",
		subject(unowned, "has", "have"), rough(now.Sub(since)), processes(len(holds)), held, len(topic.Partitions))})
}

// partitionsAdded looks for partitions that were added.
func (w *Watcher) partitionsAdded(found []Warning, topic driver.Topic, now time.Time) []Warning {
	n := len(topic.Partitions)
	if w.count == 0 {
		w.count = n
	}
	if n <= w.count {
		w.added = time.Time{}
		return found
	}
	if w.added.IsZero() {
		w.added = now
	}
	return append(found, Warning{WarningPartitionsAdded, topic.Partitions[w.count:], w.added, fmt.Sprintf(
		"There are %d partitions, and there were %d: keys go to other partitions now, and processes with a fixed number of partitions need a higher one.", n, w.count)})
}

func processes(n int) string {
	if n == 1 {
		return "one process holds"
	}
	return fmt.Sprintf("%d processes hold", n)
}

// maxNamed is how many partitions a sentence names.
const maxNamed = 8

func subject(ids []string, one, many string) string {
	if len(ids) == 1 {
		return fmt.Sprintf("Partition %s %s", ids[0], one)
	}
	text := strings.Join(ids[:min(maxNamed, len(ids))], ", ")
	if more := len(ids) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("Partitions %s %s", text, many)
}

// rough is a duration in its largest unit.
func rough(d time.Duration) string {
	for _, unit := range []struct {
		span time.Duration
		name string
	}{{24 * time.Hour, "days"}, {time.Hour, "hours"}, {time.Minute, "minutes"}} {
		if n := d / unit.span; n >= 2 || n == 1 && unit.span == time.Minute {
			if n == 1 {
				return "a minute"
			}
			return fmt.Sprintf("%d %s", n, unit.name)
		}
	}
	return fmt.Sprintf("%d seconds", max(0, d/time.Second))
}
