package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/memory"
)

// Open implements [driver.Source]. It asks the leader of the partition whether its log holds what
// is before and after the position. The epoch is not used: Kafka knows no owner levels.
//
// If the topic was recreated since the last Describe, Open fails, and another Describe is needed.
func (s *Source) Open(ctx context.Context, partition string, after driver.Position, _ int64) (driver.Reader, error) {
	n, err := s.number(partition)
	if err != nil {
		return nil, err
	}
	if after.Sequence < driver.Origin.Sequence {
		return nil, &refusedError{text: s.partitionName(partition) + ": no position to open at: call Seek first"}
	}
	r := newReader(s, n, after)
	r.memory = memory.FromContext(ctx).ReceivedAccount()
	if err := s.register(r); err != nil {
		return nil, err
	}
	err = s.withLeader(ctx, n, true, func(ctx context.Context, l leader) error {
		if err := s.sameTopic(l.info); err != nil {
			return err
		}
		if err := s.check(ctx, l, after); err != nil {
			return err
		}
		r.topicID = l.info.id
		return r.attach(l)
	})
	if err != nil {
		r.close()
		return nil, s.explainOpen(err, partition, after)
	}
	return r, nil
}

// explainOpen adds the position to the error of an Open.
func (s *Source) explainOpen(err error, partition string, after driver.Position) error {
	if end := new(pastEndError); errors.As(err, &end) {
		return fmt.Errorf("%s: position %v, but the newest event is %d: check that it is the right topic, then set the checkpoint with `sluice checkpoints set`: %w",
			s.partitionName(partition), after, end.newest, driver.ErrPastEnd)
	}
	return s.explain(s.partitionName(partition), err)
}

// sameTopic returns an error if a topic is not the one that was described last.
func (s *Source) sameTopic(info *topicInfo) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.described != [16]byte{} && info.id != s.described {
		return s.recreated()
	}
	return nil
}

func (s *Source) recreated() error {
	return fmt.Errorf("%s: %w", s.name(), errRecreated)
}

// errRecreated ends a reader, and refuses to open one. The consumer describes the topic again.
var errRecreated = errors.New("the topic was deleted and created again since it was described")

// register registers a reader for Close. It fails once Close has begun.
func (s *Source) register(r *reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return errClosed
	}
	s.readers[r] = struct{}{}
	return nil
}

func (s *Source) unregister(r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.readers, r)
}

// reader reads one partition. A fetcher brings what the leader sends; Read makes events of it.
type reader struct {
	source    *Source
	partition int32
	topicID   [16]byte
	life      context.Context // ends when the reader or the client is closed
	end       context.CancelFunc
	arrived   chan struct{} // signals that data or an error has come

	decoder decoder // used by Read only

	mu       sync.Mutex
	fetcher  *fetcher        // nil while the leader is looked for
	epoch    int32           // of the leader
	next     int64           // number to fetch next
	past     history         // of the number before it
	chunks   []*chunk        // fetched and not yet taken by Read
	buffered int             // bytes of chunks, and of the one that Read is at
	memory   *memory.Account // charged for buffered and unpacked
	unpacked int             // charged for the batch that is decompressed; only Read changes it
	closed   bool            // close was called
	scarce   bool            // there was no memory for a whole fetch
	whole    int             // bytes of the whole batches of the last fetch
	cutOff   int             // bytes of the batch after them, which it has in part; 0 if unknown
	failure  error           // why nothing follows chunks
	failing  time.Time       // since when the leader has not served the partition; zero: it does
	wait     time.Duration
	void     void // the leader has nothing at next, though its log ends later
	atVoid   bool // confirmVoid decides when the fetch is repeated
}

func newReader(s *Source, partition int32, after driver.Position) *reader {
	r := &reader{source: s, partition: partition, arrived: make(chan struct{}, 1)}
	r.life, r.end = context.WithCancel(s.client.life)
	r.next, r.past = after.Sequence+1, historyOf(after.Offset)
	r.wait = retryFirst
	r.decoder = decoder{
		converter: converter{partition: strconv.Itoa(int(partition)), values: s.cfg.Headers},
		decoded:   after.Sequence, counted: after.Sequence, returned: after.Sequence, past: r.past, offset: after.Offset,
	}
	return r
}

