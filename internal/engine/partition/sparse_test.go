package partition_test

import (
	"context"
	"errors"
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

// begin runs a consumer that writes to w for 20 seconds, and then until it is killed.
func (s *scene) begin(w *enginetest.Warehouse, cfg *sluice.AtLeastOnceConfig) (kill func()) {
	ctx, cancel := context.WithCancel(s.T.Context())
	c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, cfg), &sluice.Config{Observer: s}))
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	time.Sleep(20 * time.Second)
	return func() { cancel(); <-ran }
}

// killed runs a consumer that writes to w, and kills it while an event hangs there.
func (s *scene) killed(w *enginetest.Warehouse, cfg *sluice.AtLeastOnceConfig) { s.begin(w, cfg)() }

// finishes runs a consumer that writes to w until all is done.
func (s *scene) finishes(w *enginetest.Warehouse) {
	s.T.Helper()
	_, stop := s.Pour(w, nil, sluice.Config{})
	time.Sleep(2 * time.Minute)
	if err := stop(); err != nil {
		s.T.Fatal(err)
	}
}

// wantDone checks that the events of these numbers were done, each once and no other, that the
// checkpoint is at a position and that nothing is left to do.
func (s *scene) wantDone(rows, want []int64, at int64) {
	s.T.Helper()
	_, events, lag := s.Moved()
	fetched := 0
	for _, o := range s.Observations(driver.KindFetched) {
		fetched += o.Events
	}
	if !slices.Equal(rows, want) || events != len(want) || fetched != len(want) {
		s.T.Errorf("events %v are done, %d observed as committed and %d as fetched; want %v", rows, events, fetched, want)
	}
	if got := s.Position("0"); got != at || lag != 0 {
		s.T.Errorf("the checkpoint is at %d with a lag of %d, want %d and 0", got, lag, at)
	}
	for _, k := range []driver.ObservationKind{driver.KindFailed, driver.KindHalted, driver.KindStalled} {
		for _, o := range s.Observations(k) {
			s.T.Errorf("reported %v", o.Err)
		}
	}
}

// Numbers without an event are passed, wherever they are: no handler sees one, no count has one,
// and the checkpoint comes to the end also where they are the last.
func TestSparse(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("- a - - b c - d - - -")
		sizes := 0
		_, end := s.Consume("a", func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
			sizes = max(sizes, len(b.Events))
			time.Sleep(time.Second) // meanwhile the buffer fills
			return enginetest.InsertBatch(ctx, tx, b)
		}, sluice.Config{MaxBatch: 3})
		time.Sleep(10 * time.Second)
		s.wantDone(s.Rows(), []int64{1, 4, 5, 7}, 10)
		s.SendSparse("e -")
		time.Sleep(10 * time.Second)
		s.SendSparse("- -")
		time.Sleep(10 * time.Minute) // the reader that returns nothing is not silent
		end()
		s.wantDone(s.Rows(), []int64{1, 4, 5, 7, 11}, 14)
		if sizes != 3 {
			t.Errorf("the largest batch has %d events, want 3", sizes)
		}
	})
}

// Numbers without an event that were read with the last event are passed in its transaction. Those
// that come later have one of their own, but no more than one a second.
func TestSparsePassesSeldom(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("a - - b - -")
		_, end := s.Consume("a", enginetest.InsertBatch, sluice.Config{})
		time.Sleep(5 * time.Second)
		if commits, _, _ := s.Moved(); commits != 1 || s.Position("0") != 5 {
			t.Errorf("%d transactions up to %d, want 1 up to 5", commits, s.Position("0"))
		}
		for range 100 {
			s.SendSparse("-")
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(1100 * time.Millisecond)
		if commits, _, lag := s.Moved(); commits < 8 || commits > 13 || s.Position("0") != 105 || lag != 0 {
			t.Errorf("%d transactions up to %d with a lag of %d, want about one a second up to 105", commits, s.Position("0"), lag)
		}
		end()
	})
}

// A failure in a batch around numbers without an event blames the event, and its dead letter
// leaves none of them behind.
func TestSparseFailures(t *testing.T) {
	for name, h := range map[string]sluice.Handler[*sluicetest.Tx]{"each": sluice.Each(enginetest.Insert), "whole": enginetest.InsertBatch} {
		t.Run(name, func(t *testing.T) {
			sparse(t, func(s *scene) {
				t := s.T
				s.SendSparse("a - reject - b - - c bad - - -")
				_, end := s.Consume("a", h, sluice.Config{})
				time.Sleep(time.Minute)
				end()
				letters := s.Letters()
				if len(letters) != 2 || letters[0].Event.Sequence != 2 || letters[1].Event.Sequence != 8 || s.Position("0") != 11 || !slices.Equal(s.Rows(), []int64{0, 4, 7}) {
					t.Errorf("rows %v, dead letters %+v, checkpoint at %d", s.Rows(), letters, s.Position("0"))
				}
			})
		})
	}
}

