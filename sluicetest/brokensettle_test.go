package sluicetest

import (
	"context"
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// brokenAttempts are stores that lose a part of attempt records.
func brokenAttempts(add func(how string, bend func(b *bentStore, good *Store))) {
	forgets := func(name string, change func(attempt *driver.AttemptRecord)) {
		add(name, func(b *bentStore, good *Store) {
			b.record = func(ctx context.Context, lease sluice.Lease, at sluice.Position, attempt driver.AttemptRecord) error {
				change(&attempt)
				return good.RecordAttempt(ctx, lease, at, attempt)
			}
		})
	}
	forgets("forgets which redrive a trial was of", func(attempt *driver.AttemptRecord) { attempt.DeadLetter = 0 })
	forgets("forgets trials that never returned", func(attempt *driver.AttemptRecord) { attempt.Unreturned = 0 })
}

// brokenSettling are stores whose steps settle the wrong dead letters.
func brokenSettling(add func(how string, bend func(b *bentStore, good *Store))) {
	settles := func(name string, change func(step *driver.Step)) {
		add(name, func(b *bentStore, good *Store) {
			b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
				change(&step)
				return good.Commit(ctx, step, fn)
			}
		})
	}
	settles("leaves the dead letters of events that are handled again", func(step *driver.Step) { step.SettleIncarnation = "" })
	settles("settles dead letters that it is not asked to", func(step *driver.Step) { step.SettleIncarnation = "incarnation 1" })
	settles("settles those of another incarnation", func(step *driver.Step) {
		if step.SettleIncarnation != "" {
			step.SettleIncarnation = "incarnation 2"
		}
	})
	add("settles those of the event before", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			err := good.Commit(ctx, step, fn)
			if err == nil && step.SettleIncarnation != "" {
				good.deadLetters = slices.DeleteFunc(good.deadLetters, func(l *sluice.DeadLetter) bool { return l.Event.Sequence == step.From.Sequence })
			}
			return err
		}
	})
	add("settles what it stores", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			err := good.Commit(ctx, step, fn)
			if err == nil && step.SettleIncarnation != "" {
				step.DeadLetters = nil
				good.deadLetters = slices.DeleteFunc(good.deadLetters, func(l *sluice.DeadLetter) bool { return settledBy(step, l) })
			}
			return err
		}
	})
}
