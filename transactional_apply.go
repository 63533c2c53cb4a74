package sluice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-go/sluice/driver"
)

const (
	// claimsTrusted is how many claims in a row may see no progress before the
	// events behind the checkpoint are suspected of killing the process, and
	// are tried one at a time.
	claimsTrusted = 3
	// deathsAllowed is how often a suspected event may be begun without coming
	// to an end before it becomes a dead letter.
	deathsAllowed = 3
)

// errAgain says that a step was not done, and that the session has learned
// anew where the checkpoint stands: look what is left, and try that.
var errAgain = errors.New("again")

// apply brings events to their end, in order: committed or parked. One
// transaction if all goes well; otherwise it is taken apart around the events
// to blame, found by the handler's word or by halving.
func (s *applier[Tx]) apply(events []*Event) error {
	for {
		events = s.pending(events)
		switch len(events) {
		case 0:
			return nil
		case 1:
			return s.settle(events[0], nil)
		}
		err := s.transact(events, nil)
		var failure *driver.HandlerError
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errAgain):
			continue
		case !errors.As(err, &failure):
			return err
		}

		culprits := blamed(failure.Err, len(events))
		if len(culprits) == 0 {
			half := len(events) / 2
			if err := s.apply(events[:half]); err != nil {
				return err
			}
			events = events[half:]
			continue
		}
		if letters, n := s.letters(events, culprits); letters != nil {
			err := s.transact(events[:n], letters)
			if err == nil || errors.Is(err, errAgain) {
				continue
			}
			if !errors.As(err, &failure) {
				return err
			}
		}
		first := culprits[0]
		if err := s.apply(events[:first.Index]); err != nil {
			return err
		}
		if err := s.settle(events[first.Index], first.Err); err != nil {
			return err
		}
	}
}

// letters makes dead letters of the culprits if none of them deserves another
// attempt, and says how many events they and those before them are.
func (s *applier[Tx]) letters(events []*Event, culprits []*EventError) ([]DeadLetter, int) {
	var letters []DeadLetter
	n := 0
	for _, c := range culprits {
		e := events[c.Index]
		attempt := s.attempts(e) + 1
		if !s.final(c.Err, attempt) {
			return nil, 0
		}
		letters = append(letters, s.letter(e, c.Err, attempt))
		n = c.Index + 1
	}
	return letters, n
}

// settle brings one event to its end: applied, or parked after its attempts.
// A failure that is already known counts as an attempt.
func (s *applier[Tx]) settle(e *Event, failure error) error {
	attempt := s.attempts(e)
	if failure != nil {
		attempt++
	}
	wait := s.c.backoff(s.rand)
	for !s.done(e) {
		if failure == nil && attempt >= deathsAllowed && s.trial.Error == "" {
			failure = Reject(fmt.Errorf("the process ended %d times while it handled this event", attempt))
		}
		if failure == nil {
			err := s.alone(e)
			var failed *driver.HandlerError
			switch {
			case err == nil:
				return nil
			case errors.Is(err, errAgain):
				continue
			case !errors.As(err, &failed):
				return err
			}
			failure = failed.Err
			if attempt = s.attempts(e); attempt == 0 || s.trial.Error != "" {
				attempt++ // an event under suspicion was counted before it began
			}
		}
		var each *EventError
		if errors.As(failure, &each) {
			failure = each.Err
		}
		if s.final(failure, attempt) {
			err := s.transact([]*Event{e}, []DeadLetter{s.letter(e, failure, attempt)})
			var failed *driver.HandlerError
			switch {
			case errors.Is(err, errAgain):
				continue
			case errors.As(err, &failed):
				return fmt.Errorf("store dead letter: %w", failed.Err)
			}
			return err
		}
		if err := s.record(driver.AttemptRecord{Sequence: e.Sequence, Attempts: attempt, Error: describe(failure)}); err != nil {
			if errors.Is(err, errAgain) {
				continue
			}
			return err
		}
		s.observe(Observation{Kind: KindRetried, To: e.Position(), Attempt: attempt, Err: failure})
		if err := s.pause(wait.next()); err != nil {
			return err
		}
		failure = nil
	}
	return nil
}