// The second delivery passes such numbers too, and also if there never was an event.
func TestSparseStream(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("- -")
		w := enginetest.NewWarehouse(t)
		_, stop := s.Pour(w, &sluice.AtLeastOnceConfig{CheckpointEvery: time.Second}, sluice.Config{})
		time.Sleep(10 * time.Second)
		s.wantDone(w.Rows(), nil, 1)
		s.SendSparse("- a - b - -")
		time.Sleep(10 * time.Second)
		s.wantDone(enginetest.Sorted(w.Rows()), []int64{3, 5}, 7)
		w.Takes = func(*sluice.Event) time.Duration { return 20 * time.Second }
		s.SendSparse("c - - -")
		time.Sleep(15 * time.Second)
		if got := s.Position("0"); got != 7 {
			t.Errorf("the checkpoint is at %d while event 8 is in flight, want 7", got)
		}
		time.Sleep(10 * time.Second)
		s.wantDone(enginetest.Sorted(w.Rows()), []int64{3, 5, 8}, 11)
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.wantDone(enginetest.Sorted(w.Rows()), []int64{3, 5, 8}, 11)
	})
}

// What was done after the checkpoint is not repeated, and numbers without an event change nothing.
func TestSparseStreamRestarts(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("slow - a - b - c - -")
		w := enginetest.NewWarehouse(t)
		w.HangsAt(0)
		s.killed(w, nil)
		w.Takes = nil
		s.finishes(w)
		if got := enginetest.Sorted(w.Rows()); !slices.Equal(got, []int64{0, 2, 4, 6}) || s.Position("0") != 8 {
			t.Errorf("events %v were written, and the checkpoint is at %d; want each once, and 8", got, s.Position("0"))
		}
	})
}

// A dead letter whose body is not stored, and whose event compaction has removed, says so.
func TestSparseRedriveOfACompactedEvent(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("a reject b -")
		_, end := s.Consume("a", enginetest.InsertRedriven, sluice.Config{BodyLimit: -1})
		time.Sleep(time.Minute)
		s.Hub.Compact("0", 1)
		s.RedriveAll()
		time.Sleep(time.Minute)
		end()
		if letters := s.Letters(sluice.StatusDead); len(letters) != 1 || !strings.Contains(letters[0].Error, "event 1: the log does not hold it any more") {
			t.Errorf("dead letters %+v", letters)
		}
	})
}

// After an operator has set the checkpoint back, the dead letter of an event that is read again is
// settled, and that of an event that the log does not hold any more stays.
func TestSparseSetBack(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("a reject reject b reject - reject c -")
		_, end := s.Consume("a", enginetest.InsertRedriven, sluice.Config{})
		time.Sleep(time.Minute)
		end()
		s.Hub.Compact("0", 2, 6)
		topic := enginetest.Must(s.Hub.Describe(t.Context()))
		enginetest.Must(s.Store.Reset(t.Context(), enginetest.Group, "0", topic.Incarnation, driver.Origin, "set"))
		_, end = s.Consume("b", whole2, sluice.Config{})
		time.Sleep(time.Minute)
		end()
		var left []int64
		for _, l := range s.Letters() {
			left = append(left, l.Event.Sequence)
		}
		if !slices.Equal(left, []int64{2, 6}) || s.Position("0") != 8 {
			t.Errorf("dead letters of %v are left, checkpoint at %d; want 2 and 6, and 8", left, s.Position("0"))
		}
	})
}

// whole2 handles every event.
func whole2(_ context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
	for _, e := range b.Events {
		if err := tx.Insert("rows", e.Sequence); err != nil {
			return err
		}
	}
	return nil
}

// wantTruncated checks that a loss was reported, once.
func (s *scene) wantTruncated(end, last int64) {
	s.T.Helper()
	stopped := s.Observations(driver.KindHalted)
	truncated := new(driver.TruncatedError)
	if len(stopped) != 1 || !errors.As(stopped[0].Err, &truncated) || !errors.Is(stopped[0].Err, sluice.ErrTruncated) || truncated.Partition != "0" || truncated.End != end || truncated.Position.Sequence != last {
		s.T.Fatalf("reported %+v, want the loss of %d to %d, once", stopped, end, last)
	}
}

