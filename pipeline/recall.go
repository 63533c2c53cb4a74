package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/pipeline/internal/figures"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
	"github.com/sluice-go/sluice/sender"
)

// RollupStats is what a pipeline that is [Pipeline.Rollup] has done so
// far. What is read anew counts anew.
type RollupStats struct {
	Counted       int64 // events
	Duplicates    int64 // events that were counted already: the stage before has sent them twice
	OutsideWindow int64 // events that came too late, or too early, for their group
	Incomplete    int64 // events of groups that the memory doesn't reach back for as a whole
	Malformed     int64 // events without a group, or with what is no number where one should be
	Published     int64 // messages
}

// recall is a pipeline's memory at work.
type recall struct {
	memory *memory
	next   *nextTarget
	group  sluice.Group
	retry  struct{ min, max time.Duration }

	sink     sluice.Sink[*sender.Message]
	observer sluice.Observer

	mu          sync.Mutex
	incarnation string // the topic's, when last asked
	parts       map[string]*part
	sums        RollupStats
}

// part is the memory of a partition, as long as that is assigned.
type part struct {
	incarnation string
	from        time.Time // see [figures.New]
	cut         bool      // from is behind the first event: what came before is gone
	at          sluice.Position
	caught      bool // what is in memory is published
	unread      bool // it was told of a stamp that can't be read
	memory      *figures.Memory
	row         []any
	picked      []jsonpick.Value
}

func newRecall(p *Pipeline) *recall {
	r := &recall{memory: p.memory, next: p.next, group: p.Group, parts: map[string]*part{}}
	r.retry.min, r.retry.max = p.config.RetryMin, p.config.RetryMax
	return r
}

// deliver makes the delivery from memory into the next hub.
func (r *recall) deliver(ctx context.Context, parts *Parts, observer sluice.Observer) (sluice.Delivery, error) {
	if r.sink != nil {
		return nil, errors.New("a memory has one consumer: open the pipeline again for another")
	}
	sink, err := r.next.open(ctx, parts)
	if err != nil {
		return nil, err
	}
	return r.into(sink, observer), nil
}

// into makes the delivery into a sink.
func (r *recall) into(sink sluice.Sink[*sender.Message], observer sluice.Observer) sluice.Delivery {
	r.sink, r.observer = sink, observer
	return sluice.Replay(sluice.Replayer{Apply: r.apply, CaughtUp: r.caughtUp, Released: r.released})
}

// over is the source as the memory reads it.
func (r *recall) over(source driver.Source) driver.Source { return &window{source, r} }

// window is a source that is read as far back as the memory reaches, and tells
// it how far that is.
type window struct {
	driver.Source
	recall *recall
}

func (w *window) Describe(ctx context.Context) (sluice.Topic, error) {
	topic, err := w.Source.Describe(ctx)
	if err == nil {
		w.recall.mu.Lock()
		w.recall.incarnation = topic.Incarnation
		w.recall.mu.Unlock()
	}
	return topic, err
}

func (w *window) Seek(ctx context.Context, partition string, _ sluice.Start, epoch int64) (sluice.Position, error) {
	r := w.recall
	p := &part{
		from:   time.Now().Add(-r.memory.keep),
		row:    make([]any, len(r.memory.mapping.columns)),
		picked: make([]jsonpick.Value, r.memory.mapping.paths),
	}
	var err error
	if p.at, err = w.Source.Seek(ctx, partition, sluice.At(p.from), epoch); err != nil {
		return p.at, err
	}
	b, err := w.Source.Bounds(ctx, partition)
	if err != nil {
		return p.at, err
	}
	switch {
	case p.at.Sequence < 0:
		p.from = time.Time{} // from the very first event on
	case p.at.Sequence < b.First && !b.LastEnqueued.Before(p.from):
		p.cut = true // the log reaches back less far
	}
	r.mu.Lock()
	p.incarnation = r.incarnation
	r.parts[partition] = p
	r.mu.Unlock()
	return p.at, nil
}

func (r *recall) part(partition string) *part {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.parts[partition]
}

// memoryOf is the partition's memory, which begins with its first event.
func (r *recall) memoryOf(p *part, first *sluice.Event) *figures.Memory {
	if p.memory == nil {
		if p.cut {
			p.from = first.Enqueued.Add(1)
		}
		kinds := make([]figures.Kind, len(r.memory.figures))
		for i, f := range r.memory.figures {
			kinds[i] = f.kind
		}
		p.memory = figures.New(kinds, r.memory.late, p.from)
	}
	return p.memory
}

