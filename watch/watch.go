// Package watch looks at a consumer group from outside, every so often, and
// says what a person must know before it hurts: partitions that nobody reads,
// checkpoints that stand still, retention that comes near.
//
//	w := watch.New(source, leases, checkpoints, nil)
//	w.Run(ctx, time.Minute, func(look watch.Look) { … })
package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Kind is what a warning is about.
type Kind string

// The kinds of warning.
const (
	// Unowned: nobody has had the partitions' leases for a while.
	Unowned Kind = "unowned"
	// Short: the same, and the processes that there are hold all they may: the
	// numbers that they state add up to fewer partitions than there are.
	Short Kind = "short"
	// Still: the checkpoint stands while events wait behind it.
	Still Kind = "still"
	// Gained: the hub has more partitions than it had.
	Gained Kind = "gained"
	// Expiring: at this pace retention passes the checkpoint soon.
	Expiring Kind = "expiring"
	// Expired: retention has passed the checkpoint: events are lost unread.
	Expired Kind = "expired"
)

// Warning is one thing that a person must know.
type Warning struct {
	Kind       Kind
	Partitions []string // that it is about
	Since      time.Time
	Text       string // a sentence
}

// Checkpoints is what is asked of a store of checkpoints.
type Checkpoints interface {
	Read(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error)
}

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Unowned is how long partitions may be without an owner. Default: 90 s:
	// partitions are taken one a second, and a dead owner's lease must expire.
	Unowned time.Duration
	// Still is how long a checkpoint may stand while events wait. Default:
	// 5 min.
	Still time.Duration
	// Ahead is how long before retention passes a checkpoint it is told.
	// Default: 2 h.
	Ahead time.Duration
	// Now tells the time. Default: time.Now.
	Now func() time.Time
}

// Watcher looks at one consumer group. It belongs to one goroutine. Each look
// asks the log once for every partition, and the stores once.
type Watcher struct {
	source      driver.Source
	leases      driver.LeaseStore
	checkpoints Checkpoints
	cfg         Config

	partitions map[string]*partition
	count      int       // of the hub's partitions, at the first look
	gained     time.Time // when there were more
}

// partition is what earlier looks have seen of one.
type partition struct {
	free  time.Time // since when nobody owns it; zero: somebody does
	moved time.Time // when the checkpoint was first seen where it is
	at    int64     // where
	// pace are the samples of the last looks, oldest first.
	pace []sample
	late time.Time // since when it is in danger
}

type sample struct {
	at                time.Time
	first, checkpoint int64
}

const (
	// maxPace is how many samples are kept of a partition.
	maxPace = 120
	// leastPace is the shortest time over which a pace is believed: logs give
	// their oldest events up in large pieces.
	leastPace = 10 * time.Minute
	// parallel is how many partitions' bounds are asked for at once.
	parallel = 16
	// patience is how long all of them may take.
	patience = 30 * time.Second
)

// New makes a watcher.
func New(source driver.Source, leases driver.LeaseStore, checkpoints Checkpoints, cfg *Config) *Watcher {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.Unowned = cmp.Or(c.Unowned, 90*time.Second)
	c.Still = cmp.Or(c.Still, 5*time.Minute)
	c.Ahead = cmp.Or(c.Ahead, 2*time.Hour)
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Watcher{source: source, leases: leases, checkpoints: checkpoints, cfg: c, partitions: map[string]*partition{}}
}

// Look is what one look has found.
type Look struct {
	Warnings []Warning // the most urgent first
	// Began and Ended are the warnings that the look before did not have, or
	// that this one has no more.
	Began, Ended []Warning
	Err          error // why nothing could be seen
}

// Run looks every so often until ctx ends.
func (w *Watcher) Run(ctx context.Context, every time.Duration, tell func(Look)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var before []Warning
	for {
		warnings, err := w.Look(ctx)
		if ctx.Err() != nil {
			return
		}
		look := Look{Warnings: warnings, Err: err}
		if err != nil {
			look.Warnings = before
		}
		look.Began, look.Ended = without(look.Warnings, before), without(before, look.Warnings)
		before = look.Warnings
		tell(look)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// without are the warnings of which the others have none of the same kind and
// partitions.
func without(list, others []Warning) (left []Warning) {
	for _, w := range list {
		same := func(o Warning) bool { return o.Kind == w.Kind && slices.Equal(o.Partitions, w.Partitions) }
		if !slices.ContainsFunc(others, same) {
			left = append(left, w)
		}
	}
	return left
}

// Look looks once.
func (w *Watcher) Look(ctx context.Context) ([]Warning, error) {
	topic, err := w.source.Describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch: describe topic: %w", err)
	}
	leases, err := w.leases.List(ctx, topic.Group)
	if err != nil {
		return nil, fmt.Errorf("watch: list leases: %w", err)
	}
	progress, err := w.checkpoints.Read(ctx, topic.Group)
	if err != nil {
		return nil, fmt.Errorf("watch: read checkpoints: %w", err)
	}
	now := w.cfg.Now()
	var found []Warning
	done := map[string]sluice.Checkpoint{}
	for _, p := range progress {
		done[p.Partition] = p
	}
	bounds, err := w.bounds(ctx, topic.Partitions)
	if err != nil {
		return nil, err
	}
	for i, id := range topic.Partitions {
		p := w.partitions[id]
		if p == nil {
			p = &partition{moved: now, at: driver.Unset.Sequence}
			w.partitions[id] = p
		}
		c, begun := done[id]
		begun = begun && c.Incarnation == topic.Incarnation && c.Position.Sequence >= driver.Origin.Sequence
		if begun {
			found = w.follow(found, id, p, bounds[i], c.Position.Sequence, now)
		}
	}
	found = w.owners(found, topic, leases, now)
	found = w.growth(found, topic, now)
	slices.SortStableFunc(found, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(urgency(a.Kind), urgency(b.Kind)), slices.Compare(a.Partitions, b.Partitions))
	})
	return found, nil
}

// bounds asks for the ends of all partitions.
func (w *Watcher) bounds(ctx context.Context, partitions []string) ([]driver.Bounds, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list := make([]driver.Bounds, len(partitions))
	errs := make([]error, len(partitions))
	var next atomic.Int64
	var asking sync.WaitGroup
	for range min(parallel, len(partitions)) {
		asking.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(partitions)); i = next.Add(1) - 1 {
				if list[i], errs[i] = w.source.Bounds(ctx, partitions[i]); errs[i] != nil {
					errs[i] = fmt.Errorf("watch: bounds of partition %s: %w", partitions[i], errs[i])
					cancel()
					return
				}
			}
		})
	}
	asking.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, err
		}
	}
	return list, errors.Join(errs...)
}

// Kinds are all kinds, the most urgent first.
var Kinds = []Kind{Expired, Expiring, Still, Short, Unowned, Gained}

func urgency(k Kind) int { return slices.Index(Kinds, k) }
