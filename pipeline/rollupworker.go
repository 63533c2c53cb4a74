package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/memory"
	"github.com/sluice-go/sluice/pipeline/formats"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
	"github.com/sluice-go/sluice/pipeline/internal/rollup"
	"github.com/sluice-go/sluice/sender"
)

// RollupStats count what a [Pipeline.Rollup] has done so far in this process. Events
// that are read again at an assignment are counted again.
type RollupStats struct {
	Counted       int64 // events in the statistics
	Duplicates    int64 // events that an earlier stage has sent before
	OutsideWindow int64 // events that were enqueued too late, or too early, for their group
	Incomplete    int64 // events of groups that began before the first event read
	Malformed     int64 // events that could not be mapped
	Filtered      int64 // events that the key only leaves out
	Published     int64 // messages
}

// rollupWorker reads a hub and publishes the statistics of a pipeline.
type rollupWorker struct {
	config *rollupConfig
	format *formats.Decoder // as in [Pipeline]
	only   *filter
	target *messageTarget
	group  sluice.Group
	retry  struct{ min, max time.Duration }

	sink     driver.Sink[*sender.Message]
	observer driver.Observer

	mu          sync.Mutex
	incarnation string // of the topic, as last described
	partitions  map[string]*rollupPartition
	stats       RollupStats
}

// rollupPartition is the state of an assigned partition.
type rollupPartition struct {
	incarnation      string
	start            time.Time // see [rollup.New]
	truncated        bool      // retention removed events after from, so from is the first event's time
	position         sluice.Position
	published        bool // everything up to position is published
	badStampReported bool // reported once per assignment
	groups           *rollup.Partition
	row              []any
	picked           []jsonpick.Value
}

func newRollupWorker(p *Pipeline) *rollupWorker {
	r := &rollupWorker{config: p.rollup, format: p.body.format, only: &p.routing.only, target: p.target().(*messageTarget), group: p.Group, partitions: map[string]*rollupPartition{}}
	r.retry.min, r.retry.max = p.config.RetryMin, p.config.RetryMax
	return r
}

// deliver checks the target and returns the delivery into it.
func (r *rollupWorker) deliver(ctx context.Context, parts *Parts, observer driver.Observer, to telemetry) (sluice.Delivery, error) {
	if r.sink != nil {
		return nil, errors.New("a pipeline with memory has one consumer: open the pipeline again for another")
	}
	sink, err := r.target.open(ctx, parts, to)
	if err != nil {
		return nil, err
	}
	return r.deliverTo(sink, observer), nil
}

// deliverTo returns the delivery into a sink.
func (r *rollupWorker) deliverTo(sink driver.Sink[*sender.Message], observer driver.Observer) sluice.Delivery {
	r.sink, r.observer = sink, observer
	return sluice.Replay(sluice.Replayer{Apply: r.apply, CaughtUp: r.caughtUp, Released: r.released})
}

// wrapSource returns the source as the rollup reads it.
func (r *rollupWorker) wrapSource(source driver.Source) driver.Source {
	return &rollupSource{source, r}
}

// rollupSource is a source that is read from keep ago on. It records for the worker
// from where on the partition was read.
type rollupSource struct {
	driver.Source
	worker *rollupWorker
}

// BoundsPerSecond implements [driver.BoundsBudget].
func (w *rollupSource) BoundsPerSecond() float64 { return driver.BudgetOf(w.Source) }

// Group implements [driver.GroupNamer].
func (w *rollupSource) Group() driver.Group { return driver.GroupOf(w.Source) }

func (w *rollupSource) Describe(ctx context.Context) (sluice.Topic, error) {
	topic, err := w.Source.Describe(ctx)
	if err == nil {
		w.worker.mu.Lock()
		w.worker.incarnation = topic.Incarnation
		w.worker.mu.Unlock()
	}
	return topic, err
}

func (w *rollupSource) Seek(ctx context.Context, partition string, start sluice.Start, epoch int64) (sluice.Position, error) {
	if start.Kind == driver.StartLatest { // where the replay will have caught up
		return w.Source.Seek(ctx, partition, start, epoch)
	}
	r := w.worker
	p := &rollupPartition{
		start:  time.Now().Add(-r.config.keep),
		row:    make([]any, len(r.config.mapping.columns)),
		picked: make([]jsonpick.Value, r.config.mapping.paths),
	}
	var err error
	if p.position, err = w.Source.Seek(ctx, partition, sluice.At(p.start), epoch); err != nil {
		return p.position, err
	}
	if p.position.Sequence < 0 {
		p.start = time.Time{} // from the very first event
	} else if p.truncated, err = w.truncated(ctx, partition, p.position, epoch); err != nil {
		return p.position, err
	}
	r.mu.Lock()
	p.incarnation = r.incarnation
	r.partitions[partition] = p
	r.mu.Unlock()
	return p.position, nil
}

