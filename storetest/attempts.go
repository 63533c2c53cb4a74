package storetest

import (
	"context"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// attempts is what checkAttempts works on: partition 0 of a store of either kind, claimed for owner
// a, at position 9.
type attempts struct {
	record func(ctx context.Context, lease driver.Lease, at driver.Position, attempt driver.AttemptRecord) error
	a      driver.Lease
	next   func() (driver.Lease, driver.Checkpoint)           // claims for owner b
	move   func(lease driver.Lease, from, to driver.Position) // moves the checkpoint
	read   func() driver.Checkpoint
}

// checkAttempts checks that an attempt record is kept whole, also by a claim of the next owner,
// until the position moves, and that only the owner stores one.
func checkAttempts(t testing.TB, s attempts) {
	record := driver.AttemptRecord{Sequence: 10, DeadLetter: 1 << 40, Attempts: 2, Error: "first line\nsecond 'line' \"√\" \\ %", Unreturned: 1}
	suite.NoError(t, "record", s.record(suite.Context(t), s.a, positionAt(9), record))
	if got := s.read().Attempt; got != record {
		t.Errorf("read attempt record %+v, want %+v", got, record)
	}
	for what, try := range map[string]struct {
		lease    driver.Lease
		position driver.Position
	}{
		"owner":     {leaseOf("0", "b", s.a.Epoch), positionAt(9)},
		"epoch":     {leaseOf("0", "a", s.a.Epoch+1), positionAt(9)},
		"position":  {s.a, positionAt(8)},
		"partition": {leaseOf("1", "a", s.a.Epoch), positionAt(9)},
	} {
		wantFenced(t, "record under another "+what, s.record(suite.Context(t), try.lease, try.position, driver.AttemptRecord{Sequence: 99, Attempts: 9}))
	}
	b, claimed := s.next()
	if claimed.Attempt != record {
		t.Errorf("claimed attempt record %+v, want %+v", claimed.Attempt, record)
	}
	wantFenced(t, "record by the owner of before", s.record(suite.Context(t), s.a, positionAt(9), driver.AttemptRecord{Sequence: 99, Attempts: 9}))
	s.move(b, positionAt(9), positionAt(9))
	if got := s.read().Attempt; got != record {
		t.Errorf("a checkpoint that stays left attempt record %+v, want %+v", got, record)
	}
	s.move(b, positionAt(9), positionAt(10))
	if got := s.read().Attempt; got != (driver.AttemptRecord{}) {
		t.Errorf("progress left attempt record %+v", got)
	}
	suite.NoError(t, "record", s.record(suite.Context(t), b, positionAt(10), record))
	suite.NoError(t, "record none", s.record(suite.Context(t), b, positionAt(10), driver.AttemptRecord{}))
	if got := s.read().Attempt; got != (driver.AttemptRecord{}) {
		t.Errorf("recording none left attempt record %+v", got)
	}
}
