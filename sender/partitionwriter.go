package sender

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/internal/clock"
)

// partitionWriter sends the batches of a run for one partition, one after the
// other.
type partitionWriter struct {
	run       *run
	partition string
	in        chan *batch
}

// work sends batches until there are no more.
func (w *partitionWriter) work() {
	for b := range w.in {
		messages := b.messages
		w.deliver(b)
		w.run.s.spare.put(messages)
		<-w.run.tokens
	}
}

// deliver sends a batch until it is settled. If the service refuses it as too
// large, its messages are packed again and sent in smaller batches.
func (w *partitionWriter) deliver(b *batch) {
	left := *b // the messages that are not settled
	for most := b.Len(); ; {
		switch refusal := w.attempt(b); {
		case refusal == nil:
			left.messages = left.messages[b.Len():]
		case b.Len() == 1:
			w.run.reject(&RejectedError{Index: left.messages[0].index, Size: b.Bytes(), Body: len(left.messages[0].body), Err: refusal})
			left.messages = left.messages[1:]
		default:
			most, left.lost, left.duplicate = b.fewer(), b.lost, b.duplicate
		}
		if b = w.repack(&left, most); b == nil {
			return
		}
	}
}

// repack packs the first messages of left into a new batch, up to most of them.
// It returns nil if there are none.
func (w *partitionWriter) repack(left *batch, most int) *batch {
	r := w.run
	for len(left.messages) > 0 {
		b, err := r.open(w)
		if err != nil {
			r.stop(err)
			r.settle(left, false)
			return nil
		}
		for n := 0; n < min(most, len(left.messages)) && err == nil; n++ {
			err = b.Add(r.message(&left.messages[n]))
		}
		if n := b.Len(); n > 0 {
			b.messages, b.lost, b.duplicate = left.messages[:n], left.lost, left.duplicate
			return b
		}
		r.rejectMessage(left.messages[0].index, b, r.message(&left.messages[0]), err)
		left.messages = left.messages[1:]
	}
	return nil
}

// attempt sends a batch, with retries, until it is settled or the run ends. It
// returns an error that wraps [ErrTooLarge] if the service refuses the batch as too
// large: then it isn't settled.
func (w *partitionWriter) attempt(b *batch) (refusal error) {
	r := w.run
	pause := r.backoff()
	for attempt := 1; r.sending.Err() == nil; attempt++ {
		if attempt > 1 {
			r.count(func(s *Stats) { s.Retries++ })
			b.duplicate = b.duplicate || b.lost
		}
		outcome, err := w.send(b)
		switch outcome {
		case OutcomeAccepted:
			r.settle(b, true)
			return nil
		case OutcomeTooLarge:
			r.count(func(s *Stats) { s.TooLarge++ })
			return fmt.Errorf("%w: %w", ErrTooLarge, err)
		case OutcomeUnknown:
			b.lost = true
		}
		mayRetry := outcome == OutcomeUnknown || outcome == OutcomeBusy
		if !mayRetry || attempt >= r.s.cfg.Attempts || b.lost && r.s.cfg.NoDuplicates {
			r.stop(fmt.Errorf("send %d messages, the first with index %d, to partition %s: %w", b.Len(), b.messages[0].index, w.partition, err))
			break
		}
		_ = clock.Sleep(r.sending, pause.Next()) // the loop ends with r.sending
	}
	r.settle(b, false)
	return nil
}

// send sends a batch once.
func (w *partitionWriter) send(b *batch) (Outcome, error) {
	ctx, cancel := context.WithTimeout(w.run.inFlight, w.run.s.cfg.Timeout)
	defer cancel()
	return w.run.s.packer.send(ctx, b.packedBatch)
}

// retry calls do until it succeeds, fails permanently, or has been called
// Config.Attempts times.
func (r *run) retry(do func(context.Context) error) error {
	pause := r.backoff()
	for attempt := 1; ; attempt++ {
		ctx, cancel := context.WithTimeout(r.sending, r.s.cfg.Timeout)
		err := do(ctx)
		cancel()
		if err == nil || errors.Is(err, ErrPermanent) || attempt >= r.s.cfg.Attempts {
			return err
		}
		if clock.Sleep(r.sending, pause.Next()) != nil {
			return context.Cause(r.sending)
		}
	}
}

func (r *run) backoff() *clock.Backoff {
	return &clock.Backoff{Min: r.s.cfg.RetryMin, Max: r.s.cfg.RetryMax}
}
