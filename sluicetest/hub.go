package sluicetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// offsetStep is the distance of two offsets. It is not 1, so that a test detects code that confuses
// sequence numbers and offsets.
const offsetStep = 100

// Hub is a [driver.Source] in memory: a topic whose partitions are named "0",
// "1" and so on, read by one consumer group. It treats epochs as Event Hubs
// does. It is safe for concurrent use.
type Hub struct {
	group sluice.Group

	mu      sync.Mutex
	created time.Time
	logs    []*partition
	held    map[string]driver.Bounds // what Bounds answers; nil: what there is
	lenient bool                     // see Lenient
	sparse  bool                     // see Sparse
}

var _ driver.Source = (*Hub)(nil)

// partition is one log. Its fields are guarded by the hub's lock.
type partition struct {
	id           string
	first        int64 // sequence number of events[0], or of the next event if there is none
	events       []*sluice.Event
	last         sluice.Position
	lastEnqueued time.Time
	grown        chan struct{} // closed and replaced when events are appended or trimmed
	readers      []*reader     // one with an epoch, or any number without
	epochs       []int64       // in a sparse topic: the number that each leader's epoch begins with
}

// NewHub makes an empty topic.
func NewHub(group sluice.Group, partitions int) *Hub {
	h := &Hub{group: group, created: time.Now().UTC()}
	for i := range partitions {
		h.logs = append(h.logs, h.newPartition(strconv.Itoa(i)))
	}
	return h
}

func (h *Hub) newPartition(id string) *partition {
	p := &partition{id: id, last: driver.Origin, grown: make(chan struct{})}
	if h.sparse {
		p.epochs = []int64{0}
	}
	return p
}

// Bodies makes one event of each text.
func Bodies(texts ...string) []*sluice.Event {
	events := make([]*sluice.Event, len(texts))
	for i, text := range texts {
		events[i] = &sluice.Event{Body: []byte(text)}
	}
	return events
}

// Append adds copies of events to a partition and returns the position after
// the last of them. It numbers them from 0 on without a gap, gives them
// offsets, and stamps those whose Enqueued is zero with the time, Created if that
// is set. It panics if there is no such partition.
func (h *Hub) Append(partition string, events ...*sluice.Event) sluice.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.must(partition)
	for _, e := range events {
		e = clone(e)
		e.Partition = p.id
		e.Sequence = p.last.Sequence + 1
		e.Offset = strconv.FormatInt(e.Sequence*offsetStep, 10)
		if h.sparse {
			e.Offset = epochText(len(p.epochs) - 1)
			setProperties(e)
		}
		if e.Enqueued.IsZero() && !e.Created.IsZero() {
			e.Enqueued = e.Created
		}
		if e.Enqueued.IsZero() && !e.Control {
			e.Enqueued = time.Now().UTC()
		}
		if e.Control {
			e.Passed = &driver.Passed{Control: 1}
		}
		p.events = append(p.events, e)
		if p.last = e.Position(); !e.Control {
			p.lastEnqueued = e.Enqueued
		}
	}
	p.wake()
	return p.last
}

// Trim drops the events numbered below before, as retention does. It panics if
// there is no such partition.
func (h *Hub) Trim(partition string, before int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.must(partition)
	n := min(max(before-p.first, 0), int64(len(p.events)))
	p.events = slices.Clone(p.events[n:])
	p.first += n
	p.wake()
}

// Silence makes the reader that is open on a partition silent, as a connection that
// loses every packet is: it returns neither events nor errors until its Read is
// cancelled. The next reader is not affected. It panics if there is no such partition.
func (h *Hub) Silence(partition string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.must(partition)
	for _, r := range p.readers {
		r.silent = true
		p.wake()
	}
}

// HoldBounds makes Bounds answer with what the partitions hold now, whatever comes and goes
// later, until release is called. Runtime information of Event Hubs is out of date like that,
// for seconds or for ever.
func (h *Hub) HoldBounds() (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = map[string]driver.Bounds{}
	for _, p := range h.logs {
		h.held[p.id] = p.bounds()
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.held = nil
	}
}

// Lenient makes Open accept a position before the oldest event, as Event Hubs does: the reader
// reports the loss with the next event that there is.
func (h *Hub) Lenient(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lenient = on
}

// Recreate deletes the topic and creates it again, empty and under a new
// incarnation. Readers are cut off.
func (h *Hub) Recreate() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now().UTC()
	if !now.After(h.created) {
		now = h.created.Add(1)
	}
	h.created = now
	for i, p := range h.logs {
		p.detach(fmt.Errorf("partition %s: the topic was deleted", p.id))
		h.logs[i] = h.newPartition(p.id)
	}
}

