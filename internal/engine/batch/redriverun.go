package batch

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
)

// Dead letters are redriven in runs, a step each. The first run is of one; each that succeeds in a
// short time lets the next have twice as many. A run that fails is tried again with fewer, down to
// one, which is judged by itself.

// redriveNext redrives the first of the dead letters that are due, together with those after it
// that fit. n is how many of them are done with. If it returns errReclaimed, the n first ones, or
// the first, wait for a later round.
func (w *worker[Tx]) redriveNext(due []driver.DeadLetter, mayRead bool) (n int, err error) {
	p := &w.redrives
	elapsed := w.a.Settings.Clock.Elapsed
	began := elapsed()
	run := w.redriveRun(due, mayRead)
	events, err := w.eventsOf(run)
	if err != nil {
		return 0, err
	}
	run = run[:max(len(events), 1)]
	if len(run) == 1 {
		p.alone = max(p.alone-1, 0)
		before := w.redriven
		var read *driver.Event
		if !due[0].HasBody && len(events) == 1 {
			read = events[0]
		}
		if err = w.redriveOne(&due[0], read); w.redriven > before {
			p.pace(1, elapsed()-began)
		}
		return 1, err
	}
	failure, err := w.redriveTogether(run, events)
	switch {
	case errors.Is(err, errReclaimed):
		p.together = len(run) / 2 // it may have been too much for a time limit
		return len(run), err
	case err != nil:
		return 0, err
	case failure != nil:
		p.together = w.splitRun(failure, run)
		return 0, nil
	}
	p.pace(len(run), elapsed()-began)
	return len(run), nil
}

// pace sets how many the next run may have, after one of n has succeeded.
func (p *redrivePace) pace(n int, took time.Duration) {
	switch {
	case took > engine.RedriveFor/2:
		p.together = max(n/2, 1)
	case took <= engine.RedriveFor/4:
		p.together = max(p.together, min(2*n, engine.RedrivePage))
	}
}

// redriveRun returns the dead letters at the front that are redriven in one step: of one
// incarnation, not too many and not too large. A dead letter that may have ended the process is
// alone, so that its record names it.
func (w *worker[Tx]) redriveRun(due []driver.DeadLetter, mayRead bool) []driver.DeadLetter {
	p := &w.redrives
	if w.record.known.DeadLetter != 0 && w.record.known.Unreturned > 0 {
		p.alone = engine.RedrivePage
	}
	most := min(max(p.together, 1), w.a.Settings.MaxBatch)
	if p.alone > 0 || w.attemptsOnRecord() {
		most = 1
	}
	n, bytes := 1, due[0].Event.Size()
	for ; n < min(most, len(due)); n++ {
		d, last := &due[n], &due[n-1]
		bytes += d.Event.Size()
		switch {
		case d.Incarnation != due[0].Incarnation, d.Event.Sequence <= last.Event.Sequence, bytes > w.a.Settings.PrefetchBytes:
			return due[:n]
		case !d.HasBody && !mayRead, d.HasBody != last.HasBody:
			return due[:n]
		}
	}
	return due[:n]
}

// redriveTogether applies dead letters and removes them, in one transaction. It returns the failure
// of the handler, if that has failed: nothing is stored then. Like commit it returns errReclaimed
// if they are to be tried again later.
func (w *worker[Tx]) redriveTogether(run []driver.DeadLetter, events []*driver.Event) (failure *driver.HandlerError, err error) {
	ids := make([]int64, len(run))
	for i := range run {
		ids[i] = run[i].ID
	}
	if err := w.recordStart(events[0].Sequence, ids[0]); err != nil {
		return nil, err
	}
	given, err := w.handled(events)
	if err != nil {
		return nil, err
	}
	began := w.a.Settings.Clock.Elapsed()
	b := w.redrivenBatch(run, given)
	err = w.commit(driver.Step{Lease: w.a.Lease, From: w.pos, To: w.pos, Redriven: ids}, b)
	if err != nil {
		if errors.As(err, &failure) {
			return failure, nil
		}
		return nil, err
	}
	took := w.a.Settings.Clock.Elapsed() - began
	for i := range run {
		w.clearRedrive(&run[i])
		w.a.Observe(driver.Observation{Kind: driver.KindRedriven, To: events[i].Position(), Event: events[i], Events: 1, Duration: took})
	}
	w.redriven += len(run)
	return nil, nil
}

// eventsOf returns the events of the first dead letters of a run: of all, if they are stored, else
// of those that the log returns. A single one that is not stored is not read.
func (w *worker[Tx]) eventsOf(run []driver.DeadLetter) ([]*driver.Event, error) {
	switch {
	case run[0].HasBody:
	case len(run) == 1:
		return nil, nil
	default:
		found, charged, err := w.a.RereadRun(run)
		w.redrives.charged += charged
		return found, err
	}
	events := make([]*driver.Event, len(run))
	for i := range run {
		events[i] = &run[i].Event
	}
	return events, nil
}

// splitRun returns how many of a run to try together after it has failed: those before the first
// event that the failure names, or half of them. If the failure is no event's fault, one shows
// whether it lasts.
func (w *worker[Tx]) splitRun(failure *driver.HandlerError, run []driver.DeadLetter) int {
	if !engine.FaultOf(failure.Err).Counts() {
		return 1
	}
	named := engine.Blamed(failure.Err, len(run))
	if len(named) == 0 || w.a.Settings.Filter != nil { // which may have left out some
		return len(run) / 2
	}
	first := slices.MinFunc(named, func(a, b *driver.EventError) int { return cmp.Compare(a.Index, b.Index) })
	return max(first.Index, 1)
}
