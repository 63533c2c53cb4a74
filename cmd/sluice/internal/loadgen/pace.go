package loadgen

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/clock"
)

// pace keeps to a rate: record n is due n/rate seconds after the first. It is
// safe for concurrent use.
type pace struct {
	every time.Duration // 0: no limit
	mu    sync.Mutex
	next  time.Time
}

func newPace(rate float64) *pace {
	if rate <= 0 {
		return &pace{}
	}
	return &pace{every: time.Duration(float64(time.Second) / rate)}
}

// take returns when the next record is due.
func (p *pace) take() time.Time {
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

// slack is how far ahead of its time a record may go, so that high rates don't
// sleep for each.
const slack = time.Millisecond

// wait waits until the next record is due.
func (p *pace) wait(ctx context.Context) error {
	if p.every == 0 {
		return nil
	}
	ahead := time.Until(p.take())
	if ahead <= slack {
		return ctx.Err()
	}
	return clock.Sleep(ctx, ahead)
}
