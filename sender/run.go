package sender

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/keyhash"
)

// maxRefusals is how many messages that can't be sent the error names.
const maxRefusals = 16

// idPrefix is how many characters the ids of a run's messages have in common, of
// five random bits each.
const idPrefix = 14

// run is one SendAll. The calling goroutine draws the messages and packs them,
// that of a lane sends.
type run struct {
	s       *Sender
	going   context.Context // ends when no further batch is to be sent
	stop    context.CancelCauseFunc
	sending context.Context // ends when those on their way are given up
	cut     context.CancelFunc
	parted  func() bool

	lanes  []*lane
	tokens chan struct{} // one for each batch on its way
	work   sync.WaitGroup
	ending sync.Once

	untend context.CancelFunc // ends the tender; nil if there is none
	tender sync.WaitGroup

	// Of the calling goroutine, and of the tender if there is one: who has
	// filling, may use them.
	filling sync.Mutex
	drawn   int64
	id      []byte    // of a message that has none: a prefix of the run's own, the index
	short   bool      // there are messages left that weren't drawn
	keyed   []*parcel // those filling, by partition
	loose   []*parcel // those filling with messages without a key: one, or if spread by partition
	turn    int       // the partition of the next of those; if ordered, of all
	last    **parcel  // if ordered: the one parcel that fills
	mixed   bool      // if ordered: all messages have the parcel of those without a key

	mu       sync.Mutex
	result   Report
	refusals []error
}

// lane sends the batches of a partition, one after the other.
type lane struct {
	partition string
	in        chan *parcel
}

// parcel is a batch and what is known of it.
type parcel struct {
	lane     *lane
	batch    Batch
	indices  []IndexRange
	since    time.Time // it was begun
	lost     bool      // an answer was
	repeated bool      // it was sent after that
}

// take packs the next message. It returns false if no more are wanted.
func (r *run) take(m *Message) bool {
	if r.going.Err() != nil {
		r.short = true
		return false
	}
	if r.untend != nil {
		r.filling.Lock()
		defer r.filling.Unlock()
	}
	index := r.drawn
	r.drawn++
	if m.MessageID == "" {
		r.id = strconv.AppendInt(r.id[:idPrefix], index, 36)
		m.MessageID = string(r.id)
	}
	slot, partition := r.slot(m.group())
	if r.s.cfg.Ordered {
		if r.last != nil && r.last != slot {
			r.ship(r.last)
		}
		r.last = slot
	}
	if err := r.pack(slot, partition, m, index); err != nil {
		r.stop(err)
		r.mu.Lock()
		r.result.Unsent = append(r.result.Unsent, IndexRange{First: index, Last: index})
		r.mu.Unlock()
		return false
	}
	return true
}

// slot is where the parcel of a key or session fills. Event Hubs gives an event
// without a key that of the batch's first event: so those have a parcel of
// their own.
func (r *run) slot(key string) (slot **parcel, partition int) {
	if r.mixed || key == "" {
		if r.s.cfg.Spread {
			r.turn = (r.turn + 1) % len(r.lanes)
		}
		return &r.loose[r.turn%len(r.loose)], r.turn
	}
	partition = keyhash.Partition(key, len(r.lanes))
	if r.s.cfg.Ordered {
		r.turn = partition
	}
	return &r.keyed[partition], partition
}

// pack adds a message to the parcel in the slot, or to the one that follows it.
// The error is one that ends the run.
func (r *run) pack(slot **parcel, partition int, m *Message, index int64) error {
	p := *slot
	if p != nil {
		err := p.batch.Add(m)
		if err == nil {
			p.indices = extend(p.indices, index)
			return nil
		}
		if !errors.Is(err, ErrTooLarge) {
			r.refuse(index, p.batch, m, err)
			return nil
		}
		if slot == &r.loose[0] && r.inTurn() {
			r.turn = (r.turn + 1) % len(r.lanes)
			partition = r.turn
		}
	}
	// Only a message that fits into an empty batch ends the one before.
	fresh, err := r.open(r.lanes[partition])
	if err != nil {
		return err
	}
	if err := fresh.batch.Add(m); err != nil {
		r.refuse(index, fresh.batch, m, err)
		return nil
	}
	fresh.indices = extend(nil, index)
	if p != nil {
		r.ship(slot)
	}
	*slot = fresh
	return nil
}

// inTurn tells whether each batch of messages without a key goes to the next
// partition.
func (r *run) inTurn() bool { return !r.s.cfg.Ordered && !r.s.cfg.Spread }