// Read implements [driver.Reader].
func (r *reader) Read(ctx context.Context, max int) ([]*driver.Event, error) {
	if max <= 0 {
		return nil, fmt.Errorf("read at most %d events: must be positive", max)
	}
	for {
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case r.life.Err() != nil:
			return nil, r.closedError()
		}
		if events := r.take(max); len(events) > 0 {
			return events, nil
		}
		if r.decoder.decodeError != nil {
			if err := r.explainGap(ctx); err != nil {
				return nil, err
			}
			continue // compaction explains it
		}
		if err := r.failed(); err != nil {
			return nil, err
		}
		select {
		case <-r.arrived:
		case <-ctx.Done():
		case <-r.life.Done():
		}
	}
}

// take returns the events that are there, at most max, and of several at most [driver.ReadBytes].
// If all are returned and numbers without events follow, a marker of the last is added.
func (r *reader) take(max int) []*driver.Event {
	d := &r.decoder
	for len(d.pending) < max && d.bytes < driver.ReadBytes && d.decodeError == nil {
		if d.chunk == nil && !r.nextChunk() {
			break
		}
		var more bool
		if more, d.decodeError = d.decode(max, r.source.cfg.MaxBatchBytes); !more {
			d.chunk = nil
		}
		r.chargeUnpacked()
	}
	events := d.pop(max)
	if len(events) < max {
		if m := d.marker(); m != nil {
			events = append(events, m)
		}
	}
	return events
}

// nextChunk takes the next chunk of what was fetched, and lets the fetcher fetch in place of the
// one before.
func (r *reader) nextChunk() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.decoder.held > 0 && r.fetcher != nil {
		r.fetcher.signal()
	}
	r.buffered -= r.decoder.held
	r.memory.Give(int64(r.decoder.held))
	r.decoder.held = 0
	if len(r.chunks) > 0 {
		r.decoder.chunk = r.chunks[0]
		r.chunks = slices.Delete(r.chunks, 0, 1)
		r.decoder.held = len(r.decoder.chunk.data)
	}
	return r.decoder.chunk != nil
}

// chargeUnpacked charges the batch that is decompressed, in place of the one before.
func (r *reader) chargeUnpacked() {
	if n := r.decoder.unpacked; n != r.unpacked {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.memory.Settle(int64(r.unpacked), int64(n))
		r.unpacked = n
	}
}

// failed returns why no more events come, nil if they may.
func (r *reader) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.chunks) > 0 {
		return nil
	}
	return r.failure
}

// Close implements [driver.Reader].
func (r *reader) Close(context.Context) error {
	r.close()
	return nil
}

func (r *reader) close() {
	r.end()
	r.source.unregister(r)
	r.mu.Lock()
	f := r.fetcher
	r.fetcher = nil
	r.chunks = nil
	r.memory.Give(int64(r.buffered + r.unpacked))
	r.memory, r.closed = nil, true
	r.mu.Unlock()
	if f != nil {
		f.detach(r)
	}
}

func (r *reader) closedError() error {
	if r.source.client.life.Err() != nil {
		return errClosed
	}
	return fmt.Errorf("%s: the reader is closed", r.name())
}

func (r *reader) name() string { return r.source.partitionName(r.decoder.converter.partition) }

// attach has the leader's fetcher fetch the partition.
func (r *reader) attach(l leader) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life.Err() != nil {
		return r.closedError()
	}
	f, err := r.source.client.attach(fetcherKey{l.broker, r.source.isolation()}, r)
	if err != nil {
		return err
	}
	r.fetcher, r.epoch = f, l.epoch
	r.void = void{} // of another leader's answers
	return nil
}

// notify wakes Read.
func (r *reader) notify() {
	select {
	case r.arrived <- struct{}{}:
	default:
	}
}

