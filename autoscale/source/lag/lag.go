// Package lag measures the lag of a consumer group: how many events of its hub or topic it has
// not processed, by its checkpoints and the bounds of the partitions.
package lag

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/driver"
)

// Checkpoints is the part of a checkpoint store that this package needs. Every store
// of Sluice implements it.
type Checkpoints interface {
	// Read returns the group's checkpoints, without claiming them. One without an
	// incarnation, of a consumer that keeps none, is of the present one.
	Read(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error)
}

// Config holds the options. The zero value, like nil, takes every default.
type Config struct {
	// Start is where the consumers start in a partition without a checkpoint; set it
	// to their start. For a time or an offset, only the bounds of the partition are
	// read: until it has a checkpoint, all events that the hub holds count, unless the
	// newest is older than that time. Default: Earliest.
	Start sluice.Start
	// Parallel is how many partitions are queried at once. Default: 8.
	Parallel int
}

// Source reads the lag of a consumer group, in events.
type Source struct {
	hub         driver.Source
	checkpoints Checkpoints
	group       sluice.Group
	cfg         Config

	mu    sync.Mutex
	known map[string]driver.Bounds // of each partition, when it answered last
}

var _ autoscale.Source = (*Source)(nil)

// New returns the lag of a group as a source. It closes neither hub nor checkpoints.
func New(hub driver.Source, checkpoints Checkpoints, group sluice.Group, cfg *Config) *Source {
	s := &Source{hub: hub, checkpoints: checkpoints, group: group, known: map[string]driver.Bounds{}}
	if cfg != nil {
		s.cfg = *cfg
	}
	s.cfg.Parallel = max(cmp.Or(s.cfg.Parallel, 8), 1)
	return s
}

// RecreatedError says that a checkpoint belongs to another incarnation of the hub:
// the hub was deleted and created again, so its sequence numbers mean other events.
type RecreatedError struct {
	Group     sluice.Group
	Partition string
}

func (e *RecreatedError) Error() string {
	return fmt.Sprintf("%s was recreated: the checkpoint of partition %s (group %s) belongs to the former one; set it with `sluice checkpoints set`",
		e.Group.Topic, e.Partition, e.Group.Name)
}

// Measurement is the lag of a consumer group.
type Measurement struct {
	Events     int64 // that are not processed, over all partitions
	Partitions int   // that the hub or topic has
}

// Read implements [autoscale.Source]: the events of [Source.Measure], except that up to half
// of the partitions may leave a question without an answer; each of them counts with its
// bounds of before. One that has never answered has none, and is an error.
func (s *Source) Read(ctx context.Context) (autoscale.Reading, error) {
	m, err := s.measure(ctx, func(partitions int) int { return partitions / 2 })
	return autoscale.Reading{Value: float64(m.Events)}, err
}

// Measure measures the lag. Only events that the hub still holds count.
// Events after a checkpoint that are known to be processed do not count. A partition whose
// newest event the hub reports as older than the checkpoint counts as 0: that report is out
// of date, or never comes on a hub that IoT Hub feeds. It returns an error if a partition does
// not answer, and a [*RecreatedError] if a checkpoint belongs to a former hub.
func (s *Source) Measure(ctx context.Context) (Measurement, error) {
	return s.measure(ctx, func(int) int { return 0 })
}

// measure is Measure, where of so many partitions some may be silent.
func (s *Source) measure(ctx context.Context, silent func(partitions int) int) (Measurement, error) {
	topic, err := s.hub.Describe(ctx)
	if err != nil {
		return Measurement{}, fmt.Errorf("lag of %s: describe topic: %w", s.group.Topic, err)
	}
	// Read checkpoints before bounds, so that no checkpoint is ahead of its bounds.
	all, err := s.checkpoints.Read(ctx, s.group)
	if err != nil {
		return Measurement{}, fmt.Errorf("lag of %s: read checkpoints: %w", s.group.Topic, err)
	}
	at := make(map[string]*sluice.Checkpoint, len(all))
	for i := range all {
		p := &all[i]
		// A claimed partition without a position is moved over by its owner.
		if p.Incarnation != "" && p.Incarnation != topic.Incarnation && p.Position != driver.Unset {
			return Measurement{}, &RecreatedError{s.group, p.Partition}
		}
		at[p.Partition] = p
	}
	total, err := s.totalLag(ctx, topic.Partitions, at, silent(len(topic.Partitions)))
	if err != nil {
		return Measurement{}, fmt.Errorf("lag of %s: %w", s.group.Topic, err)
	}
	return Measurement{total, len(topic.Partitions)}, nil
}

// totalLag adds up the lag of the partitions, cfg.Parallel at a time. It fails if more than
// silent of them do not answer, if one of those has never answered, or if ctx ends.
func (s *Source) totalLag(ctx context.Context, partitions []string, at map[string]*sluice.Checkpoint, silent int) (total int64, err error) {
	unanswered := 0
	next := make(chan string)
	var mu sync.Mutex
	var asking sync.WaitGroup
	for range min(s.cfg.Parallel, len(partitions)) {
		asking.Go(func() {
			for p := range next {
				bounds, known, failed := s.bounds(ctx, p)
				mu.Lock()
				if failed != nil {
					unanswered++
					err = cmp.Or(err, failed)
				}
				if known {
					total += s.lagIn(bounds, at[p])
				} else {
					silent = -1
				}
				mu.Unlock()
			}
		})
	}
	for _, p := range partitions {
		next <- p // does not block for long: once ctx has ended, queries return soon
	}
	close(next)
	asking.Wait()
	if ctx.Err() != nil || unanswered > silent {
		return 0, cmp.Or(err, ctx.Err())
	}
	return total, nil
}

// bounds returns the bounds of a partition; if it does not answer, those of before, if they
// are known, and an error.
func (s *Source) bounds(ctx context.Context, partition string) (b driver.Bounds, known bool, err error) {
	b, err = s.hub.Bounds(ctx, partition)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		b, known = s.known[partition]
		return b, known, fmt.Errorf("bounds of partition %s: %w", partition, err)
	}
	s.known[partition] = b
	return b, true, nil
}

// lagIn returns the number of events within bounds that are not processed.
func (s *Source) lagIn(b driver.Bounds, p *sluice.Checkpoint) int64 {
	held := b.Last.Sequence - b.First + 1
	if p == nil || p.Position == driver.Unset {
		return min(max(s.fromStart(b), 0), held)
	}
	from := max(p.Position.Sequence+1, b.First)
	n := b.Lag(p.Position)
	for _, r := range p.Done {
		n -= max(min(r.Last, b.Last.Sequence)-max(r.First, from)+1, 0)
	}
	return n
}

// fromStart returns the number of events from the configured start on.
func (s *Source) fromStart(b driver.Bounds) int64 {
	last, held := b.Last.Sequence, b.Last.Sequence-b.First+1
	start := s.cfg.Start
	switch start.Kind {
	case driver.StartLatest:
		return 0
	case driver.StartSequence:
		return last - start.Sequence + 1
	case driver.StartTime:
		if b.LastEnqueued.Before(start.Time) {
			return 0
		}
	case driver.StartAgo:
		if b.LastEnqueued.Before(time.Now().Add(-start.Ago)) {
			return 0
		}
	}
	return held
}
