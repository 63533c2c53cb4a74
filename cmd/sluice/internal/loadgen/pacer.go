package loadgen

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/clock"
)

// maxRate is the highest rate of a [Pacer], per second.
const maxRate = 1e7

// Pacer keeps to a rate: item n is due n/rate seconds after the first. It is safe for concurrent
// use.
type Pacer struct {
	every time.Duration // 0: no limit
	mu    sync.Mutex
	next  time.Time
}

// NewPacer makes a pacer of rate items per second; 0 means no limit.
func NewPacer(rate float64) (*Pacer, error) {
	switch {
	case rate < 0 || rate > maxRate:
		return nil, fmt.Errorf("rate of %v per second: must be 0 to %d", rate, int(maxRate))
	case rate == 0:
		return &Pacer{}, nil
	}
	return &Pacer{every: time.Duration(float64(time.Second) / rate)}, nil
}

// take returns when the next item is due.
func (p *Pacer) take() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.next.Before(now.Add(-time.Second)) {
		p.next = now // what was missed while the input paused is not caught up
	}
	due := p.next
	p.next = due.Add(p.every)
	return due
}

// slack is how early an item may go, so that a high rate does not need a sleep for each item.
const slack = time.Millisecond

// Wait waits until the next item is due, and returns ctx's error if that ends first.
func (p *Pacer) Wait(ctx context.Context) error {
	if p.every == 0 {
		return nil
	}
	ahead := time.Until(p.take())
	if ahead <= slack {
		return ctx.Err()
	}
	return clock.Sleep(ctx, ahead)
}