// Describe implements [driver.Source].
func (h *Hub) Describe(ctx context.Context) (sluice.Topic, error) {
	if err := ctx.Err(); err != nil {
		return sluice.Topic{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := sluice.Topic{Group: h.group, Incarnation: h.created.Format(time.RFC3339Nano), Sparse: h.sparse}
	for _, p := range h.logs {
		t.Partitions = append(t.Partitions, p.id)
	}
	return t, nil
}

// Bounds implements [driver.Source].
func (h *Hub) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	if err := ctx.Err(); err != nil {
		return driver.Bounds{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.find(partition)
	if err != nil {
		return driver.Bounds{}, err
	}
	if h.held != nil {
		return h.held[partition], nil
	}
	return p.bounds(), nil
}

// Seek implements [driver.Source]. As with a broker that can only
// search by reading, a seek of a time or an offset opens a link under the epoch for a moment, which
// evicts a reader and can be refused.
func (h *Hub) Seek(ctx context.Context, partition string, start sluice.Start, epoch int64) (sluice.Position, error) {
	if err := ctx.Err(); err != nil {
		return driver.Unset, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.find(partition)
	if err != nil {
		return driver.Unset, err
	}
	switch start.Kind {
	case driver.StartEarliest:
		return p.positionBefore(p.first), nil
	case driver.StartLatest:
		return p.last, nil
	case driver.StartSequence:
		return p.positionBefore(max(start.Sequence, 0)), nil
	case driver.StartTime:
		return p.search(start.Time, epoch)
	case driver.StartAgo:
		return p.search(time.Now().Add(-start.Ago), epoch)
	case driver.StartOffset:
		step := int64(offsetStep)
		if h.sparse {
			step = 1
		}
		offset, err := strconv.ParseInt(start.Offset, 10, 64)
		if err != nil {
			return driver.Unset, fmt.Errorf("seek in partition %s: offset %q is not a number: %w", p.id, start.Offset, sluice.ErrRefused)
		}
		if err := p.evict(epoch); err != nil {
			return driver.Unset, err
		}
		return p.positionBefore(max((offset+step-1)/step, p.first)), nil
	}
	return driver.Unset, fmt.Errorf("seek in partition %s: unknown kind of start %d: %w", p.id, start.Kind, sluice.ErrRefused)
}

// Open implements [driver.Source].
func (h *Hub) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.find(partition)
	switch {
	case err != nil:
		return nil, err
	case after.Sequence < driver.Origin.Sequence:
		return nil, fmt.Errorf("open partition %s: no position given: %w", p.id, sluice.ErrRefused)
	case p.truncated(after) != nil:
		return nil, p.truncated(after)
	case after.Sequence > p.last.Sequence:
		return nil, fmt.Errorf("open partition %s at %v, its newest event is %v: %w", p.id, after, p.last, sluice.ErrPastEnd)
	case after.Sequence < p.first-1 && !h.lenient:
		return nil, &driver.RetentionError{Partition: p.id, After: after.Sequence, First: p.first}
	}
	if err := p.evict(epoch); err != nil {
		return nil, err
	}
	r := &reader{hub: h, log: p, epoch: epoch, sequence: after.Sequence, gone: make(chan struct{})}
	p.readers = append(p.readers, r)
	return r, nil
}

func (p *partition) bounds() driver.Bounds {
	return driver.Bounds{First: p.first, Last: p.last, LastEnqueued: p.lastEnqueued}
}

func (h *Hub) find(id string) (*partition, error) {
	for _, p := range h.logs {
		if p.id == id {
			return p, nil
		}
	}
	return nil, fmt.Errorf("topic %s has no partition %q: %w", h.group.Topic, id, sluice.ErrRefused)
}

func (h *Hub) must(id string) *partition {
	p, err := h.find(id)
	if err != nil {
		panic(err)
	}
	return p
}

// positionBefore is the position right before the event numbered n, or the end.
func (p *partition) positionBefore(n int64) sluice.Position {
	switch {
	case n > p.last.Sequence:
		return p.last
	case n > p.first:
		return p.events[n-1-p.first].Position()
	}
	before := sluice.Position{Sequence: n - 1}
	if p.epochs != nil {
		before.Offset = epochText(p.epochOf(n))
	}
	return before
}

func (p *partition) search(t time.Time, epoch int64) (sluice.Position, error) {
	if err := p.evict(epoch); err != nil {
		return driver.Unset, err
	}
	i := slices.IndexFunc(p.events, func(e *sluice.Event) bool { return !e.Enqueued.Before(t) })
	if i < 0 {
		return p.last, nil
	}
	return p.positionBefore(p.events[i].Sequence), nil
}

// evict disconnects the readers for a link of this epoch, or refuses the link. One without an epoch
// disconnects none.
func (p *partition) evict(epoch int64) error {
	for _, r := range p.readers {
		if r.epoch > epoch {
			return &driver.StolenError{Partition: p.id, Epoch: r.epoch}
		}
	}
	if epoch != driver.NoEpoch {
		p.detach(&driver.StolenError{Partition: p.id, Epoch: epoch})
	}
	return nil
}

// detach ends the live readers.
func (p *partition) detach(err error) {
	for _, r := range p.readers {
		r.end(err)
	}
	p.readers = nil
}

// end ends a reader.
func (r *reader) end(err error) {
	r.err = err
	close(r.gone)
}

func (p *partition) wake() {
	close(p.grown)
	p.grown = make(chan struct{})
}

// reader is a live link. Its err is guarded by the hub's lock and set before
// gone is closed; at belongs to the goroutine that reads.
type reader struct {
	hub      *Hub
	log      *partition
	epoch    int64
	sequence int64 // sequence number of the last event handed out
	gone     chan struct{}
	err      error

	silent bool // see Hub.Silence; guarded by the hub's lock

	passed driver.Passed // numbers without an event since what was handed out last
}

func (r *reader) Read(ctx context.Context, max int) ([]*sluice.Event, error) {
	if max <= 0 {
		return nil, fmt.Errorf("read at most %d events: must be positive", max)
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		events, grown, err := r.take(max)
		if events != nil || err != nil {
			return events, err
		}
		gone := r.gone
		if grown == nil { // silent
			gone = nil
		}
		select {
		case <-grown:
		case <-gone:
		case <-ctx.Done():
		}
	}
}

// take returns the next events, or if there are none a channel that is closed when that changes;
// none at all of a silent reader.
func (r *reader) take(limit int) ([]*sluice.Event, <-chan struct{}, error) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	p := r.log
	switch {
	case r.silent:
		return nil, nil, nil
	case r.err != nil:
		return nil, nil, r.err
	case r.sequence < p.first-1 && r.hub.lenient && len(p.events) == 0:
		return nil, p.grown, nil
	case r.sequence < p.first-1:
		err := &driver.RetentionError{Partition: p.id, After: r.sequence, First: p.first}
		p.detach(err)
		return nil, nil, err
	case r.sequence == p.last.Sequence:
		return nil, p.grown, nil
	}
	if r.hub.sparse {
		return r.takeSparse(limit), nil, nil
	}
	held := p.events[r.sequence+1-p.first:]
	held = held[:min(limit, len(held))]
	var events []*sluice.Event
	for bytes := 0; len(events) < len(held); {
		e := held[len(events)]
		if bytes += e.Size(); !fits(bytes, len(events)) {
			break
		}
		events = append(events, clone(e))
	}
	r.sequence += int64(len(events))
	return events, nil, nil
}

// fits reports whether an event may be returned after n others, if they have so many bytes
// together.
func fits(bytes, n int) bool { return bytes <= driver.ReadBytes || n == 0 }

func (r *reader) Close(context.Context) error {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	if i := slices.Index(r.log.readers, r); i >= 0 {
		r.end(fmt.Errorf("partition %s: the reader is closed", r.log.id))
		r.log.readers = slices.Delete(r.log.readers, i, i+1)
	}
	return nil
}

// event returns the event as it was appended. By its number an event that was changed is found too,
// if that was not.
func (h *Hub) event(e *sluice.Event) *sluice.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.find(e.Partition)
	if err != nil || e.Sequence < p.first || e.Sequence >= p.first+int64(len(p.events)) {
		return &sluice.Event{}
	}
	return clone(p.events[e.Sequence-p.first])
}

// clone copies an event, so that users who change theirs do not change the log or the store.
func clone(e *sluice.Event) *sluice.Event {
	c := *e
	c.Body = slices.Clone(e.Body)
	c.Properties = maps.Clone(e.Properties)
	c.Headers = slices.Clone(e.Headers)
	for i := range c.Headers {
		c.Headers[i].Value = slices.Clone(c.Headers[i].Value)
	}
	return &c
}
