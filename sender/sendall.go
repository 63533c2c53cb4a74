package sender

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// maxRejections is how many rejected messages the error of SendAll has.
const maxRejections = 16

// run is one SendAll. The calling goroutine takes the messages and packs them
// into batches; the goroutine of each partition writer sends its batches.
type run struct {
	s         *Sender
	sending   context.Context // ends when no further batch is sent
	stop      context.CancelCauseFunc
	inFlight  context.Context // ends when batches in flight are abandoned
	abandon   context.CancelFunc
	drainStop func() bool // stops the timer of Config.DrainTimeout

	writers []*partitionWriter
	tokens  chan struct{} // one for each batch in flight
	working sync.WaitGroup
	drained sync.Once

	flusherStop context.CancelFunc // nil: there is no flusher
	flusher     sync.WaitGroup

	// The fields below belong to the calling goroutine. If there is a flusher,
	// filling guards them.
	filling   sync.Mutex
	taken     int64
	ids       idGenerator
	endsEarly bool     // the sequence has a message that wasn't taken
	keyed     []*batch // filling with messages that have a key, by partition
	keyless   []*batch // filling with messages without a key; one, but with Spread one for each partition
	next      int      // the partition of the next keyless batch; with Ordered, of the last message
	last      **batch  // with Ordered: the only batch that is filling
	mixed     bool     // with Ordered: all messages share the batch of those without a key

	mu         sync.Mutex
	result     Report
	rejections []error
}

// begin looks up the partitions and starts a writer for each.
func (s *Sender) begin(ctx context.Context) (*run, error) {
	r := &run{s: s, tokens: make(chan struct{}, s.cfg.InFlight), ids: newIDGenerator()}
	r.sending, r.stop = context.WithCancelCause(ctx)
	r.inFlight, r.abandon = context.WithCancel(context.WithoutCancel(ctx))
	r.drainStop = context.AfterFunc(ctx, func() { time.AfterFunc(s.cfg.DrainTimeout, r.abandon) })
	var partitions []string
	err := r.retry(func(ctx context.Context) (err error) {
		partitions, err = s.packer.transport.Partitions(ctx)
		return err
	})
	if err == nil && len(partitions) == 0 {
		err = errNoPartitions
	}
	if err != nil {
		r.drain()
		r.stop(nil)
		return nil, fmt.Errorf("look up partitions: %w", err)
	}
	if mixer, ok := s.packer.transport.(PartitionMixer); ok {
		r.mixed = s.cfg.Ordered && mixer.MixesPartitions()
	}
	r.keyed, r.keyless = make([]*batch, len(partitions)), make([]*batch, 1)
	if s.cfg.Spread {
		r.keyless = make([]*batch, len(partitions))
	}
	for _, name := range partitions {
		w := &partitionWriter{run: r, partition: name, in: make(chan *batch)}
		r.writers = append(r.writers, w)
		r.working.Go(w.work)
	}
	// At random, so that many short sequences don't all begin with one partition.
	r.next = rand.IntN(len(r.writers))
	r.startFlusher()
	return r, nil
}

var errNoPartitions = errors.New("the service reports no partitions")

// take packs the next message. It returns false if no more are wanted.
func (r *run) take(m *Message) bool {
	if r.sending.Err() != nil {
		r.endsEarly = true
		return false
	}
	unclaimed := r.claim(m)
	if r.flusherStop != nil {
		r.filling.Lock()
		defer r.filling.Unlock()
	}
	k := keep(m, r.taken)
	r.taken++
	if unclaimed != nil {
		r.end(unclaimed, k.index)
		return false
	}
	if m.MessageID == "" {
		m.MessageID = r.ids.id(k.index)
	}
	slot, partition := r.slot(m)
	if r.s.cfg.Ordered {
		if r.last != nil && r.last != slot {
			r.ship(r.last)
		}
		r.last = slot
	}
	if err := r.pack(slot, partition, m, k); err != nil {
		r.end(err, k.index)
		return false
	}
	return true
}

// end ends the run, with a message that was taken and is not sent.
func (r *run) end(err error, index int64) {
	r.stop(err)
	r.mu.Lock()
	r.result.Unsent = append(r.result.Unsent, IndexRange{First: index, Last: index})
	r.mu.Unlock()
}

// slot is where the batch for a message is filling, and its partition.
// Event Hubs gives an event without a key the key of the batch's first event, so
// messages without a key have batches of their own.
func (r *run) slot(m *Message) (slot **batch, partition int) {
	if r.mixed || !m.grouped() {
		if r.s.cfg.Spread {
			r.next = (r.next + 1) % len(r.writers)
		}
		return &r.keyless[r.next%len(r.keyless)], r.next
	}
	partition = r.s.packer.partitionOf(m.group(), len(r.writers))
	if r.s.cfg.Ordered {
		r.next = partition
	}
	return &r.keyed[partition], partition
}

// pack adds a message to the batch in the slot, or to a new one that replaces
// it. An error ends the run.
func (r *run) pack(slot **batch, partition int, m *Message, k kept) error {
	full := *slot
	if full != nil {
		err := full.add(m, k)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrTooLarge) {
			r.rejectMessage(k.index, full, m, err)
			return nil
		}
		if slot == &r.keyless[0] && r.inTurn() {
			r.next = (r.next + 1) % len(r.writers)
			partition = r.next
		}
	}
	// Only a message that fits into an empty batch ends the one before.
	b, err := r.open(r.writers[partition])
	if err != nil {
		return err
	}
	if err := b.add(m, k); err != nil {
		r.rejectMessage(k.index, b, m, err)
		return nil
	}
	if full != nil {
		r.ship(slot)
	}
	*slot = b
	return nil
}

