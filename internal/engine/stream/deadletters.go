package stream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// deadLetterWriter holds failed events until they are stored as dead letters, and
// knows which events and which held keys are. It is safe for concurrent use.
type deadLetterWriter struct {
	hold bool // KeyHold

	mu      sync.Mutex
	waiting []*inFlightEvent // to be stored
	failing map[string]int   // how many events of a key are failing or waiting, under KeyHold
	held    map[string]bool  // keys of stored dead letters, under KeyHold
	stored  []int64          // all events of this incarnation that are dead letters, ascending
}

func (d *deadLetterWriter) init(hold bool) {
	d.hold, d.failing, d.held = hold, map[string]int{}, map[string]bool{}
}

// load sets the events that earlier assignments have stored.
func (d *deadLetterWriter) load(stored []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stored = stored
}

// all returns the events that are dead letters, ascending.
func (d *deadLetterWriter) all() []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.stored)
}

// expect holds an event's key before another record of it can be submitted.
func (d *deadLetterWriter) expect(e *inFlightEvent) {
	if !d.hold || e.redrive != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing[storedKey(e.event.Key)]++
}

// isHeld reports whether a partition key is held back.
func (d *deadLetterWriter) isHeld(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	key = storedKey(key)
	return d.held[key] || d.failing[key] > 0
}

// holding reports whether any stored dead letter holds a key back.
func (d *deadLetterWriter) holding() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.held) > 0
}

// setHeld replaces the keys of stored dead letters.
func (d *deadLetterWriter) setHeld(keys []driver.HeldKey) {
	held := make(map[string]bool, len(keys))
	for _, k := range keys {
		held[storedKey(k.Key)] = true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = held
}

// put takes a failed event whose records are finished.
func (d *deadLetterWriter) put(e *inFlightEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = append(d.waiting, e)
}

// len returns how many events are to be stored.
func (d *deadLetterWriter) len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting)
}

// next returns up to n events to store. They stay until added is called.
func (d *deadLetterWriter) next(n int) []*inFlightEvent {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting[:min(n, len(d.waiting))]
}

// added is called when the events that next returned are stored.
func (d *deadLetterWriter) added(events []*inFlightEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = d.waiting[len(events):]
	if len(d.waiting) == 0 {
		d.waiting = nil
	}
	for _, e := range events {
		if i, found := slices.BinarySearch(d.stored, e.event.Sequence); !found {
			d.stored = slices.Insert(d.stored, i, e.event.Sequence)
		}
		if d.hold {
			key := storedKey(e.event.Key)
			d.held[key] = true
			if d.failing[key]--; d.failing[key] == 0 {
				delete(d.failing, key)
			}
		}
	}
}

// removed is called when redriven events of this incarnation are dead letters no
// more.
func (d *deadLetterWriter) removed(sequence int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i, found := slices.BinarySearch(d.stored, sequence); found {
		d.stored = slices.Delete(d.stored, i, i+1)
	}
}

// storeBatch is how many dead letters are stored in one request.
const storeBatch = 1000

// storeDeadLetters stores dead letters, so that the checkpoint may pass their
// events.
func (w *worker[R]) storeDeadLetters(ctx context.Context) {
	for {
		events := w.deadLetters.next(storeBatch)
		if len(events) == 0 {
			return
		}
		dead := make([]driver.DeadLetter, len(events))
		for i, e := range events {
			dead[i] = w.a.NewDeadLetter(e.event, e.failure, e.attempts)
		}
		rctx, cancel := w.storeRequestCtx(ctx)
		err := w.store.Park(rctx, dead)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				w.a.Failed(fmt.Errorf("store dead letters: %w", err))
			}
			return
		}
		w.deadLetters.added(events)
		for i, e := range events {
			event := e.event
			w.complete(e)
			w.a.Observe(driver.Observation{Kind: driver.KindParked, To: event.Position(), Event: event, Attempt: e.attempts, RetriedIn: w.a.RetriedIn(&dead[i]), Err: e.failure})
		}
		partition.Wake(w.wakeup) // there is room
	}
}

// storedKey returns a partition key as every store keeps it. Keys that are no texts may become one,
// so that one holds the events of the other too.
func storedKey(key string) string {
	const instead = "\uFFFD"
	return strings.ReplaceAll(strings.ToValidUTF8(key, instead), "\x00", instead)
}