// truncated reports whether the oldest event that the log holds is the first one at or after the
// time that a position was found by: retention is then shorter than keep.
func (w *rollupSource) truncated(ctx context.Context, partition string, at sluice.Position, epoch int64) (bool, error) {
	oldest, err := w.Source.Seek(ctx, partition, sluice.Earliest(), epoch)
	if err != nil {
		return false, err
	}
	newest, err := w.Source.Seek(ctx, partition, sluice.Latest(), epoch)
	return at.Sequence <= oldest.Sequence && at.Sequence < newest.Sequence, err
}

func (r *rollupWorker) partition(partition string) *rollupPartition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.partitions[partition]
}

// rollupOf returns the partition's statistics, which begin with its first event.
func (r *rollupWorker) rollupOf(ctx context.Context, p *rollupPartition, first *sluice.Event) *rollup.Partition {
	if p.groups == nil {
		if p.truncated {
			p.start = first.Enqueued.Add(1)
		}
		kinds := make([]rollup.Function, len(r.config.stats))
		for i, f := range r.config.stats {
			kinds[i] = f.function
		}
		p.groups = rollup.New(kinds, r.config.late, p.start)
		p.groups.ChargeTo(memory.FromContext(ctx).KeptAccount())
	}
	return p.groups
}

// apply is [sluice.Replayer].Apply.
func (r *rollupWorker) apply(ctx context.Context, b sluice.Batch) error {
	p := r.partition(b.Partition)
	m := r.rollupOf(ctx, p, b.Events[0])
	var stats RollupStats
	for _, e := range b.Events {
		f, badStamp, err := r.event(ctx, p, e)
		switch {
		case errors.Is(err, sluice.ErrOutage):
			return err
		case errors.Is(err, errLeftOut):
			stats.Filtered++
			continue
		}
		if err != nil {
			stats.Malformed++
			r.report(b.Partition, b.Epoch, driver.Reject(fmt.Errorf("event %d does not count: %w", e.Sequence, err)))
			continue
		}
		if badStamp != nil && !p.badStampReported {
			p.badStampReported = true
			r.report(b.Partition, b.Epoch, fmt.Errorf("stamp of event %d does not count: %w: duplicates of it are not detected: check which program sends it, and source.from and stamp_key of the pipeline", e.Sequence, badStamp))
		}
		outcome, err := m.Add(f)
		if err != nil {
			return err
		}
		switch outcome {
		case rollup.Counted:
			stats.Counted++
		case rollup.Duplicate:
			stats.Duplicates++
		case rollup.OutsideWindow:
			stats.OutsideWindow++
			r.report(b.Partition, b.Epoch, driver.Reject(fmt.Errorf("event %d does not count: it was enqueued at %s, which is not from %v before to %v after %s",
				e.Sequence, e.Enqueued.UTC().Format(time.RFC3339), rollup.Early, r.config.late, f.Time.UTC().Format(time.RFC3339))))
		case rollup.Incomplete:
			stats.Incomplete++
		}
	}
	r.addStats(stats)
	last := b.Events[len(b.Events)-1].Position()
	if !p.published {
		r.setPosition(p, last, false)
		return nil
	}
	return r.publish(ctx, p, b.Partition, b.Epoch, last)
}

// event decodes and converts an event, or returns errLeftOut.
func (r *rollupWorker) event(ctx context.Context, p *rollupPartition, e *sluice.Event) (f *rollup.Event, badStamp, err error) {
	switch {
	case e.Undecodable != "":
		return nil, nil, fmt.Errorf("it cannot be decoded (%s)", e.Undecodable)
	case r.only.excludes(e):
		return nil, nil, errLeftOut
	}
	ctx, _ = memory.Begin(ctx)
	defer func() { memory.FromContext(ctx).Collect().Release() }() // the rollup keeps only parts of it
	if e, err = r.format.Event(ctx, e); err != nil {
		return nil, nil, err
	}
	if wanted, err := r.only.matches(e); !wanted {
		return nil, nil, cmp.Or(err, errLeftOut)
	}
	return r.config.event(e, p.row, p.picked)
}

// errLeftOut is the error of an event that is to be left out.
var errLeftOut = errors.New("left out by only")

