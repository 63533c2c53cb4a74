package eventhub

import (
	"context"
	"strings"
	"sync"
	"time"
)

// A namespace answers 50 management requests a second, from all its clients together, and
// refuses further ones. All sources of a process that read one namespace share a pace below
// that, so that partitions, watchers, dashboards and autoscalers wait for each other instead
// of being refused.
const (
	paceEvery = time.Second / 40 // between two requests
	paceBurst = 8                // requests that may be sent at once
	// refusedFor is how long no request is sent after the namespace has refused one.
	refusedFor = time.Second
)

// pace spaces the management requests of a process to one namespace.
type pace struct {
	// turn is held by the request that waits for its time. The others queue for it, so that
	// one whose caller gives up takes no time from those behind it.
	turn chan struct{}

	mu   sync.Mutex
	next time.Time // when the next request may be sent if the burst is used up
}

var (
	pacesMu sync.Mutex
	paces   = map[string]*pace{} // by host and port; few, and never removed
)

// paceOf returns the pace of a namespace.
func paceOf(host string) *pace {
	pacesMu.Lock()
	defer pacesMu.Unlock()
	host = strings.ToLower(host)
	if paces[host] == nil {
		paces[host] = newPace()
	}
	return paces[host]
}

func newPace() *pace { return &pace{turn: make(chan struct{}, 1)} }

// reserve returns how long the next request has to wait.
func (p *pace) reserve(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if earliest := now.Add(-paceBurst * paceEvery); p.next.Before(earliest) {
		p.next = earliest
	}
	p.next = p.next.Add(paceEvery)
	return p.next.Sub(now)
}

// giveBack undoes the last reserve.
func (p *pace) giveBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = p.next.Add(-paceEvery)
}

// refused keeps all requests back for a time: the namespace has refused one.
func (p *pace) refused(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := now.Add(refusedFor); p.next.Before(until) {
		p.next = until
	}
}

// wait waits until a request may be sent.
func (p *pace) wait(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t := time.NewTimer(p.reserve(time.Now()))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		p.giveBack()
		return ctx.Err()
	}
}

// waiting holds the requests that wait for their turn, by what they ask. Another caller who
// asks the same takes the answer of the one that waits, instead of sending a request of its
// own: it is sent after the caller has asked, so its answer is as new.
type waiting struct {
	mu    sync.Mutex
	calls map[string]*call
}

// call is a request that several callers wait for.
type call struct {
	done  chan struct{}
	value any
	err   error
}

// join returns the request that waits for its turn, or a new one, which the caller has to
// send.
func (w *waiting) join(what string) (c *call, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c = w.calls[what]; c != nil {
		return c, false
	}
	if w.calls == nil {
		w.calls = map[string]*call{}
	}
	c = &call{done: make(chan struct{})}
	w.calls[what] = c
	return c, true
}

// sent ends the wait of a request: nobody joins it any more.
func (w *waiting) sent(what string, c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls[what] == c {
		delete(w.calls, what)
	}
}
