package sender

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// sinkPartition sends a Sink's messages for one partition, one batch after the
// other, on a goroutine that runs while there are messages.
type sinkPartition struct {
	sink      *Sink
	partition string
	full      chan struct{} // signals that the queue may fill a batch

	// The sink's mu guards the fields below.
	queue   []*pending
	fill    int // messages in the last batch that was full; 0: there was none
	running bool
}

// add queues a message. The caller holds the sink's mu.
func (p *sinkPartition) add(m *pending) {
	p.queue = append(p.queue, m)
	switch {
	case !p.running:
		p.running = true
		p.sink.working.Go(p.work)
	case len(p.queue) == p.fill:
		select {
		case p.full <- struct{}{}:
		default:
		}
	}
}

func (p *sinkPartition) work() {
	s := p.sink
	for p.awaitBatch() {
		select {
		case s.tokens <- struct{}{}:
			p.sendNext()
			<-s.tokens
		case <-s.sending.Done():
			s.complete(driver.Outage(ErrClosed), p.takeQueue()...)
		}
	}
}

// awaitBatch waits until a batch is due. It returns false, and the goroutine must
// end, if there is nothing to send.
func (p *sinkPartition) awaitBatch() bool {
	s := p.sink
	for {
		s.mu.Lock()
		if len(p.queue) == 0 {
			p.running = false
			s.mu.Unlock()
			return false
		}
		wait := s.cfg.FlushAfter - time.Since(p.queue[0].queued)
		if s.closed || p.fill > 0 && len(p.queue) >= p.fill {
			wait = 0
		}
		s.mu.Unlock()
		if wait <= 0 {
			return true
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-p.full:
		case <-s.closing:
		}
		timer.Stop()
	}
}

func (p *sinkPartition) takeQueue() []*pending {
	p.sink.mu.Lock()
	defer p.sink.mu.Unlock()
	queue := p.queue
	p.queue = nil
	return queue
}

// sendNext sends one batch from the queue.
func (p *sinkPartition) sendNext() {
	s := p.sink
	if s.sending.Err() != nil {
		s.complete(driver.Outage(ErrClosed), p.takeQueue()...)
		return
	}
	b, err := p.open()
	queue := p.takeQueue()
	if err != nil {
		s.complete(driver.Outage(err), queue...)
		return
	}
	packed, left := p.pack(b, queue)
	if len(left) > 0 {
		s.mu.Lock()
		p.queue = append(left, p.queue...)
		p.fill = len(packed)
		s.mu.Unlock()
	}
	if most := p.send(b, packed); most > 0 {
		p.resend(packed, most)
	}
}

// resend sends messages whose batch was refused, in new batches of up to most
// messages. It completes all of them.
func (p *sinkPartition) resend(messages []*pending, most int) {
	for len(messages) > 0 {
		b, err := p.open()
		if err != nil {
			p.sink.complete(driver.Outage(err), messages...)
			return
		}
		n := min(most, len(messages))
		packed, left := p.pack(b, messages[:n])
		if fewer := p.send(b, packed); fewer > 0 {
			most, left = fewer, append(packed, left...)
		}
		if messages = messages[n:]; len(left) > 0 {
			messages = slices.Concat(left, messages)
		}
	}
}

// open begins a batch.
func (p *sinkPartition) open() (*packedBatch, error) {
	ctx, cancel := context.WithTimeout(p.sink.sending, p.sink.cfg.Timeout)
	defer cancel()
	b, err := p.sink.packer.newBatch(ctx, p.partition)
	if err != nil {
		return nil, fmt.Errorf("begin a batch for partition %s: %w", p.partition, err)
	}
	return b, nil
}

// pack adds messages to an empty batch until one doesn't fit. It returns those
// that are in the batch and those that are left, and completes those that can't
// be sent or whose contexts have ended.
func (p *sinkPartition) pack(b *packedBatch, messages []*pending) (packed, left []*pending) {
	for i, m := range messages {
		err := m.ctx.Err()
		if err == nil {
			if err = b.Add(m.message); err == nil {
				packed = append(packed, m)
				continue
			}
			if errors.Is(err, ErrTooLarge) && b.Len() > 0 {
				return packed, messages[i:]
			}
			err = driver.Reject(fmt.Errorf("message of %d bytes: %w", sizeIn(b.Batch, m.message), err))
		}
		p.sink.complete(err, m)
	}
	return packed, nil
}

// send sends a batch once and completes its messages by the outcome. If they are
// to be sent again in smaller batches instead, it returns how many messages such
// a batch may have: one if the service refused the batch for its content, so that
// only the messages that the service refuses are rejected.
func (p *sinkPartition) send(b *packedBatch, packed []*pending) (most int) {
	if len(packed) == 0 {
		return 0
	}
	s := p.sink
	ctx, cancel := context.WithTimeout(s.sending, s.cfg.Timeout)
	defer cancel()
	began := time.Now()
	outcome, err := s.packer.send(ctx, b)
	if s.cfg.OnSent != nil {
		s.cfg.OnSent(Sent{len(packed), time.Since(began), err})
	}
	if err != nil {
		err = fmt.Errorf("send to partition %s: %w", p.partition, err)
	}
	switch outcome {
	case OutcomeAccepted:
		s.complete(nil, packed...)
	case OutcomeBusy:
		s.complete(driver.RetryAfter(err, 0), packed...)
	case OutcomeTooLarge:
		if len(packed) > 1 {
			return b.fewer()
		}
		s.complete(driver.Reject(fmt.Errorf("message of %d bytes: %w: %w", sizeIn(b.Batch, packed[0].message), ErrTooLarge, err)), packed...)
	case OutcomeRejected:
		if len(packed) > 1 {
			return 1
		}
		s.complete(driver.Reject(err), packed...)
	default:
		s.complete(driver.Outage(err), packed...)
	}
	return 0
}