// caughtUp is [sluice.Replayer].CaughtUp.
func (r *rollupWorker) caughtUp(ctx context.Context, lease sluice.Lease) error {
	p := r.partition(lease.Partition)
	if p.groups == nil { // nothing was read
		r.setPosition(p, p.position, true)
		return nil
	}
	return r.publish(ctx, p, lease.Partition, lease.Epoch, p.position)
}

// released is [sluice.Replayer].Released.
func (r *rollupWorker) released(lease sluice.Lease, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.partitions[lease.Partition]; p != nil && p.groups != nil {
		p.groups.Release()
	}
	delete(r.partitions, lease.Partition)
}

// setPosition records how far a partition was read, and whether that is published.
func (r *rollupWorker) setPosition(p *rollupPartition, to sluice.Position, published bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.position, p.published = to, published
}

func (r *rollupWorker) addStats(more RollupStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.stats
	s.Counted += more.Counted
	s.Duplicates += more.Duplicates
	s.OutsideWindow += more.OutsideWindow
	s.Incomplete += more.Incomplete
	s.Malformed += more.Malformed
	s.Filtered += more.Filtered
	s.Published += more.Published
}

// publish sends the groups that have changed, and returns when all messages are
// accepted, so that messages of one group stay in order.
func (r *rollupWorker) publish(ctx context.Context, p *rollupPartition, partition string, epoch int64, to sluice.Position) error {
	changed := p.groups.Changed()
	messages := make([]*sender.Message, len(changed))
	for i := range changed {
		var err error
		if messages[i], err = r.config.message(&changed[i]); err != nil {
			return err
		}
	}
	const most = 10_000 // messages in flight
	for len(messages) > 0 {
		n := min(len(messages), most)
		if err := r.send(ctx, partition, epoch, messages[:n]); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		messages = messages[n:]
	}
	r.setPosition(p, to, true)
	return nil
}

// send sends messages until all are accepted or ctx ends. A message that the hub
// rejects is reported and skipped.
func (r *rollupWorker) send(ctx context.Context, partition string, epoch int64, messages []*sender.Message) error {
	wait := max(r.retry.min, 100*time.Millisecond)
	for {
		results := make([]error, len(messages))
		var inFlight sync.WaitGroup
		for i, m := range messages {
			inFlight.Add(1)
			r.sink.Submit(ctx, m, func(result driver.WriteResult) {
				results[i] = result.Err
				inFlight.Done()
			})
		}
		inFlight.Wait()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var again []*sender.Message
		var failure error
		accepted := int64(0)
		for i, err := range results {
			switch {
			case err == nil:
				accepted++
			case errors.Is(err, sluice.ErrRejected):
				r.report(partition, epoch, fmt.Errorf("statistics of %s are not published: %w", messages[i].Key, err))
			default:
				failure, again = err, append(again, messages[i])
			}
		}
		r.addStats(RollupStats{Published: accepted})
		if len(again) == 0 {
			return nil
		}
		r.report(partition, epoch, fmt.Errorf("publish %d messages: %w", len(again), failure))
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
		messages, wait = again, min(2*wait, max(r.retry.max, 10*time.Second))
	}
}

func (r *rollupWorker) report(partition string, epoch int64, err error) {
	if r.observer != nil {
		r.observer.Observe(driver.Observation{Kind: driver.KindFailed, Time: time.Now(), Partition: partition, Epoch: epoch, Err: err})
	}
}

// Read implements [Checkpoints]: it returns the positions up to which this process
// has published.
func (r *rollupWorker) Read(context.Context, sluice.Group) ([]sluice.Checkpoint, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []sluice.Checkpoint
	for partition, p := range r.partitions {
		if p.published {
			list = append(list, sluice.Checkpoint{Group: r.group, Partition: partition, Incarnation: p.incarnation, Position: p.position})
		}
	}
	return list, nil
}

// Reset implements [Checkpoints].
func (r *rollupWorker) Reset(context.Context, sluice.Group, string, string, sluice.Position, driver.How) (int64, error) {
	return 0, errors.New("a pipeline with memory has no checkpoints: it reads the hub again at every start")
}

// RollupStats returns the statistics of a [Pipeline.Rollup], zeros for other
// pipelines.
func (parts *Parts) RollupStats() RollupStats {
	if parts.rollup == nil {
		return RollupStats{}
	}
	parts.rollup.mu.Lock()
	defer parts.rollup.mu.Unlock()
	return parts.rollup.stats
}
