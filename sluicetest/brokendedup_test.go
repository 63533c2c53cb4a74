package sluicetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

// brokenDedup are stores that are wrong about causation IDs.
func brokenDedup() []suite.Broken[storetest.TxHarness[*Tx]] {
	var drivers []suite.Broken[storetest.TxHarness[*Tx]]
	add := func(how string, bend func(b *bentStore, good *Store)) {
		drivers = append(drivers, suite.Broken[storetest.TxHarness[*Tx]]{How: how, New: func(testing.TB) storetest.TxHarness[*Tx] {
			b := &bentStore{Store: new(Store)}
			h := harness(b.Store)
			h.Store = b
			bend(b, b.Store)
			return h
		}})
	}
	// step bends what is committed.
	step := func(how string, bend func(step *driver.Step)) {
		add(how, func(b *bentStore, good *Store) {
			b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
				step.Dedup = slices.Clone(step.Dedup)
				bend(&step)
				return good.Commit(ctx, step, fn)
			}
		})
	}
	// seen bends what is read.
	seen := func(how string, bend func(list []driver.DedupState) []driver.DedupState) {
		add(how, func(b *bentStore, good *Store) {
			b.readDedup = func(ctx context.Context, group sluice.Group, partition string) ([]driver.DedupState, error) {
				list, err := good.ReadDedup(ctx, group, partition)
				return bend(list), err
			}
		})
	}

	add("stores nothing of what was seen", func(b *bentStore, good *Store) { good.Unsafe.LostDedup = true })
	add("stores what was seen whatever becomes of the step", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			err := good.Commit(ctx, step, fn)
			if blamed := (*driver.HandlerError)(nil); errors.As(err, &blamed) {
				b.locked(func() { good.storeDedup(step) })
			}
			return err
		}
	})
	step("never forgets", func(step *driver.Step) {
		for i := range step.Dedup {
			step.Dedup[i].Forget = -1
		}
	})
	step("forgets by the watermark alone", func(step *driver.Step) {
		for i := range step.Dedup {
			step.Dedup[i].Forget = step.Dedup[i].Low
		}
	})
	step("keeps forgotten origins", func(step *driver.Step) { step.DedupForgotten = nil })
	step("never lets anything expire", func(step *driver.Step) { step.DedupSince = time.Time{} })
	step("keeps the first 256 origins of a step", func(step *driver.Step) { step.Dedup = step.Dedup[:min(256, len(step.Dedup))] })
	add("lets expire what other partitions have", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			err := good.Commit(ctx, step, fn)
			if err == nil && !step.DedupSince.IsZero() {
				b.locked(func() {
					for at := range good.dedup {
						good.removeDedup(at, func(f dedupEntry) bool { return f.At.Before(step.DedupSince) })
					}
				})
			}
			return err
		}
	})
	seen("returns the newest first", func(list []driver.DedupState) []driver.DedupState {
		slices.Reverse(list)
		return list
	})
	seen("sorts by origin", func(list []driver.DedupState) []driver.DedupState {
		slices.SortStableFunc(list, func(a, b driver.DedupState) int { return strings.Compare(a.Origin, b.Origin) })
		return list
	})
	seen("rounds times to milliseconds", func(list []driver.DedupState) []driver.DedupState {
		for i := range list {
			list[i].At = list[i].At.Truncate(time.Millisecond)
		}
		return list
	})
	add("takes all partitions for one", func(b *bentStore, good *Store) {
		b.readDedup = func(ctx context.Context, group sluice.Group, _ string) ([]driver.DedupState, error) {
			return good.ReadDedup(ctx, group, "0")
		}
	})
	add("takes all groups for one", func(b *bentStore, good *Store) {
		b.readDedup = func(ctx context.Context, _ sluice.Group, partition string) ([]driver.DedupState, error) {
			return good.ReadDedup(ctx, testGroup, partition)
		}
	})
	reset := func(how string, gone func(f dedupEntry, to sluice.Position) bool) {
		add(how, func(b *bentStore, good *Store) {
			b.reset = func(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position, how driver.How) (int64, error) {
				at := place{group, partition}
				var before []dedupEntry
				b.locked(func() { before = slices.Clone(good.dedup[at]) })
				epoch, err := good.Reset(ctx, group, partition, incarnation, to, how)
				b.locked(func() {
					if good.dedup != nil {
						good.dedup[at] = slices.DeleteFunc(before, func(f dedupEntry) bool { return gone(f, to) })
					}
				})
				return epoch, err
			}
		})
	}
	reset("keeps all it has seen at a reset", func(dedupEntry, sluice.Position) bool { return false })
	reset("forgets all it has seen at a reset", func(dedupEntry, sluice.Position) bool { return true })
	return drivers
}
