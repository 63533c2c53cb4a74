package sluicetest

import (
	"context"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

// bentMarks is a store of dead letters whose marks of copies can be replaced.
type bentMarks struct {
	*Store
	uncopied func(ctx context.Context, group sluice.Group, partition string, after int64, limit int) ([]sluice.DeadLetter, error)
	mark     func(ctx context.Context, group sluice.Group, partition string, copied []driver.ParkedEvent) error
	settle   func(ctx context.Context, group sluice.Group, applied []int64, returned []sluice.DeadLetter) error
	park     func(ctx context.Context, deadLetters []sluice.DeadLetter) error
}

func (b *bentMarks) Uncopied(ctx context.Context, group sluice.Group, partition string, after int64, limit int) ([]sluice.DeadLetter, error) {
	if b.uncopied != nil {
		return b.uncopied(ctx, group, partition, after, limit)
	}
	return b.Store.Uncopied(ctx, group, partition, after, limit)
}

func (b *bentMarks) MarkCopied(ctx context.Context, group sluice.Group, partition string, copied []driver.ParkedEvent) error {
	if b.mark != nil {
		return b.mark(ctx, group, partition, copied)
	}
	return b.Store.MarkCopied(ctx, group, partition, copied)
}

func (b *bentMarks) Settle(ctx context.Context, group sluice.Group, applied []int64, returned []sluice.DeadLetter) error {
	if b.settle != nil {
		return b.settle(ctx, group, applied, returned)
	}
	return b.Store.Settle(ctx, group, applied, returned)
}

func (b *bentMarks) Park(ctx context.Context, deadLetters []sluice.DeadLetter) error {
	if b.park != nil {
		return b.park(ctx, deadLetters)
	}
	return b.Store.Park(ctx, deadLetters)
}

// brokenCopies are stores whose marks lose a copy, or repeat it for ever.
func brokenCopies() (drivers []suite.Broken[storetest.DeadLetterQueueHarness]) {
	add := func(how string, bend func(b *bentMarks, good *Store)) {
		drivers = append(drivers, suite.Broken[storetest.DeadLetterQueueHarness]{How: how, New: func(testing.TB) storetest.DeadLetterQueueHarness {
			b := &bentMarks{Store: new(Store)}
			bend(b, b.Store)
			return storetest.DeadLetterQueueHarness{Store: b, DeadLetters: b.Store}
		}})
	}
	kept := func(how string, keep func(d *sluice.DeadLetter) bool) {
		add(how, func(b *bentMarks, good *Store) {
			b.uncopied = func(ctx context.Context, group sluice.Group, partition string, after int64, limit int) (list []sluice.DeadLetter, _ error) {
				all, err := good.Uncopied(ctx, group, partition, after, limit)
				for i := range all {
					if keep(&all[i]) {
						list = append(list, all[i])
					}
				}
				return list, err
			}
		})
	}
	kept("has no discarded ones to copy", func(d *sluice.DeadLetter) bool { return d.Status != sluice.StatusDiscarded })
	kept("has none on redrive to copy", func(d *sluice.DeadLetter) bool { return d.Status != sluice.StatusRetry })
	kept("has no bodies", func(d *sluice.DeadLetter) bool { d.Event.Body = nil; return true })
	add("ignores the limit", func(b *bentMarks, good *Store) {
		b.uncopied = func(ctx context.Context, group sluice.Group, partition string, after int64, _ int) ([]sluice.DeadLetter, error) {
			return good.Uncopied(ctx, group, partition, after, 1000)
		}
	})
	add("ignores where the page begins", func(b *bentMarks, good *Store) {
		b.uncopied = func(ctx context.Context, group sluice.Group, partition string, _ int64, limit int) ([]sluice.DeadLetter, error) {
			return good.Uncopied(ctx, group, partition, 0, limit)
		}
	})
	add("forgets marks", func(b *bentMarks, _ *Store) {
		b.mark = func(ctx context.Context, _ sluice.Group, _ string, _ []driver.ParkedEvent) error { return ctx.Err() }
	})
	add("marks the first one only", func(b *bentMarks, good *Store) {
		b.mark = func(ctx context.Context, group sluice.Group, partition string, copied []driver.ParkedEvent) error {
			return good.MarkCopied(ctx, group, partition, copied[:min(1, len(copied))])
		}
	})
	add("marks all of the partition", func(b *bentMarks, good *Store) {
		b.mark = func(ctx context.Context, group sluice.Group, partition string, _ []driver.ParkedEvent) error {
			all, err := good.Uncopied(ctx, group, partition, 0, 1000)
			if err != nil {
				return err
			}
			var events []driver.ParkedEvent
			for i := range all {
				events = append(events, driver.ParkedEvent{ID: all[i].ID})
			}
			return good.MarkCopied(ctx, group, partition, events)
		}
	})
	add("marks in any partition and group", func(b *bentMarks, good *Store) {
		b.mark = func(ctx context.Context, group sluice.Group, partition string, copied []driver.ParkedEvent) error {
			err := good.MarkCopied(ctx, group, partition, copied)
			good.locked(func() {
				for _, c := range copied {
					if err == nil {
						good.copied[c.ID] = true
					}
				}
			})
			return err
		}
	})
	add("forgets marks of what is stored again", func(b *bentMarks, good *Store) {
		b.park = func(ctx context.Context, deadLetters []sluice.DeadLetter) error {
			err := good.Park(ctx, deadLetters)
			good.locked(func() { clear(good.copied) })
			return err
		}
	})
	add("takes marks of what is gone for those of their events", func(b *bentMarks, good *Store) {
		gone := map[int64]bool{}
		b.settle = func(ctx context.Context, group sluice.Group, applied []int64, returned []sluice.DeadLetter) error {
			good.locked(func() {
				for _, id := range applied {
					if l := good.deadLetter(group, id); l != nil {
						gone[l.Event.Sequence] = true
					}
				}
			})
			return good.Settle(ctx, group, applied, returned)
		}
		b.park = func(ctx context.Context, deadLetters []sluice.DeadLetter) error {
			err := good.Park(ctx, deadLetters)
			good.locked(func() {
				for _, l := range good.deadLetters {
					if gone[l.Event.Sequence] && good.copied != nil {
						good.copied[l.ID] = true
					}
				}
			})
			return err
		}
	})
	return drivers
}
