package sluicetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

// brokenSeen are stores that are wrong about chain ids.
func brokenSeen() []broken[TxHarness[*Tx]] {
	var drivers []broken[TxHarness[*Tx]]
	add := func(how string, bend func(b *bentStore, good *Store)) {
		drivers = append(drivers, broken[TxHarness[*Tx]]{how, func(testing.TB) TxHarness[*Tx] {
			b := &bentStore{Store: new(Store)}
			h := harness(b.Store)
			h.Store = b
			bend(b, b.Store)
			return h
		}})
	}
	// step bends what is committed.
	step := func(how string, bend func(step *sluice.Step)) {
		add(how, func(b *bentStore, good *Store) {
			b.commit = func(ctx context.Context, step sluice.Step, fn handler) error {
				step.Seen = slices.Clone(step.Seen)
				bend(&step)
				return good.Commit(ctx, step, fn)
			}
		})
	}
	// seen bends what is read.
	seen := func(how string, bend func(list []sluice.Seen) []sluice.Seen) {
		add(how, func(b *bentStore, good *Store) {
			b.seen = func(ctx context.Context, group sluice.Group, partition string) ([]sluice.Seen, error) {
				list, err := good.Seen(ctx, group, partition)
				return bend(list), err
			}
		})
	}

	add("stores nothing of what was seen", func(b *bentStore, good *Store) { good.Unsafe.LostSeen = true })
	add("stores what was seen whatever becomes of the step", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step sluice.Step, fn handler) error {
			err := good.Commit(ctx, step, fn)
			if blamed := (*sluice.HandlerError)(nil); errors.As(err, &blamed) {
				b.locked(func() { good.tread(step) })
			}
			return err
		}
	})
	step("never forgets", func(step *sluice.Step) {
		for i := range step.Seen {
			step.Seen[i].Forget = -1
		}
	})
	step("forgets by the watermark alone", func(step *sluice.Step) {
		for i := range step.Seen {
			step.Seen[i].Forget = step.Seen[i].Low
		}
	})
	step("keeps forgotten origins", func(step *sluice.Step) { step.Forgotten = nil })
	step("never lets anything expire", func(step *sluice.Step) { step.SeenSince = time.Time{} })
	step("keeps the first 256 origins of a step", func(step *sluice.Step) { step.Seen = step.Seen[:min(256, len(step.Seen))] })
	add("lets expire what other partitions have", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step sluice.Step, fn handler) error {
			err := good.Commit(ctx, step, fn)
			if err == nil && !step.SeenSince.IsZero() {
				b.locked(func() {
					for at := range good.seen {
						good.sweep(at, func(f footprint) bool { return f.At.Before(step.SeenSince) })
					}
				})
			}
			return err
		}
	})
	seen("returns the newest first", func(list []sluice.Seen) []sluice.Seen {
		slices.Reverse(list)
		return list
	})
	seen("sorts by origin", func(list []sluice.Seen) []sluice.Seen {
		slices.SortStableFunc(list, func(a, b sluice.Seen) int { return strings.Compare(a.Origin, b.Origin) })
		return list
	})
	seen("rounds times to milliseconds", func(list []sluice.Seen) []sluice.Seen {
		for i := range list {
			list[i].At = list[i].At.Truncate(time.Millisecond)
		}
		return list
	})
	add("takes all partitions for one", func(b *bentStore, good *Store) {
		b.seen = func(ctx context.Context, group sluice.Group, _ string) ([]sluice.Seen, error) {
			return good.Seen(ctx, group, "0")
		}
	})
	add("takes all groups for one", func(b *bentStore, good *Store) {
		b.seen = func(ctx context.Context, _ sluice.Group, partition string) ([]sluice.Seen, error) {
			return good.Seen(ctx, testGroup, partition)
		}
	})
	reset := func(how string, gone func(f footprint, to sluice.Position) bool) {
		add(how, func(b *bentStore, good *Store) {
			b.reset = func(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position) (int64, error) {
				at := place{group, partition}
				var before []footprint
				b.locked(func() { before = slices.Clone(good.seen[at]) })
				epoch, err := good.Reset(ctx, group, partition, incarnation, to)
				b.locked(func() {
					if good.seen != nil {
						good.seen[at] = slices.DeleteFunc(before, func(f footprint) bool { return gone(f, to) })
					}
				})
				return epoch, err
			}
		})
	}
	reset("keeps all it has seen at a reset", func(footprint, sluice.Position) bool { return false })
	reset("forgets all it has seen at a reset", func(footprint, sluice.Position) bool { return true })
	return drivers
}
