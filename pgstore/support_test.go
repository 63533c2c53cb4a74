package pgstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/pgstore"
)

var group = driver.Group{Namespace: "ns", Topic: "flights", Name: "$Default"}

func lease(owner string, epoch int64) driver.Lease {
	return driver.Lease{Group: group, Partition: "0", Owner: owner, Epoch: epoch}
}

func positionAt(sequence int64) driver.Position { return driver.Position{Sequence: sequence} }

func claim(t testing.TB, s *pgstore.Store, l driver.Lease) driver.Checkpoint {
	t.Helper()
	p, err := s.Claim(t.Context(), l, "1")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// commit moves from to to with one effect.
func commit(ctx context.Context, s *pgstore.Store, l driver.Lease, from, to driver.Position, key string) error {
	return s.Commit(ctx, driver.Step{Lease: l, From: from, To: to}, func(ctx context.Context, tx pgx.Tx) error { return put(ctx, tx, key) })
}

// expect notes effects and a position that are not those wanted.
func expect(t testing.TB, s *pgstore.Store, position driver.Position, want ...string) {
	t.Helper()
	got, err := readEffects(t.Context(), s.Pool())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		if !t.Failed() || len(got) > len(want) { // else an earlier failure may have left an effect out
			need.Verdict(t)
		}
		t.Errorf("effects are %q, want %q", got, want)
	}
	list, err := s.Read(t.Context(), group)
	if err != nil || len(list) != 1 || list[0].Position.Sequence != position.Sequence {
		t.Errorf("checkpoints are %+v, %v; want one at %v", list, err, position)
	}
}

// outage notes an error that says more or less than that the database could
// not do it.
func outage(t testing.TB, err error) {
	t.Helper()
	if err == nil || blames(err) || errors.Is(err, driver.ErrUnknown) || errors.Is(err, driver.ErrFenced) {
		t.Errorf("error is %T %v, want that of an outage", err, err)
	}
}

func blames(err error) bool {
	_, found := errors.AsType[*driver.HandlerError](err)
	return found
}

// eventually polls until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("still not: %s", what)
		}
	}
}
