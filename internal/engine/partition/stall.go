package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// stallWatch watches one assignment: its tracks, and whether events are done while some wait. Only
// the watching goroutine uses it.
type stallWatch struct {
	a        *Assignment
	tracks   []watchedTrack
	stalled  int           // how many tracks have stalled
	reported bool          // a stall that has not ended
	began    time.Duration // when that began, by Clock.Elapsed
	ending   time.Duration // when the assignment was first seen to end, likewise; 0: it is not

	done     uint64        // what the progress was
	doneAt   time.Duration // when it was first seen so, or when events began to wait, by Clock.Elapsed
	reportAt time.Duration // how long nothing must be done to be reported, again
	waitEnd  time.Duration // when waits end that were asked for before that, by Clock.Elapsed
	halted   bool          // the partition, at the last look
	open     *reading      // what was open then
	openAt   time.Duration // when that was first seen, by Clock.Elapsed
}

// watchedTrack is what the watcher has seen of a track.
type watchedTrack struct {
	*track
	changes  uint64
	began    time.Duration // when it was first seen so, by Clock.Elapsed
	reportAt time.Duration // how long it must last to be reported, again
	stalled  bool
}

// stopReportAfter is how long a stop waits before it reports what it waits for.
const stopReportAfter = 5 * time.Second

// watchStalls reports what lasts longer than StallAfter, and replaces a reader that is
// silent, until ctx ends.
func (a *Assignment) watchStalls(ctx context.Context) {
	cfg := a.Settings
	w := stallWatch{a: a, doneAt: cfg.Clock.Elapsed(), reportAt: cfg.ProgressAfter()}
	a.tracks.watchHeld(&a.Lag)
	for _, t := range append(a.tracks.delaying(), &a.tracks.held) {
		w.tracks = append(w.tracks, watchedTrack{track: t, began: cfg.Clock.Elapsed(), reportAt: cfg.StallAfter})
	}
	silence := silenceWatch{a: a}
	for cfg.Clock.Sleep(ctx, min(time.Second, cfg.StallAfter/4)) == nil {
		now := cfg.Clock.Elapsed()
		w.look(now)
		silence.look(now)
	}
}

// look compares each track, and the progress, with what they were at the last look.
func (w *stallWatch) look(now time.Duration) {
	if w.ending == 0 && w.a.Idle.Err() != nil {
		w.ending = now
	}
	for i := range w.tracks {
		t := &w.tracks[i]
		what, changes, first, events := t.load()
		if what == nil || changes != t.changes {
			t.changes, t.began, t.reportAt = changes, now, w.a.Settings.StallAfter
			if t.stalled {
				t.stalled = false
				w.stalled--
			}
			continue
		}
		took := now - t.began
		if what == ActivityRate {
			took -= time.Duration(w.a.Progress.Every.Load())
		}
		if took >= t.reportAt || !t.stalled && w.ending > 0 && min(took, now-w.ending) >= stopReportAfter {
			t.reportAt = 2 * took
			if !t.stalled {
				t.stalled = true
				w.stalled++
			}
			w.report(now, took, int(events), first, w.a.stallError(what, took, first, events))
		}
	}
	w.lookAtProgress(now)
}

// lookAtProgress reports that nothing is done, unless a track has been reported, which says why.
// The partition moves again once no track is stalled, and something is done or nothing waits.
func (w *stallWatch) lookAtProgress(now time.Duration) {
	p := &w.a.Progress
	halted, waiting, done := w.isHalted(now), w.a.eventsWait(), p.count()
	switch took := now - w.doneAt; {
	case halted: // which was reported
		if w.done, w.doneAt = done, now; !w.reported {
			w.reported, w.began = true, now
		}
	case done != w.done || waiting == 0 || w.halted:
		w.done, w.doneAt, w.reportAt = done, now, w.a.Settings.ProgressAfter()
		w.waitEnd = time.Duration(p.waitEnd.Load())
		p.asked.Store(0)
		if w.reported && w.stalled == 0 {
			w.reported = false
			w.a.Observe(driver.Observation{Kind: driver.KindResumed, Duration: now - w.began})
		}
	case took >= w.reportAt+w.allowed() && w.stalled == 0:
		w.report(now, took, 0, 0, w.a.standstillError(took, waiting))
	}
	w.halted = halted
}

// allowed returns how much longer nothing may be done, because something asks for waits.
func (w *stallWatch) allowed() time.Duration {
	p := &w.a.Progress
	return time.Duration(p.Every.Load()) + max(time.Duration(p.asked.Load()), w.waitEnd-w.doneAt)
}

// isHalted reports whether the partition is halted still.
func (w *stallWatch) isHalted(now time.Duration) bool {
	if open := w.a.reading.Load(); open != w.open {
		w.open, w.openAt = open, now
	}
	cfg, p := w.a.Settings, &w.a.Progress
	h := p.halt.Load()
	if h != nil && (p.count() > h.done || w.open != nil && now-w.openAt > cfg.SilentAfter+haltedEvery) {
		p.halt.CompareAndSwap(h, nil)
	}
	return p.halt.Load() != nil
}

func (w *stallWatch) report(now, took time.Duration, events int, first int64, err error) {
	w.reportAt = 2 * (now - w.doneAt)
	if !w.reported {
		w.reported, w.began = true, now-took
	}
	o := driver.Observation{Kind: driver.KindStalled, Duration: now - w.began, Events: events, Err: err}
	if events > 0 {
		o.To = driver.Position{Sequence: first}
	}
	w.a.Observe(o)
}

// standstillError says that nothing is done, for how long, and why as far as is known.
func (a *Assignment) standstillError(took time.Duration, waiting int64) error {
	var b strings.Builder
	fmt.Fprintf(&b, "no event done for %v", took.Truncate(time.Second))
	if waiting > 0 {
		fmt.Fprintf(&b, " while %d wait", waiting)
	}
	if state := a.memoryState(); state != "" {
		fmt.Fprintf(&b, "; %s", state)
	}
	failure := a.Progress.failure.Load()
	for _, t := range a.tracks.delaying() {
		if what, _, _, _ := t.load(); what != nil {
			fmt.Fprintf(&b, "; now %s", what.what)
			if failure == nil {
				fmt.Fprintf(&b, ": %s", what.check)
			}
			break
		}
	}
	if failure != nil {
		return fmt.Errorf("%s; last failure: %w", b.String(), *failure)
	}
	return errors.New(b.String())
}

// stallError says what has not happened, for how long, and what to look for.
func (a *Assignment) stallError(what *activity, took time.Duration, first, events int64) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s for %v", what.what, took.Truncate(time.Second))
	switch {
	case events == 1:
		fmt.Fprintf(&b, ": event %d", first)
	case events > 1:
		fmt.Fprintf(&b, ": batch of %d events from %d", events, first)
	}
	switch {
	case a.Work.Err() != nil && !errors.Is(context.Cause(a.Work), driver.ErrStopped):
		fmt.Fprintf(&b, "; its context has ended (%v)", context.Cause(a.Work))
	case a.Work.Err() != nil:
		b.WriteString("; its context has ended, and the consumer waits for it to stop")
	case a.Idle.Err() != nil:
		b.WriteString("; the consumer waits for it to stop")
	}
	fmt.Fprintf(&b, "; %s", what.check)
	return errors.New(b.String())
}
