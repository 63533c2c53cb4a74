package watch

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// follow compares a partition's checkpoint with the ends of what the log holds.
func (w *Watcher) follow(found []Warning, id string, p *partition, b driver.Bounds, checkpoint int64, now time.Time) []Warning {
	if checkpoint != p.at {
		p.at, p.moved = checkpoint, now
	}
	waiting := b.Last.Sequence - max(checkpoint, b.First-1)
	if waiting <= 0 {
		// What comes next has not been waited for yet.
		p.moved = now
	}
	p.pace = append(p.pace, sample{now, b.First, checkpoint})
	p.pace = p.pace[max(0, len(p.pace)-maxPace):]
	if lost := b.First - 1 - checkpoint; lost > 0 {
		p.danger(now)
		return append(found, Warning{Expired, []string{id}, p.late, fmt.Sprintf(
			"Partition %s: retention has passed %d events unread, %d to %d: look for what else recorded them, then move the checkpoint.", id, lost, checkpoint+1, b.First-1)})
	}
	left, soon := p.expiry()
	switch {
	case waiting > 0 && soon && left < w.cfg.Ahead:
		p.danger(now)
		found = append(found, Warning{Expiring, []string{id}, p.late, fmt.Sprintf(
			"Partition %s: at this pace retention passes the checkpoint in %s: consume faster, or keep events longer.", id, rough(left))})
	default:
		p.late = time.Time{}
	}
	if still := now.Sub(p.moved); still >= w.cfg.Still {
		found = append(found, Warning{Still, []string{id}, p.moved, fmt.Sprintf(
			"Partition %s: the checkpoint has stood at %d for %s while %d events wait.", id, checkpoint, rough(still), waiting)})
	}
	return found
}

func (p *partition) danger(now time.Time) {
	if p.late.IsZero() {
		p.late = now
	}
}

// expiry is how long it takes until the log's oldest event is behind the
// checkpoint, if both go on as over the samples; false if that is never.
func (p *partition) expiry() (time.Duration, bool) {
	from, to := p.pace[0], p.pace[len(p.pace)-1]
	took := to.at.Sub(from.at)
	closer := (to.first - from.first) - (to.checkpoint - from.checkpoint)
	if took < leastPace || closer <= 0 {
		return 0, false
	}
	margin := float64(to.checkpoint + 1 - to.first)
	return time.Duration(margin / float64(closer) * float64(took)), true
}

// owners looks for partitions without one.
func (w *Watcher) owners(found []Warning, topic sluice.Topic, leases []driver.LeaseInfo, now time.Time) []Warning {
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
	var free []string
	since := now
	for _, id := range topic.Partitions {
		p := w.partitions[id]
		switch {
		case owned[id]:
			p.free = time.Time{}
			continue
		case p.free.IsZero():
			p.free = now
		}
		if now.Sub(p.free) >= w.cfg.Unowned {
			free = append(free, id)
			if p.free.Before(since) {
				since = p.free
			}
		}
	}
	if len(free) == 0 {
		return found
	}
	if len(holds) == 0 || balanced {
		return append(found, Warning{Unowned, free, since, fmt.Sprintf(
			"%s been without an owner for %s: is a consumer running, and can it reach hub and database?", subject(free, "has", "have"), rough(now.Sub(since)))})
	}
	held := 0
	for _, n := range holds {
		held += n
	}
	return append(found, Warning{Short, free, since, fmt.Sprintf(
		"%s been without an owner for %s: %s %d of %d partitions, and takes no more; start another, or let them take more.",
		subject(free, "has", "have"), rough(now.Sub(since)), processes(len(holds)), held, len(topic.Partitions))})
}

// growth looks for partitions that were added.
func (w *Watcher) growth(found []Warning, topic sluice.Topic, now time.Time) []Warning {
	n := len(topic.Partitions)
	if w.count == 0 {
		w.count = n
	}
	if n <= w.count {
		w.gained = time.Time{}
		return found
	}
	if w.gained.IsZero() {
		w.gained = now
	}
	return append(found, Warning{Gained, topic.Partitions[w.count:], w.gained, fmt.Sprintf(
		"The hub has %d partitions, and had %d: keys go to other partitions now, and processes with a fixed number must take more.", n, w.count)})
}

func processes(n int) string {
	if n == 1 {
		return "one process holds"
	}
	return fmt.Sprintf("%d processes hold", n)
}

// named is how many partitions a sentence names.
const named = 8

func subject(ids []string, one, many string) string {
	if len(ids) == 1 {
		return fmt.Sprintf("Partition %s %s", ids[0], one)
	}
	text := strings.Join(ids[:min(named, len(ids))], ", ")
	if more := len(ids) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("Partitions %s %s", text, many)
}

// rough is a duration as people say it.
func rough(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "days"}, {time.Hour, "hours"}, {time.Minute, "minutes"}} {
		if n := d / unit.of; n >= 2 || n == 1 && unit.of == time.Minute {
			if n == 1 {
				return "a minute"
			}
			return fmt.Sprintf("%d %s", n, unit.name)
		}
	}
	return fmt.Sprintf("%d seconds", max(0, d/time.Second))
}
