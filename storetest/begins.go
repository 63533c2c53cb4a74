package storetest

import (
	"context"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// beginner is what the stores of checkpoints have in common.
type beginner interface {
	Claim(ctx context.Context, lease driver.Lease, incarnation string) (driver.Checkpoint, error)
	Begin(ctx context.Context, lease driver.Lease, from, to driver.Position) error
	RecordAttempt(ctx context.Context, lease driver.Lease, at driver.Position, attempt driver.AttemptRecord) error
	Read(ctx context.Context, group driver.Group) ([]driver.Checkpoint, error)
	Reset(ctx context.Context, group driver.Group, partition, incarnation string, to driver.Position, how driver.How) (epoch int64, err error)
}

// checkBegin checks that a checkpoint keeps where its partition began. lease gets the lease of an
// owner above an epoch; move moves the checkpoint from 9 to 12 under it.
func checkBegin(t testing.TB, store beginner, lease func(owner string, epoch int64) driver.Lease, move func(l driver.Lease)) {
	t.Helper()
	ctx := suite.Context(t)
	want := func(what string, position driver.Position, began driver.Beginning) {
		t.Helper()
		list, err := store.Read(ctx, testGroup)
		suite.NoError(t, "read "+what, err)
		if len(list) != 1 || list[0].Position != position || list[0].Began != began {
			t.Errorf("%s: read %+v, want one checkpoint at %+v that began %+v", what, list, position, began)
		}
	}
	claim := func(l driver.Lease, began driver.Beginning) {
		t.Helper()
		p, err := store.Claim(ctx, l, incarnation)
		suite.NoError(t, "claim", err)
		if p.Began != began {
			t.Errorf("claimed in epoch %d: %+v, want a checkpoint that began %+v", l.Epoch, p, began)
		}
	}
	a := lease("a", 1)
	claim(a, driver.Beginning{})
	want("claimed", driver.Unset, driver.Beginning{})
	other := a
	other.Owner = "other"
	wantFenced(t, "begin by another owner", store.Begin(ctx, other, driver.Unset, positionAt(7)))
	wantFenced(t, "begin from where it is not", store.Begin(ctx, a, positionAt(3), positionAt(7)))
	want("fenced", driver.Unset, driver.Beginning{})

	suite.NoError(t, "record", store.RecordAttempt(ctx, a, driver.Unset, driver.AttemptRecord{Sequence: 1, Attempts: 1}))
	suite.NoError(t, "begin", store.Begin(ctx, a, driver.Unset, positionAt(7)))
	started := driver.Beginning{After: 7, How: driver.HowStart}
	want("begun", positionAt(7), started)
	wantFenced(t, "begin twice", store.Begin(ctx, a, driver.Unset, positionAt(8)))
	want("begun once", positionAt(7), started)

	suite.NoError(t, "begin later", store.Begin(ctx, a, positionAt(7), positionAt(9)))
	started.After = 9
	want("begun later", positionAt(9), started)
	move(a)
	b := lease("b", a.Epoch+1)
	claim(b, started)
	want("claimed by another", positionAt(12), started)

	for _, began := range []driver.Beginning{{After: 4, How: driver.HowImport}, {After: driver.Origin.Sequence, How: driver.HowSet}} {
		to := positionAt(began.After)
		if began.After < 0 {
			to = driver.Origin
		}
		epoch, err := store.Reset(ctx, testGroup, "0", incarnation, to, began.How)
		suite.NoError(t, "reset", err)
		want("reset", to, began)
		c := lease("c", epoch+1)
		claim(c, began)
		want("claimed after a reset", to, began)
	}
}

// checkMark checks that a lease keeps what [driver.LeaseStore.MarkBegan] has recorded.
func checkMark(t testing.TB, h leaseHarness) {
	t.Helper()
	ctx := suite.Context(t)
	a := h.take(t, "0", "a", h.long, 0)
	if a.Began != "" {
		t.Errorf("got lease %+v, want one that has not begun", a)
	}
	other := a
	other.Owner = "other"
	wantFenced(t, "mark by another owner", h.MarkBegan(ctx, other, "incarnation 0"))
	suite.NoError(t, "mark", h.MarkBegan(ctx, a, "incarnation \"√\" 1"))
	if got := h.info(t, "0"); got.Began != "incarnation \"√\" 1" || !got.Live() {
		t.Errorf("marked: listed %+v, want a live lease that began in the incarnation", got)
	}
	suite.NoError(t, "renew", h.Renew(ctx, a, h.long))
	suite.NoError(t, "release", h.Release(ctx, a))
	b := h.take(t, "0", "b", h.long, 0)
	if b.Began != "incarnation \"√\" 1" {
		t.Errorf("got lease %+v after the one that was marked, want its mark", b)
	}
	wantFenced(t, "mark in an earlier epoch", h.MarkBegan(ctx, a, "incarnation 0"))
	suite.NoError(t, "mark again", h.MarkBegan(ctx, b, "incarnation 2"))
	if got := h.info(t, "0"); got.Began != "incarnation 2" {
		t.Errorf("marked again: listed %+v", got)
	}
}
