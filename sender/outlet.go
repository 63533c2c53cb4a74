package sender

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
)

// outlet sends what a sink has for one partition, one batch after the other, on
// a goroutine that lives while there is something.
type outlet struct {
	sink      *Sink
	partition string
	full      chan struct{} // a note that what waits may fill a batch

	// The sink's mu guards these.
	queue   []*packet
	fill    int // messages of the last batch that was full; 0: there was none
	working bool
}

// push queues a message. The caller holds the sink's mu.
func (o *outlet) push(p *packet) {
	o.queue = append(o.queue, p)
	switch {
	case !o.working:
		o.working = true
		o.sink.working.Go(o.work)
	case len(o.queue) == o.fill:
		select {
		case o.full <- struct{}{}:
		default:
		}
	}
}

func (o *outlet) work() {
	s := o.sink
	for o.await() {
		select {
		case s.tokens <- struct{}{}:
			o.ship()
			<-s.tokens
		case <-s.sending.Done():
			s.finish(sluice.Outage(ErrClosed), o.take()...)
		}
	}
}

// await waits until a batch is due. It returns false, and the goroutine must
// end, if there is nothing to send.
func (o *outlet) await() bool {
	s := o.sink
	for {
		s.mu.Lock()
		if len(o.queue) == 0 {
			o.working = false
			s.mu.Unlock()
			return false
		}
		wait := s.cfg.FlushAfter - time.Since(o.queue[0].since)
		if s.closed || o.fill > 0 && len(o.queue) >= o.fill {
			wait = 0
		}
		s.mu.Unlock()
		if wait <= 0 {
			return true
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-o.full:
		case <-s.closing:
		}
		timer.Stop()
	}
}

// take takes all that waits.
func (o *outlet) take() []*packet {
	o.sink.mu.Lock()
	defer o.sink.mu.Unlock()
	queue := o.queue
	o.queue = nil
	return queue
}

// ship sends one batch of what waits.
func (o *outlet) ship() {
	s := o.sink
	if s.sending.Err() != nil {
		s.finish(sluice.Outage(ErrClosed), o.take()...)
		return
	}
	batch, err := o.open()
	waiting := o.take()
	if err != nil {
		s.finish(sluice.Outage(err), waiting...)
		return
	}
	packed, rest := o.pack(batch, waiting)
	if len(rest) > 0 {
		s.mu.Lock()
		o.queue = append(rest, o.queue...)
		o.fill = len(packed)
		s.mu.Unlock()
	}
	if len(packed) > 0 {
		o.send(batch, packed)
	}
}

func (o *outlet) open() (Batch, error) {
	ctx, cancel := context.WithTimeout(o.sink.sending, o.sink.cfg.Timeout)
	defer cancel()
	batch, err := o.sink.transport.NewBatch(ctx, o.partition)
	if err != nil {
		return nil, fmt.Errorf("begin a batch for partition %s: %w", o.partition, err)
	}
	return batch, nil
}

// pack puts messages into an empty batch until one doesn't fit, and returns
// those that are in it and those that are left. It completes those that can't be
// sent.
func (o *outlet) pack(batch Batch, waiting []*packet) (packed, rest []*packet) {
	for i, p := range waiting {
		err := p.ctx.Err()
		if err == nil {
			if err = batch.Add(p.message); err == nil {
				packed = append(packed, p)
				continue
			}
			if errors.Is(err, ErrTooLarge) && batch.Len() > 0 {
				return packed, waiting[i:]
			}
			err = sluice.Reject(fmt.Errorf("message of %d bytes: %w", sizeIn(batch, p.message), err))
		}
		o.sink.finish(err, p)
	}
	return packed, nil
}

// send sends a batch once, and completes its messages by what became of it.
func (o *outlet) send(batch Batch, packed []*packet) {
	s := o.sink
	ctx, cancel := context.WithTimeout(s.sending, s.cfg.Timeout)
	defer cancel()
	outcome, err := s.transport.Send(ctx, batch)
	if err != nil {
		err = fmt.Errorf("send to partition %s: %w", o.partition, err)
	}
	switch {
	case outcome == OutcomeAccepted:
		s.finish(nil, packed...)
	case outcome == OutcomeBusy:
		s.finish(sluice.RetryAfter(err, 0), packed...)
	case outcome == OutcomeTooLarge && len(packed) > 1:
		o.divide(batch, packed)
	case outcome == OutcomeTooLarge:
		s.finish(sluice.Reject(fmt.Errorf("message of %d bytes: %w: %w", sizeIn(batch, packed[0].message), ErrTooLarge, err)), packed...)
	case outcome == OutcomeRejected && len(packed) > 1:
		o.single(packed)
	case outcome == OutcomeRejected:
		s.finish(sluice.Reject(err), packed...)
	default:
		s.finish(sluice.Outage(err), packed...)
	}
}

// divide sends a batch that was too large in pieces: where the transport knows
// none, in halves.
func (o *outlet) divide(batch Batch, packed []*packet) {
	splitter, ok := o.sink.transport.(Splitter)
	if !ok {
		half := len(packed) / 2
		if err := o.resend(packed[:half]); err != nil {
			o.sink.finish(sluice.Outage(err), packed[half:]...)
			return
		}
		_ = o.resend(packed[half:]) // which completes them whatever happens
		return
	}
	for _, piece := range splitter.Split(batch) {
		mine := packed[:piece.Len()]
		packed = packed[piece.Len():]
		if slices.ContainsFunc(mine, func(p *packet) bool { return p.ctx.Err() != nil }) {
			_ = o.resend(mine) // those that may still be sent
		} else {
			o.send(piece, mine)
		}
	}
}

// single sends the messages of a batch that was refused alone, for the service
// to tell which it refuses.
func (o *outlet) single(packed []*packet) {
	for i := range packed {
		if err := o.resend(packed[i : i+1]); err != nil {
			o.sink.finish(sluice.Outage(err), packed[i+1:]...)
			return
		}
	}
}

// resend packs messages anew and sends them, but for those whose contexts have
// ended. It completes all; its error is that no batch could be begun.
func (o *outlet) resend(left []*packet) error {
	for len(left) > 0 {
		batch, err := o.open()
		if err != nil {
			o.sink.finish(sluice.Outage(err), left...)
			return err
		}
		var packed []*packet
		if packed, left = o.pack(batch, left); len(packed) > 0 {
			o.send(batch, packed)
		}
	}
	return nil
}
