// Package lag measures how far a consumer group is behind its hub, by Sluice's
// own checkpoints and the hub's bounds.
package lag

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/autoscale"
)

// Checkpoints is the side of a checkpoint store that is needed here: any store
// of Sluice has it.
type Checkpoints interface {
	// Read returns the group's checkpoints, without claiming them.
	Read(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error)
}

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Start is where the consumers begin with a partition that has no checkpoint;
	// it should be theirs. Of a time or an offset only the bounds are asked for:
	// until such a partition has a checkpoint, all that the hub still holds of it
	// counts, unless its newest event is older than that time. Default: Earliest.
	Start sluice.Start
	// Parallel is how many partitions are asked for at once. Default: 8.
	Parallel int
}

// Source is the lag of a consumer group: how many events of the hub it has not
// dealt with.
type Source struct {
	hub         driver.Source
	checkpoints Checkpoints
	group       sluice.Group
	cfg         Config
}

var _ autoscale.Source = (*Source)(nil)

// New returns the lag of a group. A nil cfg takes every default.
func New(hub driver.Source, checkpoints Checkpoints, group sluice.Group, cfg *Config) *Source {
	s := &Source{hub: hub, checkpoints: checkpoints, group: group}
	if cfg != nil {
		s.cfg = *cfg
	}
	s.cfg.Parallel = max(cmp.Or(s.cfg.Parallel, 8), 1)
	return s
}

// RecreatedError says that checkpoints are of another incarnation of the hub:
// what they say has nothing to do with what the hub holds now.
type RecreatedError struct {
	Group     sluice.Group
	Partition string
}

func (e *RecreatedError) Error() string {
	return fmt.Sprintf("hub %s was recreated: the checkpoint of partition %s (group %s) is of the former one; set it with `sluice checkpoints set`",
		e.Group.Topic, e.Partition, e.Group.Name)
}

// Read implements [autoscale.Source]. A partition that is empty or done counts
// zero; of one whose events retention has removed only those that are left
// count. Events behind a checkpoint that are known to be done don't.
func (s *Source) Read(ctx context.Context) (autoscale.Reading, error) {
	topic, err := s.hub.Describe(ctx)
	if err != nil {
		return autoscale.Reading{}, fmt.Errorf("lag of %s: describe hub: %w", s.group.Topic, err)
	}
	// Before the bounds: what is done by then is in the hub by then.
	all, err := s.checkpoints.Read(ctx, s.group)
	if err != nil {
		return autoscale.Reading{}, fmt.Errorf("lag of %s: read checkpoints: %w", s.group.Topic, err)
	}
	at := make(map[string]*sluice.Checkpoint, len(all))
	for i := range all {
		p := &all[i]
		// A claim alone, without a start chosen, is moved over by its owner.
		if p.Incarnation != topic.Incarnation && p.Position != driver.Unset {
			return autoscale.Reading{}, &RecreatedError{s.group, p.Partition}
		}
		at[p.Partition] = p
	}
	total, err := s.totalLag(ctx, topic.Partitions, at)
	if err != nil {
		return autoscale.Reading{}, fmt.Errorf("lag of %s: %w", s.group.Topic, err)
	}
	return autoscale.Reading{Value: float64(total)}, nil
}

// totalLag adds up the partitions, some at a time. The first error ends it.
func (s *Source) totalLag(ctx context.Context, partitions []string, at map[string]*sluice.Checkpoint) (total int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next := make(chan string)
	var mu sync.Mutex
	var asking sync.WaitGroup
	for range min(s.cfg.Parallel, len(partitions)) {
		asking.Go(func() {
			for p := range next {
				n, failed := s.partitionLag(ctx, p, at[p])
				mu.Lock()
				total += n
				if failed != nil && err == nil {
					err = failed
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	for _, p := range partitions {
		next <- p // whoever takes it returns soon once ctx has ended
	}
	close(next)
	asking.Wait()
	return total, err
}

var errAheadOfHub = errors.New("its checkpoint lies behind the newest event")

// partitionLag is how many events of a partition are to be dealt with.
func (s *Source) partitionLag(ctx context.Context, partition string, p *sluice.Checkpoint) (int64, error) {
	b, err := s.hub.Bounds(ctx, partition)
	if err != nil {
		return 0, fmt.Errorf("bounds of partition %s: %w", partition, err)
	}
	held := b.Last.Sequence - b.First + 1
	if p == nil || p.Position == driver.Unset {
		return min(max(s.fromStart(b), 0), held), nil
	}
	if p.Position.Sequence > b.Last.Sequence {
		return 0, fmt.Errorf("partition %s: %w: %d, and that is %d", partition, errAheadOfHub, p.Position.Sequence, b.Last.Sequence)
	}
	from := max(p.Position.Sequence+1, b.First)
	n := b.Lag(p.Position)
	for _, r := range p.Done {
		n -= max(min(r.Last, b.Last.Sequence)-max(r.First, from)+1, 0)
	}
	return n, nil
}

// fromStart is how many events there are from the configured start on.
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