// Where the log has lost events that were done and gives their numbers to others, the partition
// halts until an operator has set the checkpoint.
func TestTruncated(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("a b - c d -")
		_, end := s.Consume("a", enginetest.InsertBatch, sluice.Config{})
		time.Sleep(10 * time.Second)
		s.Hub.Truncate("0", 3)
		s.SendSparse("C D E F -")
		time.Sleep(time.Minute)
		s.wantTruncated(3, 5)
		if got := s.Rows(); !slices.Equal(got, []int64{0, 1, 3, 4}) {
			t.Errorf("rows %v", got)
		}
		topic := enginetest.Must(s.Hub.Describe(t.Context()))
		enginetest.Must(s.Store.Reset(t.Context(), enginetest.Group, "0", topic.Incarnation, driver.Position{Sequence: 2}, "set"))
		time.Sleep(time.Minute)
		end()
		if got := s.Rows(); !slices.Equal(got, []int64{0, 1, 3, 4, 3, 4, 5, 6}) || s.Position("0") != 7 {
			t.Errorf("rows %v, checkpoint at %d", got, s.Position("0"))
		}
	})
}

// A process that starts after the loss finds it too.
func TestTruncatedWhileDown(t *testing.T) {
	sparse(t, func(s *scene) {
		s.SendSparse("a b c")
		_, end := s.Consume("a", enginetest.InsertBatch, sluice.Config{})
		time.Sleep(10 * time.Second)
		end()
		s.Hub.Truncate("0", 1)
		s.SendSparse("B C D")
		_, end = s.Consume("b", enginetest.InsertBatch, sluice.Config{})
		time.Sleep(time.Minute)
		end()
		s.wantTruncated(1, 2)
	})
}

// Events that were read ahead, and not done, are no loss: others have their numbers now.
func TestTruncatedReadAhead(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("a b c")
		hold := make(chan struct{})
		_, end := s.Consume("a", func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
			if b.Events[0].Sequence > 0 {
				<-hold
			}
			return enginetest.InsertBatch(ctx, tx, b)
		}, sluice.Config{MaxBatch: 1})
		time.Sleep(10 * time.Second)
		s.Hub.Truncate("0", 2)
		s.SendSparse("C D")
		close(hold)
		time.Sleep(time.Minute)
		end()
		bodies := 0
		if stopped := s.Observations(driver.KindHalted); len(stopped) > 0 {
			for _, o := range stopped {
				t.Log(o.Err)
			}
			bodies = -1
		}
		if got := s.Rows(); bodies < 0 && len(got) != 3 || bodies == 0 && !slices.Equal(got, []int64{0, 1, 2, 3}) {
			t.Errorf("rows %v", got)
		}
	})
}

// In the second delivery what was done after the checkpoint counts too.
func TestTruncatedStream(t *testing.T) {
	for name, stays := range map[string]bool{"process stays": true, "process is new": false} {
		t.Run(name, func(t *testing.T) {
			sparse(t, func(s *scene) {
				t := s.T
				s.SendSparse("a slow b c - d")
				w := enginetest.NewWarehouse(t)
				w.HangsAt(1)
				kill := s.begin(w, nil)
				if !stays {
					kill()
				}
				s.Hub.Truncate("0", 3)
				s.SendSparse("C D E F")
				if !stays {
					_, stop := s.Pour(w, nil, sluice.Config{})
					time.Sleep(2 * time.Minute)
					defer stop()
				}
				time.Sleep(2 * time.Minute)
				s.wantTruncated(3, 5)
				if n := w.Tries(6); n != 0 {
					t.Error("an event after the loss was written")
				}
				if stays {
					kill()
				}
			})
		})
	}
}

// The leader changes and loses nothing: what was done after the checkpoint is of both epochs, and
// nothing is taken for a loss.
func TestLeaderThatLosesNothing(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("slow a b")
		s.Hub.Truncate("0", 3)
		s.SendSparse("c d -")
		w := enginetest.NewWarehouse(t)
		w.HangsAt(0)
		w.Says = func(e *sluice.Event, _ int) error {
			if e.Sequence == 4 {
				return driver.Reject(errors.New("no"))
			}
			return nil
		}
		s.killed(w, nil)
		w.Takes = nil
		s.finishes(w)
		if stopped := s.Observations(driver.KindHalted); len(stopped) > 0 || s.Position("0") != 5 || len(s.Letters()) != 1 || w.Tries(4) != 1 {
			t.Errorf("halts %+v, checkpoint at %d, dead letters %+v, %d attempts at event 4", stopped, s.Position("0"), s.Letters(), w.Tries(4))
		}
		if got := slices.Compact(enginetest.Sorted(w.Rows())); !slices.Equal(got, []int64{0, 1, 2, 3}) {
			t.Errorf("events %v were written", got)
		}
	})
}