// alone tries one event in a transaction of its own. Under suspicion the
// attempt is recorded before it begins, and only one such attempt goes on in
// this process, so that its death tells which event it was.
func (s *applier[Tx]) alone(e *Event) error {
	if e.Sequence <= s.suspect {
		select {
		case s.c.careful <- struct{}{}:
			defer func() { <-s.c.careful }()
		case <-s.work.Done():
			return s.ended()
		}
		if err := s.record(driver.AttemptRecord{Sequence: e.Sequence, Attempts: s.attempts(e) + 1}); err != nil {
			return err
		}
	}
	return s.transact([]*Event{e}, nil)
}

// transact applies events in one transaction, all but those that it parks,
// which are in the same order.
func (s *applier[Tx]) transact(events []*Event, parked []DeadLetter) error {
	good := events
	if len(parked) > 0 {
		good = make([]*Event, 0, len(events))
		rest := parked
		for _, e := range events {
			if len(rest) > 0 && rest[0].Event.Sequence == e.Sequence {
				rest = rest[1:]
			} else {
				good = append(good, e)
			}
		}
	}
	b := Batch{Group: s.topic.Group, Partition: s.lease.Partition, Epoch: s.lease.Epoch, Events: good}
	if err := s.move(s.repeats.beyond(events[len(events)-1]), parked, len(events), s.handle(b)); err != nil {
		return err
	}
	for _, d := range parked {
		s.observe(Observation{Kind: KindParked, To: d.Event.Position(), Attempt: d.Attempts, Err: errors.New(d.Error)})
	}
	if hook := s.c.cfg.Hooks.Batch; hook != nil {
		b.Events = events
		s.hook("batch", func() error { return hook(s.work, b) })
	}
	return nil
}

// move moves the checkpoint past so many events, and the repeats among them.
func (s *applier[Tx]) move(to Position, parked []DeadLetter, events int, fn func(context.Context, Tx) error) error {
	step := driver.Step{Lease: s.lease, From: s.pos, To: to, DeadLetters: parked}
	repeats := s.repeats.seen(&step)
	began := s.c.cfg.Clock.Elapsed()
	if err := s.commit(step, fn); err != nil {
		return err
	}
	s.repeats.stored(&step)
	s.observe(Observation{
		Kind: KindCommitted, From: step.From, To: step.To, Events: events + repeats, Duplicates: repeats,
		Duration: s.c.cfg.Clock.Elapsed() - began, Lag: s.behind(step.To),
	})
	return nil
}

// pass moves the checkpoint past repeats alone.
func (s *applier[Tx]) pass(to Position) error {
	for s.pos.Sequence < to.Sequence {
		err := s.move(to, nil, 0, nil)
		var failed *driver.HandlerError
		switch {
		case errors.As(err, &failed):
			return fmt.Errorf("pass repeats: %w", failed.Err)
		case err != nil && !errors.Is(err, errAgain):
			return err
		}
	}
	return nil
}

// handle is the handler applied to a batch, nil for an empty one.
func (s *applier[Tx]) handle(b Batch) func(context.Context, Tx) error {
	if len(b.Events) == 0 {
		return nil
	}
	return func(ctx context.Context, tx Tx) error {
		return guard(func() error { return s.handler(ctx, tx, b) })
	}
}

