package sluicetest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// What was committed behind a snapshot is gone when it is put back, and so is a
// transaction that was in progress.
func TestSnapshot(t *testing.T) {
	ctx := t.Context()
	store, leases := &sluicetest.Store{}, &sluicetest.Leases{}
	group := sluice.Group{Topic: "events", Name: "g"}
	lease, err := leases.Acquire(ctx, group, "0", "a", time.Minute, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Claim(ctx, lease, "1"); err != nil {
		t.Fatal(err)
	}
	commit := func(from, to int64, during func()) error {
		step := driver.Step{Lease: lease, From: sluice.Position{Sequence: from}, To: sluice.Position{Sequence: to}}
		return store.Commit(ctx, step, func(_ context.Context, tx *sluicetest.Tx) error {
			if during != nil {
				during()
			}
			return tx.Insert("rows", to)
		})
	}
	if err := commit(driver.Unset.Sequence, 1, nil); err != nil {
		t.Fatal(err)
	}
	restore := store.Snapshot()
	if err := commit(1, 2, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		restore()
		list, err := store.Read(ctx, group)
		if err != nil || len(list) != 1 || list[0].Position.Sequence != 1 {
			t.Errorf("checkpoints %+v, %v, want one at 1", list, err)
		}
		if rows := store.Rows("rows"); !slices.Equal(rows, []any{int64(1)}) {
			t.Errorf("rows %v, want the first alone", rows)
		}
		if err := commit(1, 2, restore); err == nil {
			t.Error("a transaction in progress was committed")
		}
		if err := commit(1, 2, nil); err != nil {
			t.Error(err)
		}
	}
}