// fail ends the reader with an error, after what was fetched.
func (r *reader) fail(err error) {
	r.mu.Lock()
	if r.failure == nil {
		r.failure = err
	}
	f := r.fetcher
	r.fetcher = nil
	r.mu.Unlock()
	if f != nil {
		f.detach(r)
	}
	r.notify()
}

// lost is called if the leader did not serve the partition. Then the reader looks for the leader of
// now, unless the error says that this is of no use.
func (r *reader) lost(err error) {
	if r.life.Err() != nil {
		return
	}
	if !passes(err) && !errors.Is(err, kerr.OffsetOutOfRange) {
		r.fail(r.source.explain(r.name(), err))
		return
	}
	if r.overdue(err) {
		r.giveUp(err, err)
		return
	}
	r.mu.Lock()
	f := r.fetcher
	r.fetcher = nil
	r.mu.Unlock()
	if f == nil {
		return
	}
	f.detach(r)
	if !r.source.client.start(func() { r.relocate(err) }) {
		r.fail(errClosed)
	}
}

// relocate looks for the leader of the partition until it serves it, or the timeout is over.
func (r *reader) relocate(cause error) {
	for {
		r.mu.Lock()
		wait := r.wait
		r.wait = min(2*r.wait, retryMost)
		r.mu.Unlock()
		if pause(r.life, wait) != nil {
			return
		}
		err := r.locate()
		switch {
		case err == nil || r.life.Err() != nil:
			return
		case !passes(err):
			r.fail(r.explainLive(err))
			return
		case r.overdue(err):
			r.giveUp(err, cause)
			return
		}
	}
}

// overdue reports whether the partition was not served for too long. The time counts from the first
// failure after the last answer: before that it may not have been asked for.
func (r *reader) overdue(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failing.IsZero() {
		r.failing = time.Now()
	}
	silent := time.Since(r.failing)
	return silent > r.source.client.timeout || isUnknownTopic(err) && silent > unknownFor
}

// giveUp fails with an error that is overdue, and with the first one.
func (r *reader) giveUp(err, cause error) {
	r.mu.Lock()
	silent := time.Since(r.failing).Round(time.Second)
	r.mu.Unlock()
	r.fail(fmt.Errorf("%w; the partition was not served for %v (first error: %s)", r.source.explain(r.name(), err), silent, r.source.client.oneLine(cause.Error())))
}

// locate asks for the leader, checks the position against its log, and has it fetched from.
func (r *reader) locate() error {
	ctx, cancel := context.WithTimeoutCause(r.life, r.source.client.timeout, errTimeout)
	defer cancel()
	err := r.follow(ctx)
	if err != nil && context.Cause(ctx) == errTimeout {
		return errTimeout
	}
	return err
}

func (r *reader) follow(ctx context.Context) error {
	l, err := r.source.leader(ctx, r.partition, true)
	if err != nil {
		return err
	}
	r.mu.Lock()
	at := driver.Position{Sequence: r.next - 1, Offset: r.past.String()}
	stale := l.epoch >= 0 && l.epoch < r.epoch
	r.mu.Unlock()
	switch {
	case l.info.id != r.topicID:
		return r.source.recreated()
	case stale:
		return fmt.Errorf("%s: %w", l.info.brokerName(l.broker), kerr.FencedLeaderEpoch)
	}
	if err := r.source.check(ctx, l, at); err != nil {
		return err
	}
	return r.attach(l)
}

// explainLive returns the error of a reader whose log has changed. What was read is ahead of the
// checkpoint, so only Open can say what of it was done.
func (r *reader) explainLive(err error) error {
	if cut := new(driver.TruncatedError); errors.As(err, &cut) {
		return fmt.Errorf("%s: a leader without events from %d on was elected while it was read: reading again from the checkpoint", r.name(), cut.End)
	}
	if end := new(pastEndError); errors.As(err, &end) {
		return fmt.Errorf("%s: the log ends at %d, before what was read: reading again from the checkpoint", r.name(), end.newest)
	}
	return r.source.explain(r.name(), err)
}