// commit runs one step. It returns nil if the step is known to be done, a
// [*HandlerError], [errAgain] if it is not and the checkpoint was claimed
// again, or the reason why the tenure must end.
func (s *applier[Tx]) commit(step driver.Step, fn func(context.Context, Tx) error) error {
	err := s.store.Commit(s.work, step, fn)
	var failed *driver.HandlerError
	switch {
	case err == nil:
		s.outage.reset()
		s.pos = step.To
		if step.From != step.To {
			s.trial = driver.AttemptRecord{}
		}
		return nil
	case errors.As(err, &failed) && s.work.Err() == nil:
		s.outage.reset()
		return failed
	case errors.Is(err, ErrFenced) && failed == nil:
		// Told also when the lease is over: so it is seen who came too late.
		s.observe(Observation{Kind: KindFenced, From: step.From, To: step.To, Err: err})
		if s.work.Err() != nil {
			return s.ended()
		}
	case s.work.Err() != nil:
		return s.ended()
	case errors.Is(err, ErrUnknown):
		s.observe(Observation{Kind: KindUnknown, From: step.From, To: step.To, Err: err})
	default:
		s.failed(fmt.Errorf("commit: %w", err))
		if err := s.pause(s.outage.next()); err != nil {
			return err
		}
	}
	if err := s.reclaim(); err != nil {
		return err
	}
	switch {
	case step.From != step.To && s.pos.Sequence == step.To.Sequence:
		// Nobody else moves the checkpoint in this epoch: it was this step.
		return nil
	case errors.Is(err, ErrFenced) && s.pos.Sequence == step.From.Sequence:
		// A rival still at it, or a database that does not keep its word.
		if err := s.pause(s.outage.next()); err != nil {
			return err
		}
	}
	return errAgain
}

// reclaim learns from the database where the checkpoint stands, for as long as
// that takes. If it has gone back, the log must be read from there: [errReopen].
func (s *applier[Tx]) reclaim() error {
	for {
		p, err := s.store.Claim(s.work, s.lease, s.incarnation)
		switch {
		case err == nil:
			before := s.pos
			s.accept(p)
			if s.pos.Sequence < before.Sequence {
				return errReopen
			}
			return nil
		case s.work.Err() != nil:
			return s.ended()
		case errors.Is(err, ErrFenced):
			return err
		}
		s.failed(fmt.Errorf("claim checkpoint again: %w", err))
		if err := s.pause(s.outage.next()); err != nil {
			return err
		}
	}
}

// record stores a trial. Like commit it returns [errAgain] after a failure.
func (s *applier[Tx]) record(trial driver.AttemptRecord) error {
	err := s.store.RecordAttempt(s.work, s.lease, s.pos, trial)
	switch {
	case err == nil:
		s.trial = trial
		return nil
	case s.work.Err() != nil:
		return s.ended()
	}
	s.failed(fmt.Errorf("record attempt: %w", err))
	if err := s.pause(s.outage.next()); err != nil {
		return err
	}
	if err := s.reclaim(); err != nil {
		return err
	}
	return errAgain
}

// done tells whether an event lies before the checkpoint.
func (s *applier[Tx]) done(e *Event) bool { return e.Sequence <= s.pos.Sequence }

// pending drops the events that are done.
func (s *applier[Tx]) pending(events []*Event) []*Event {
	for len(events) > 0 && s.done(events[0]) {
		events = events[1:]
	}
	return events
}

// attempts is how many attempts at an event are on record.
func (s *applier[Tx]) attempts(e *Event) int {
	if s.trial.Sequence != e.Sequence {
		return 0
	}
	return s.trial.Attempts
}

// blamed collects the events that a handler's error blames, each once, in
// order. An index that is not in the batch counts as no word at all.
func blamed(err error, n int) []*EventError {
	var list []*EventError
	var walk func(error)
	walk = func(err error) {
		switch err := err.(type) {
		case nil:
		case *EventError:
			if err.Index >= 0 && err.Index < n && err.Err != nil {
				list = append(list, err)
			}
		case interface{ Unwrap() error }:
			walk(err.Unwrap())
		case interface{ Unwrap() []error }:
			for _, e := range err.Unwrap() {
				walk(e)
			}
		}
	}
	walk(err)
	slices.SortStableFunc(list, func(a, b *EventError) int { return cmp.Compare(a.Index, b.Index) })
	return slices.CompactFunc(list, func(a, b *EventError) bool { return a.Index == b.Index })
}
