package move

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/internal/humanize"
)

// State says whether the other consumer runs.
type State string

// The states of the other consumer.
const (
	Alive   State = "alive"   // it owns a partition, or its checkpoints move
	Stopped State = "stopped" // it owns no partition, and its checkpoints do not move
	Unknown State = "unknown" // its checkpoints do not move, and its store does not show owners
)

// Liveness is what two looks at the other consumer showed.
type Liveness struct {
	State State  `json:"state"`
	Seen  string `json:"seen"` // how it was seen: a clause
}

// AliveError is returned while the other consumer runs.
type AliveError struct {
	Liveness
	Waited  time.Duration
	Drained bool // it has reached the end that the log had at the start
}

func (e *AliveError) Error() string {
	switch {
	case e.Drained:
		return fmt.Sprintf("the other consumer has drained the log and still runs: %s: stop it now, wait a minute and run this again", e.Seen)
	case e.Waited > 0:
		return fmt.Sprintf("the other consumer still runs after %s: %s: stop it, wait a minute and run this again", humanize.Span(e.Waited), e.Seen)
	}
	return fmt.Sprintf("the other consumer still runs: %s: stop it and wait a minute, or wait for it with --within 10m", e.Seen)
}

// look is what one look at the other consumer and the log showed.
type look struct {
	found azurecheckpoints.Found
	ends  map[string]sluice.Position // of the newest events, by partition
}

func (m *Mover) look(ctx context.Context) (look, error) {
	l := look{ends: make(map[string]sluice.Position)}
	var err error
	if l.found, err = m.Source.Read(ctx, m.Table); err != nil {
		return l, err
	}
	for _, p := range m.topic.Partitions {
		b, err := m.Table.Source.Bounds(ctx, p)
		if err != nil {
			return l, fmt.Errorf("bounds of partition %s: %w", p, err)
		}
		l.ends[p] = b.Last
	}
	return l, nil
}

// lag is how many events the other consumer has not done of those up to ends. Partitions whose
// sequence number is not known do not count, unless they are at the end.
func (l look) lag(ends map[string]sluice.Position) (events int64, known bool) {
	known = true
	for _, c := range l.found.Checkpoints {
		switch end := ends[c.Partition]; {
		case c.Sequence >= 0 || c.Origin:
			events += max(end.Sequence-c.Sequence, 0)
		case c.Offset != end.Offset:
			known = false
		}
	}
	return events, known
}

// judge compares two looks, between which the time passed.
func (m *Mover) judge(first, second look, passed time.Duration) Liveness {
	if owners := second.found.Owners; len(owners) > 0 {
		partitions := slices.Sorted(maps.Keys(owners))
		return Liveness{Alive, fmt.Sprintf("%s read by %s", humanize.Plural(len(owners), "partition is", "partitions are"), humanize.Shorten(owners[partitions[0]], 100))}
	}
	for _, c := range second.found.Checkpoints {
		i := slices.IndexFunc(first.found.Checkpoints, func(o azurecheckpoints.Checkpoint) bool { return o.Partition == c.Partition })
		if i < 0 {
			return Liveness{Alive, fmt.Sprintf("partition %s got its first checkpoint within %v", c.Partition, passed)}
		}
		if before := first.found.Checkpoints[i]; place(before) != place(c) {
			return Liveness{Alive, fmt.Sprintf("the checkpoint of partition %s moved from %s to %s within %v", c.Partition, place(before), place(c), passed)}
		}
	}
	waiting := "nothing waited in the log, so it may be idle"
	if n, known := second.lag(second.ends); n > 0 {
		waiting = fmt.Sprintf("%s waited for it", humanize.Plural(n, "event", "events"))
	} else if !known {
		waiting = "how many events waited for it is unknown"
	}
	if !m.Source.ShowsOwners() {
		return Liveness{Unknown, fmt.Sprintf("the %s shows no owners; no checkpoint moved within %v, and %s", m.Source, passed, waiting)}
	}
	return Liveness{Stopped, fmt.Sprintf("no partition has an owner, and no checkpoint moved within %v", passed)}
}

// place is where a checkpoint is, as a text.
func place(c azurecheckpoints.Checkpoint) string {
	switch {
	case c.Origin:
		return "origin"
	case c.Sequence >= 0:
		return fmt.Sprint(c.Sequence)
	}
	return "offset " + c.Offset
}

// settle looks until the other consumer does not run any more, for at most Limit. It returns the
// last look. The error is an [*AliveError] if it still runs.
func (m *Mover) settle(ctx context.Context) (look, Liveness, error) {
	began := time.Now()
	first, err := m.look(ctx)
	if err != nil {
		return first, Liveness{}, err
	}
	start := first
	for {
		now := m.judge(first, first, 0)
		if now.State != Alive || m.Limit > 0 {
			if err := pause(ctx, m.Every); err != nil {
				return first, now, err
			}
			second, err := m.look(ctx)
			if err != nil {
				return second, now, err
			}
			now, first = m.judge(first, second, m.Every), second
		}
		left, known := first.lag(start.ends)
		switch waited := time.Since(began); {
		case now.State != Alive:
			return first, now, nil
		case m.Force && m.Limit == 0:
			return first, now, nil
		case waited >= m.Limit:
			if m.Limit == 0 {
				waited = 0
			}
			return first, now, &AliveError{now, waited, left == 0 && known}
		}
		m.say("waiting for the other consumer", "seen", now.Seen, "behind", countOf(left, known))
	}
}

func countOf(events int64, known bool) string {
	if !known {
		return "at least " + humanize.Count(events)
	}
	return humanize.Count(events)
}

// pause waits for d.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return errors.New("interrupted while it waited: this run has changed nothing")
	}
}

// checkStill compares the other consumer with the look by which the partitions were moved. What it
// has done since, or does next, is done twice.
func (m *Mover) checkStill(ctx context.Context, by look) error {
	after, err := m.look(ctx)
	if err != nil {
		return fmt.Errorf("the partitions are moved, but whether the other consumer stood still meanwhile is unknown: %w", err)
	}
	var moved []string
	for _, now := range after.found.Checkpoints {
		i := slices.IndexFunc(by.found.Checkpoints, func(c azurecheckpoints.Checkpoint) bool { return c.Partition == now.Partition })
		if i < 0 {
			moved = append(moved, fmt.Sprintf("partition %s got its first checkpoint", now.Partition))
		} else if c := by.found.Checkpoints[i]; place(now) != place(c) {
			moved = append(moved, fmt.Sprintf("partition %s from %s to %s", c.Partition, place(c), place(now)))
		}
	}
	for _, p := range slices.Sorted(maps.Keys(after.found.Owners)) {
		if by.found.Owners[p] == "" { // else --force is given
			moved = append(moved, fmt.Sprintf("partition %s is read by %s", p, humanize.Shorten(after.found.Owners[p], 100)))
		}
	}
	if len(moved) == 0 {
		return nil
	}
	return fmt.Errorf("the other consumer ran while its partitions were moved (%s): stop it, and run this again before the pipeline starts, or events take effect twice", strings.Join(moved, ", "))
}