func (r *run) open(l *lane) (*parcel, error) {
	p := &parcel{lane: l, since: time.Now()}
	err := r.persist(func(ctx context.Context) (err error) {
		p.batch, err = r.s.transport.NewBatch(ctx, l.partition)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("begin a batch for %s: %w", l.name(), err)
	}
	return p, nil
}

func (l *lane) name() string { return fmt.Sprintf("partition %s", l.partition) }

// ship hands the parcel in a slot, if there is one, to its lane, once that and a
// token are free.
func (r *run) ship(slot **parcel) {
	p := *slot
	if p == nil {
		return
	}
	*slot = nil
	select {
	case r.tokens <- struct{}{}:
		select {
		case p.lane.in <- p:
			return
		case <-r.going.Done():
			<-r.tokens
		}
	case <-r.going.Done():
	}
	r.settle(p, OutcomeBusy)
}

// flush ships what is still filling.
func (r *run) flush() {
	for i := range r.keyed {
		r.ship(&r.keyed[i])
	}
	for i := range r.loose {
		r.ship(&r.loose[i])
	}
}

// tend starts the tender, which ships parcels that have waited long enough.
func (r *run) tend() {
	patience := r.s.cfg.MaxWait
	if patience == 0 {
		return
	}
	ctx, cancel := context.WithCancel(r.going)
	r.untend = cancel
	r.tender.Go(func() {
		tick := time.NewTicker(max(patience/4, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.shipOld(time.Now().Add(-patience))
			case <-ctx.Done():
				return
			}
		}
	})
}

// tended ends the tender and waits for it.
func (r *run) tended() {
	if r.untend != nil {
		r.untend()
		r.tender.Wait()
	}
}

// shipOld ships the parcels that were begun before a time.
func (r *run) shipOld(before time.Time) {
	r.filling.Lock()
	defer r.filling.Unlock()
	for i := range r.keyed {
		if p := r.keyed[i]; p != nil && p.since.Before(before) {
			r.ship(&r.keyed[i])
		}
	}
	for i := range r.loose {
		if p := r.loose[i]; p != nil && p.since.Before(before) {
			r.ship(&r.loose[i])
			if r.inTurn() {
				r.turn = (r.turn + 1) % len(r.lanes)
			}
		}
	}
}

// halt ends the lanes and waits for them. What is on its way gets its answer.
func (r *run) halt() {
	r.tended()
	r.ending.Do(func() {
		for _, l := range r.lanes {
			close(l.in)
		}
		r.work.Wait()
		r.parted()
		r.cut()
	})
}

// refuse notes a message that can't be sent.
func (r *run) refuse(index int64, batch Batch, m *Message, why error) {
	r.reject(&RejectedError{Index: index, Size: sizeIn(batch, m), Err: why})
}

// sizeIn is what a message alone would have in a batch, or its body if the batch
// doesn't know.
func sizeIn(batch Batch, m *Message) int {
	if sizer, ok := batch.(Sizer); ok {
		if n, err := sizer.Size(m); err == nil {
			return n
		}
	}
	return len(m.Body)
}

func (r *run) reject(e *RejectedError) {
	tell := r.s.cfg.OnRejected
	r.mu.Lock()
	r.result.Rejected = extend(r.result.Rejected, e.Index)
	if tell == nil && len(r.refusals) < maxRefusals {
		r.refusals = append(r.refusals, e)
	}
	r.mu.Unlock()
	if tell != nil {
		tell(e)
	}
}

// report sums up, once all is settled.
func (r *run) report() (Report, error) {
	out := &r.result
	out.Taken = r.drawn
	for _, list := range []*[]IndexRange{&out.Rejected, &out.Unsent, &out.Unknown, &out.PossibleDuplicates} {
		*list = union(*list)
	}
	out.Accepted = rest(r.drawn, out.Rejected, out.Unsent, out.Unknown)
	if more := total(out.Rejected) - int64(len(r.refusals)); more > 0 && r.s.cfg.OnRejected == nil {
		r.refusals = append(r.refusals, fmt.Errorf("and %d messages more can't be sent: see the report's Refused", more))
	}
	err := errors.Join(r.refusals...)
	if cause := context.Cause(r.going); cause != nil && (r.short || len(out.Unsent)+len(out.Unknown) > 0) {
		err = errors.Join(fmt.Errorf("sending ended after %d messages were accepted: %w", out.Messages, cause), err)
	}
	return *out, err
}
