package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Parts of the world that only handlers, mappings and sinks use.
const (
	api         = "API"         // they report an outage of it as one
	environment = "environment" // without it every event fails
)

var (
	errAPI         = errors.New("the API is down")
	errEnvironment = errors.New("the environment is down")
	errTimeLimit   = fmt.Errorf("%w: canceling statement due to statement timeout", driver.ErrTimeLimit)
)

// usable returns the error of a part that is down.
func (p *process) usable(e *sluice.Event) error {
	switch {
	case p.w.isDown(api):
		if p.w.coin(0.5, "api "+recordName(e)) {
			return driver.Outage(errAPI)
		}
		return driver.RetryAfter(errAPI, 2*time.Second)
	case p.w.isDown(environment):
		return errEnvironment
	}
	return nil
}

func (w *world) isDown(part string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.outages[part])
}

// dawdle makes the caller hang for a long time, seldom, and until ctx ends at most.
func (p *process) dawdle(ctx context.Context, partition, key string) error {
	if !p.w.troubled() || !p.w.coin(0.01, "hang "+key) {
		return nil
	}
	if strings.HasPrefix(key, "write ") {
		p.w.count("sink that does not answer")
	} else {
		p.w.count("handler that hangs")
	}
	span := time.Duration(40+5*(len(key)%16)) * time.Second
	p.w.mu.Lock()
	p.w.trouble(p, partition, time.Now().Add(span))
	p.w.mu.Unlock()
	hanging, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.w.calm, cancel)()
	_ = p.w.sleep(hanging, p, span)
	return ctx.Err()
}

// leaveGoroutine ends the goroutine of a handler.
func (p *process) leaveGoroutine() {
	p.w.count("handler that exits its goroutine")
	runtime.Goexit()
}

// overload notes that a transaction of several events with a heavy one among them runs
// into the database's time limit at its next statement.
func (p *process) overload(b sluice.Batch) {
	heavy := slices.ContainsFunc(b.Events, func(e *sluice.Event) bool { return kindOf(e) == "heavy" })
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.overloaded[b.Partition] = heavy && len(b.Events) > 1
}

// runsOut reports whether a transaction runs into the time limit.
func (w *world) runsOut(lease sluice.Lease) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.holderOf(lease)
	return p != nil && p.overloaded[lease.Partition]
}

// fail makes every event fail for a time. A backlog makes sure that there are others to try.
func (w *world) fail(span time.Duration) {
	w.takeDown(environment, span)
	w.sendEvents(func(string) int { return 30 })
}

// takeDown takes a part of the world down for a time.
func (w *world) takeDown(part string, span time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outages[part] = time.Now().Add(span)
	w.trouble(nil, "", time.Now().Add(span))
	w.windows[part]++
	w.note("%s down for %v", part, span)
	w.fired["outage of the "+part]++
}

// conviction is the events of a partition that became dead letters because of one outage of the
// environment, under one assignment.
type conviction struct {
	events map[eventID]bool
	began  time.Time
}

// convicted notes an event that became a dead letter because of an outage of the environment, and
// records a violation if they are too many. The engine may convict some when there is no other
// event to try; AtLeastOnce also while the partition is held, one at a time, see heldAttempts
// there. The lock is held.
func (w *world) convicted(id eventID, outage string) {
	c, ok := w.blame.convictions[outage]
	if !ok {
		c = conviction{map[eventID]bool{}, time.Now()}
		w.blame.convictions[outage] = c
	}
	c.events[id] = true
	most := mostConvicted
	if w.cfg.Stream != nil {
		most += int(time.Since(c.began) / heldFor)
	}
	if n := len(c.events); n > most {
		w.stale = append(w.stale, fmt.Sprintf("event %v is the %d. dead letter of its partition because of one outage of the environment, more than %d", id, n, most))
	}
}

// heldFor is the shortest time that the attempts at an event take while AtLeastOnce holds its
// partition.
const heldFor = 15 * time.Second

// mostConvicted is how many events of a partition may fail in a row before the partition
// waits.
const mostConvicted = 20