// apply is [sluice.Replayer].Apply.
func (r *recall) apply(ctx context.Context, b sluice.Batch) error {
	p := r.part(b.Partition)
	m := r.memoryOf(p, b.Events[0])
	var sums RollupStats
	for _, e := range b.Events {
		f, unread, err := r.memory.event(e, p.row, p.picked)
		if err != nil {
			sums.Malformed++
			r.tell(b.Partition, b.Epoch, sluice.Reject(fmt.Errorf("event %d does not count: %w", e.Sequence, err)))
			continue
		}
		if unread != nil && !p.unread {
			p.unread = true
			r.tell(b.Partition, b.Epoch, fmt.Errorf("stamp of event %d: %w: repeats can't be told by such stamps, see who sets the properties named sluice-*", e.Sequence, unread))
		}
		outcome, err := m.Take(f)
		if err != nil {
			return err
		}
		switch outcome {
		case figures.Counted:
			sums.Counted++
		case figures.Repeated:
			sums.Duplicates++
		case figures.Untimely:
			sums.OutsideWindow++
			r.tell(b.Partition, b.Epoch, sluice.Reject(fmt.Errorf("event %d does not count: it was enqueued at %s, which is not from %v before to %v after %s",
				e.Sequence, e.Enqueued.UTC().Format(time.RFC3339), figures.Early, r.memory.late, f.Time.UTC().Format(time.RFC3339))))
		case figures.Held:
			sums.Incomplete++
		}
	}
	r.add(sums)
	last := b.Events[len(b.Events)-1].Position()
	if !p.caught {
		r.move(p, last, false)
		return nil
	}
	return r.publish(ctx, p, b.Partition, b.Epoch, last)
}

// caughtUp is [sluice.Replayer].CaughtUp.
func (r *recall) caughtUp(ctx context.Context, lease sluice.Lease) error {
	p := r.part(lease.Partition)
	if p.memory == nil { // nothing was read
		r.move(p, p.at, true)
		return nil
	}
	return r.publish(ctx, p, lease.Partition, lease.Epoch, p.at)
}

// released is [sluice.Replayer].Released.
func (r *recall) released(lease sluice.Lease, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.parts, lease.Partition)
}

// move notes up to where memory has come.
func (r *recall) move(p *part, to sluice.Position, published bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.at, p.caught = to, published
}

func (r *recall) add(more RollupStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.sums
	s.Counted += more.Counted
	s.Duplicates += more.Duplicates
	s.OutsideWindow += more.OutsideWindow
	s.Incomplete += more.Incomplete
	s.Malformed += more.Malformed
	s.Published += more.Published
}

// publish sends the groups that have changed, and returns when all have been
// accepted: nothing of a group overtakes what was sent of it before.
func (r *recall) publish(ctx context.Context, p *part, partition string, epoch int64, to sluice.Position) error {
	changed := p.memory.Changed()
	messages := make([]*sender.Message, len(changed))
	for i := range changed {
		var err error
		if messages[i], err = r.memory.message(&changed[i]); err != nil {
			return err
		}
	}
	const most = 10_000 // in flight
	for len(messages) > 0 {
		n := min(len(messages), most)
		if err := r.send(ctx, partition, epoch, messages[:n]); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		messages = messages[n:]
	}
	r.move(p, to, true)
	return nil
}

// send sends messages until all are accepted or ctx ends. One that the hub
// refuses for good is told and passed over.
func (r *recall) send(ctx context.Context, partition string, epoch int64, messages []*sender.Message) error {
	wait := max(r.retry.min, 100*time.Millisecond)
	for {
		results := make([]error, len(messages))
		var flying sync.WaitGroup
		for i, m := range messages {
			flying.Add(1)
			r.sink.Submit(ctx, m, func(so sluice.WriteResult) {
				results[i] = so.Err
				flying.Done()
			})
		}
		flying.Wait()
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
				r.tell(partition, epoch, fmt.Errorf("figures of %s are not published: %w", messages[i].Key, err))
			default:
				failure, again = err, append(again, messages[i])
			}
		}
		r.add(RollupStats{Published: accepted})
		if len(again) == 0 {
			return nil
		}
		r.tell(partition, epoch, fmt.Errorf("publish %d messages: %w", len(again), failure))
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

func (r *recall) tell(partition string, epoch int64, err error) {
	if r.observer != nil {
		r.observer.Observe(sluice.Observation{Kind: sluice.KindFailed, Time: time.Now(), Partition: partition, Epoch: epoch, Err: err})
	}
}

// Read implements [Checkpoints] with what this process has published.
func (r *recall) Read(context.Context, sluice.Group) ([]sluice.Checkpoint, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []sluice.Checkpoint
	for partition, p := range r.parts {
		if p.caught {
			list = append(list, sluice.Checkpoint{Group: r.group, Partition: partition, Incarnation: p.incarnation, Position: p.at})
		}
	}
	return list, nil
}

// Reset implements [Checkpoints].
func (r *recall) Reset(context.Context, sluice.Group, string, string, sluice.Position) (int64, error) {
	return 0, errors.New("a memory has no checkpoints: it is read anew at every start")
}

// RollupStats tells what a pipeline that is [Pipeline.Rollup] has done; of others
// there is nothing to tell.
func (parts *Parts) RollupStats() RollupStats {
	if parts.recall == nil {
		return RollupStats{}
	}
	parts.recall.mu.Lock()
	defer parts.recall.mu.Unlock()
	return parts.recall.sums
}
