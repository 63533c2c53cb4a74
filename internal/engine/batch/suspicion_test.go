package batch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// far is a database whose answers take a time.
type far struct {
	requests int
	began    time.Time // the first of them
}

func (f *far) Before(op sluicetest.Op, _ sluice.Lease) error {
	if op == sluicetest.OpCommit || op == sluicetest.OpRecord {
		if f.requests++; f.requests == 1 {
			f.began = time.Now()
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

func (f *far) Commit(_ driver.Step, apply func() error) error { return apply() }

// insertSlowly takes 20 µs for each event.
func insertSlowly(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
	time.Sleep(time.Duration(len(b.Events)) * 20 * time.Microsecond)
	return enginetest.InsertBatch(ctx, tx, b)
}

// afterEnds returns how long 20,000 events take, and how many requests to the database, after ends.
func afterEnds(t *testing.T, ends func(s *scene)) (took time.Duration, requests int) {
	const events = 20_000
	stage(t, 1, func(s *scene) {
		s.Send("0", "good")
		s.life(0, func(sluice.Batch) bool { return false })
		s.Send("0", slices.Repeat([]string{"good"}, events)...)
		ends(s)
		f := &far{}
		s.Store.Faults = f
		began := time.Now()
		_, end := s.Consume("a", insertSlowly, sluice.Config{AssignEvery: time.Millisecond})
		for s.Position("0") < events {
			if time.Sleep(time.Millisecond); time.Since(began) > time.Hour {
				s.T.Fatalf("at %d after an hour", s.Position("0"))
			}
		}
		took, requests = time.Since(f.began), f.requests
		end()
		if letters := s.Letters(); len(letters) > 0 {
			s.T.Errorf("dead letters %+v", letters)
		}
	})
	return took, requests
}

// A process that ended without a trace again and again, for a reason that is no event's, costs the
// next one little.
func TestSuspicionCostsLittle(t *testing.T) {
	usual, requests := afterEnds(t, func(*scene) {})
	t.Logf("no end: %v, %d requests", usual, requests)
	for n := range 6 {
		for name, ends := range map[string]func(s *scene){
			"before an attempt": func(s *scene) { s.uncleanEnds("0", n) },
			"in an attempt": func(s *scene) {
				for i := range n {
					s.life(i+1, func(sluice.Batch) bool { return true })
				}
			},
		} {
			took, requests := afterEnds(t, ends)
			t.Logf("%d ends %s: %v, %d requests", n, name, took, requests)
			if took > 2*usual {
				t.Errorf("%d ends %s: 20,000 events take %v, not %v", n, name, took, usual)
			}
		}
	}
}

// kills reports whether a batch has an event.
func kills(n int64) func(sluice.Batch) bool {
	return func(b sluice.Batch) bool {
		return slices.ContainsFunc(b.Events, func(e *sluice.Event) bool { return e.Sequence == n })
	}
}

// Wherever it is, an event that ends the process is found by few ends, and no other one is blamed.
func TestKillerIsFoundAnywhere(t *testing.T) {
	for _, at := range []int64{1, 2, 100, 500, 999, 1000, 1001, 2500, 3000} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.Send("0", "good")
				s.life(0, func(sluice.Batch) bool { return false })
				s.Send("0", slices.Repeat([]string{"good"}, 3000)...)
				deaths := 0
				for s.life(deaths+1, kills(at)) {
					if deaths++; deaths > 20 {
						s.T.Fatal("it is not found")
					}
				}
				letters := s.Letters()
				if len(letters) != 1 || letters[0].Event.Sequence != at || !strings.Contains(letters[0].Error, "process ended 3 times") || len(s.Rows()) != 3000 {
					s.T.Errorf("%d rows, dead letters %+v", len(s.Rows()), letters)
				}
				if deaths > 7 { // one of them after the batches before it, one at a larger batch
					s.T.Errorf("the process ended %d times", deaths)
				}
			})
		})
	}
}

// An end while a batch was in progress counts against none of its events, not against the last one,
// which the record names.
func TestBatchThatEndedBlamesNobody(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "good")
		s.life(0, func(sluice.Batch) bool { return false })
		s.Send("0", slices.Repeat([]string{"good"}, 40)...)
		deaths := 0
		for s.life(deaths+1, func(b sluice.Batch) bool { return deaths < 4 && kills(40)(b) }) {
			deaths++
		}
		if letters := s.Letters(); deaths != 4 || len(letters) > 0 || len(s.Rows()) != 41 {
			s.T.Errorf("%d deaths, %d rows, dead letters %+v", deaths, len(s.Rows()), letters)
		}
	})
}

// An event that ends the process when it is tried out of turn, because another one fails, is found.
func TestKillerAsWitness(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "good")
		s.life(0, func(sluice.Batch) bool { return false })
		s.Send("0", "bad", "good", "good", "good")
		deaths := 0
		for s.life(deaths+1, killsFirst(2)) {
			if deaths++; deaths > 12 {
				s.T.Fatalf("%d ends; dead letters %+v", deaths, s.Letters())
			}
		}
		letters := s.Letters()
		if len(letters) != 1 || letters[0].Event.Sequence != 2 || len(s.Rows()) != 4 { // the bad one succeeds later
			s.T.Errorf("%d rows, dead letters %+v", len(s.Rows()), letters)
		}
		s.T.Logf("found after %d ends", deaths)
	})
}

// killsFirst reports whether a batch begins with an event: a handler that fails at an earlier one
// never comes to it.
func killsFirst(n int64) func(sluice.Batch) bool {
	return func(b sluice.Batch) bool { return b.Events[0].Sequence == n }
}
