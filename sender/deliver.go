package sender

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-go/sluice/internal/clock"
)

// serve sends a lane's parcels until there are no more.
func (r *run) serve(l *lane) {
	for p := range l.in {
		r.deliver(p)
		<-r.tokens
	}
}

// deliver sends a parcel until its fate is known, or there is no use.
func (r *run) deliver(p *parcel) {
	pause := r.pause()
	for attempt := 1; r.going.Err() == nil; attempt++ {
		if attempt > 1 {
			r.count(func(f *Stats) { f.Retries++ })
			p.repeated = p.repeated || p.lost
		}
		outcome, err := r.send(p)
		switch outcome {
		case OutcomeAccepted:
			r.settle(p, OutcomeAccepted)
			return
		case OutcomeTooLarge:
			r.divide(p, err)
			return
		case OutcomeUnknown:
			p.lost = true
		case OutcomeBusy:
		default:
			r.fail(p, err)
			return
		}
		if attempt >= r.s.cfg.Attempts || p.lost && r.s.cfg.NoDuplicates {
			r.fail(p, err)
			return
		}
		pause.wait(r.going)
	}
	r.settle(p, OutcomeBusy)
}

func (r *run) send(p *parcel) (Outcome, error) {
	ctx, cancel := context.WithTimeout(r.sending, r.s.cfg.Timeout)
	defer cancel()
	return r.s.transport.Send(ctx, p.batch)
}

// divide sends a parcel that was too large in pieces.
func (r *run) divide(p *parcel, why error) {
	r.count(func(f *Stats) { f.TooLarge++ })
	splitter, ok := r.s.transport.(Splitter)
	if !ok {
		r.fail(p, why)
		return
	}
	pieces := splitter.Split(p.batch)
	if len(pieces) == 0 {
		r.reject(&RejectedError{Index: p.indices[0].First, Size: p.batch.Bytes(), Err: fmt.Errorf("%w: %w", ErrTooLarge, why)})
		return
	}
	for _, batch := range pieces {
		piece := &parcel{lane: p.lane, batch: batch, lost: p.lost, repeated: p.repeated}
		piece.indices, p.indices = cut(p.indices, int64(batch.Len()))
		r.deliver(piece)
	}
}

// cut takes the first n indices off a list.
func cut(list []IndexRange, n int64) (first, others []IndexRange) {
	for i, r := range list {
		size := r.Last - r.First + 1
		if n < size {
			first = append(first, list[:i]...)
			if n > 0 {
				first = append(first, IndexRange{First: r.First, Last: r.First + n - 1})
			}
			others = append(others, IndexRange{First: r.First + n, Last: r.Last})
			return first, append(others, list[i+1:]...)
		}
		n -= size
	}
	return list, nil
}

// fail ends the run because of a parcel.
func (r *run) fail(p *parcel, err error) {
	r.stop(fmt.Errorf("send %d messages, number %d and on, to %s: %w", total(p.indices), p.indices[0].First, p.lane.name(), err))
	r.settle(p, OutcomeBusy)
}

// settle notes a parcel's fate: Accepted, or that it wasn't for all that is
// known.
func (r *run) settle(p *parcel, outcome Outcome) {
	r.mu.Lock()
	switch {
	case outcome == OutcomeAccepted:
	case p.lost:
		r.result.Unknown = append(r.result.Unknown, p.indices...)
	default:
		r.result.Unsent = append(r.result.Unsent, p.indices...)
	}
	if p.repeated {
		r.result.PossibleDuplicates = append(r.result.PossibleDuplicates, p.indices...)
	}
	r.mu.Unlock()
	if outcome == OutcomeAccepted {
		r.count(func(f *Stats) {
			f.Messages += total(p.indices)
			f.Batches++
			f.Bytes += int64(p.batch.Bytes())
		})
	}
}

// count adds to the figures of the run and of the sender.
func (r *run) count(add func(*Stats)) {
	var f Stats
	add(&f)
	r.mu.Lock()
	add(&r.result.Stats)
	r.mu.Unlock()
	s := r.s
	s.messages.Add(f.Messages)
	s.batches.Add(f.Batches)
	s.bytes.Add(f.Bytes)
	s.retries.Add(f.Retries)
	s.tooLarge.Add(f.TooLarge)
}

// pause is the waits between attempts: each twice the one before, varied at
// random by a quarter so that many senders don't come back at once.
type pause struct{ last, min, max time.Duration }

func (r *run) pause() *pause { return &pause{min: r.s.cfg.RetryMin, max: r.s.cfg.RetryMax} }

// wait returns false if ctx ends before.
func (p *pause) wait(ctx context.Context) bool {
	p.last = min(max(p.min, 2*p.last), p.max)
	return clock.Sleep(ctx, p.last-p.last/8+time.Duration(rand.Int64N(int64(p.last/4)+1))) == nil
}