// inTurn reports whether each batch of messages without a key goes to the next
// partition.
func (r *run) inTurn() bool { return !r.s.cfg.Ordered && !r.s.cfg.Spread }

// open begins a batch.
func (r *run) open(w *partitionWriter) (*batch, error) {
	b := &batch{writer: w, begun: time.Now()}
	err := r.retry(func(ctx context.Context) (err error) {
		b.packedBatch, err = r.s.packer.newBatch(ctx, w.partition)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("begin a batch for partition %s: %w", w.partition, err)
	}
	return b, nil
}

// ship hands the batch in a slot, if there is one, to its partition writer, once
// that and a token are free.
func (r *run) ship(slot **batch) {
	b := *slot
	if b == nil {
		return
	}
	*slot = nil
	select {
	case r.tokens <- struct{}{}:
		select {
		case b.writer.in <- b:
			return
		case <-r.sending.Done():
			<-r.tokens
		}
	case <-r.sending.Done():
	}
	r.settle(b, false)
}

// flush ships all batches that are filling.
func (r *run) flush() {
	for i := range r.keyed {
		r.ship(&r.keyed[i])
	}
	for i := range r.keyless {
		r.ship(&r.keyless[i])
	}
}

// startFlusher starts the flusher, which ships batches after Config.MaxWait.
func (r *run) startFlusher() {
	maxWait := r.s.cfg.MaxWait
	if maxWait == 0 {
		return
	}
	ctx, cancel := context.WithCancel(r.sending)
	r.flusherStop = cancel
	r.flusher.Go(func() {
		tick := time.NewTicker(max(maxWait/4, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.flushBegunBefore(time.Now().Add(-maxWait))
			case <-ctx.Done():
				return
			}
		}
	})
}

// stopFlusher ends the flusher and waits for it.
func (r *run) stopFlusher() {
	if r.flusherStop != nil {
		r.flusherStop()
		r.flusher.Wait()
	}
}

// flushBegunBefore ships the batches that were begun before a time.
func (r *run) flushBegunBefore(t time.Time) {
	r.filling.Lock()
	defer r.filling.Unlock()
	for i := range r.keyed {
		if b := r.keyed[i]; b != nil && b.begun.Before(t) {
			r.ship(&r.keyed[i])
		}
	}
	for i := range r.keyless {
		if b := r.keyless[i]; b != nil && b.begun.Before(t) {
			r.ship(&r.keyless[i])
			if r.inTurn() {
				r.next = (r.next + 1) % len(r.writers)
			}
		}
	}
}

// drain ends the partition writers and waits for them: batches in flight get
// their answers.
func (r *run) drain() {
	r.stopFlusher()
	r.drained.Do(func() {
		for _, w := range r.writers {
			close(w.in)
		}
		r.working.Wait()
		r.drainStop()
		r.abandon()
	})
}

// settle records whether a batch was accepted. One that wasn't is Unknown if an
// answer was lost, and Unsent otherwise.
func (r *run) settle(b *batch, accepted bool) {
	r.mu.Lock()
	switch {
	case accepted:
	case b.lost:
		r.result.Unknown = append(r.result.Unknown, b.indices()...)
	default:
		r.result.Unsent = append(r.result.Unsent, b.indices()...)
	}
	if b.duplicate {
		r.result.PossibleDuplicates = append(r.result.PossibleDuplicates, b.indices()...)
	}
	r.mu.Unlock()
	if accepted {
		if notify := r.s.cfg.OnAccepted; notify != nil {
			notify(b.indices())
		}
		r.count(func(s *Stats) {
			s.Messages += int64(len(b.messages))
			s.Batches++
			s.Bytes += int64(b.Bytes())
		})
	}
}

// count adds to the statistics of the run and of the sender.
func (r *run) count(add func(*Stats)) {
	var n Stats
	add(&n)
	r.mu.Lock()
	add(&r.result.Stats)
	r.mu.Unlock()
	s := r.s
	s.messages.Add(n.Messages)
	s.batches.Add(n.Batches)
	s.bytes.Add(n.Bytes)
	s.retries.Add(n.Retries)
	s.tooLarge.Add(n.TooLarge)
}

// rejectMessage records a message that can't be added to a batch.
func (r *run) rejectMessage(index int64, b *batch, m *Message, err error) {
	r.reject(&RejectedError{Index: index, Size: sizeIn(b.Batch, m), Body: len(m.Body), Err: err})
}

func (r *run) reject(e *RejectedError) {
	notify := r.s.cfg.OnRejected
	r.mu.Lock()
	r.result.Rejected = extend(r.result.Rejected, e.Index)
	if notify == nil && len(r.rejections) < maxRejections {
		r.rejections = append(r.rejections, e)
	}
	r.mu.Unlock()
	if notify != nil {
		notify(e)
	}
}

// report is the result of SendAll, once all batches are settled.
func (r *run) report() (Report, error) {
	out := &r.result
	out.Taken = r.taken
	for _, list := range []*[]IndexRange{&out.Rejected, &out.Unsent, &out.Unknown, &out.PossibleDuplicates} {
		*list = union(*list)
	}
	out.Accepted = rest(r.taken, out.Rejected, out.Unsent, out.Unknown)
	errs := r.rejections
	if more := total(out.Rejected) - int64(len(errs)); more > 0 && r.s.cfg.OnRejected == nil {
		errs = append(errs, fmt.Errorf("and %d messages more rejected: see Report.Rejected", more))
	}
	err := errors.Join(errs...)
	if cause := context.Cause(r.sending); cause != nil && (r.endsEarly || len(out.Unsent)+len(out.Unknown) > 0) {
		err = errors.Join(fmt.Errorf("sending stopped after %d accepted messages: %w", out.Messages, cause), err)
	}
	return *out, err
}