// A dead letter whose body is not stored does not become the event that has its number now.
func TestTruncatedRedrive(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("a reject b")
		_, end := s.Consume("a", enginetest.InsertRedriven, sluice.Config{BodyLimit: -1})
		time.Sleep(time.Minute)
		end()
		s.Hub.Truncate("0", 1)
		s.SendSparse("another B C")
		s.RedriveAll()
		_, end = s.Consume("b", enginetest.InsertRedriven, sluice.Config{BodyLimit: -1})
		time.Sleep(time.Minute)
		end()
		letters := s.Letters(sluice.StatusDead)
		if len(letters) != 1 || !strings.Contains(letters[0].Error, "event 1: the log has lost it and has another event of this number") || !slices.Equal(s.Rows(), []int64{0, 2}) {
			t.Errorf("rows %v, dead letters %+v", s.Rows(), letters)
		}
	})
}

// A dead letter of an event that a later leader has written is no loss, although the checkpoint is
// of an earlier one.
func TestDeadLetterAfterAnotherLeader(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("slow a b")
		s.Hub.Truncate("0", 3)
		s.SendSparse("c reject d")
		w := enginetest.NewWarehouse(t)
		w.HangsAt(0)
		w.Says = func(e *sluice.Event, _ int) error {
			if e.Sequence == 4 {
				return driver.Reject(errors.New("no"))
			}
			return nil
		}
		for _, cfg := range []*sluice.AtLeastOnceConfig{nil, {MaxEvents: 2}} {
			s.killed(w, cfg)
			time.Sleep(time.Minute)
		}
		w.Takes = nil
		s.finishes(w)
		if stopped := s.Observations(driver.KindHalted); len(stopped) > 0 || s.Position("0") != 5 || len(s.Letters()) != 1 || w.Tries(4) != 1 {
			t.Errorf("halts %+v, checkpoint at %d, dead letters %+v, %d attempts at event 4", stopped, s.Position("0"), s.Letters(), w.Tries(4))
		}
	})
}

// textStore keeps keys as a database does whose texts are UTF-8 without NUL.
type textStore struct{ *sluicetest.Store }

func (s textStore) Held(ctx context.Context, group driver.Group, partition string, except []int64) ([]driver.HeldKey, error) {
	held, err := s.Store.Held(ctx, group, partition, except)
	for i := range held {
		held[i].Key = strings.ReplaceAll(strings.ToValidUTF8(held[i].Key, "\uFFFD"), "\x00", "\uFFFD")
	}
	return held, err
}

// A key that is no text holds its later events back after a restart too.
func TestKeyThatIsNoText(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		w := enginetest.NewWarehouse(t)
		w.Says = func(e *sluice.Event, _ int) error {
			if e.Sequence == 0 {
				return driver.Reject(errors.New("no"))
			}
			return nil
		}
		for n := range 2 {
			s.Hub.Append("0", &sluice.Event{Key: "a\x00\xff", Body: []byte("x")})
			_, stop := s.Run(s.Hub, sluice.AtLeastOnce(textStore{s.Store}, sluice.EventAsRecord, w, &sluice.AtLeastOnceConfig{OnDeadLetter: sluice.KeyHold}), sluice.Config{Owner: fmt.Sprint(n)})
			time.Sleep(20 * time.Second)
			stop()
		}
		if letters := s.Letters(); len(letters) != 2 || w.Tries(1) != 0 {
			t.Errorf("dead letters %+v, %d attempts at the second event, want it held back", letters, w.Tries(1))
		}
	})
}

// Events with an empty key are ordered, those without a key are not.
func TestEmptyKeyIsOrdered(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		w := enginetest.NewWarehouse(t)
		w.Takes = func(e *sluice.Event) time.Duration { return time.Duration(10-e.Sequence) * time.Millisecond }
		for n := range 10 {
			s.Hub.Append("0", &sluice.Event{EmptyKey: n < 5, Body: []byte("x")})
		}
		_, stop := s.Pour(w, nil, sluice.Config{})
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		var keyed []int64
		for _, n := range w.Rows() {
			if n < 5 {
				keyed = append(keyed, n)
			}
		}
		if !slices.IsSorted(keyed) || len(w.Rows()) != 10 || slices.IsSorted(w.Rows()) {
			t.Errorf("written in the order %v, want the first five in order, the others not", w.Rows())
		}
	})
}
