package sluice_test

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
	"github.com/sluice-go/sluice/sluicetest"
)

// sparse is [stage] with a topic whose numbers may be missing.
func sparse(t *testing.T, run func(*scene)) {
	t.Helper()
	stage(t, 1, func(s *scene) {
		s.hub.Sparse()
		run(s)
	})
}

// mix appends an event for each word, and takes a number without an event for each "-".
func (s *scene) mix(words string) {
	var events []*sluice.Event
	for _, word := range strings.Fields(words) {
		events = append(events, &sluice.Event{Body: []byte(word), Control: word == "-"})
	}
	s.hub.Append("0", events...)
}

// begin runs a consumer that writes to w for 20 seconds, and then until it is killed.
func (s *scene) begin(w *warehouse, cfg *sluice.AtLeastOnceConfig) (kill func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	c := must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(s.store, sluice.EventAsRecord, w, cfg), &sluice.Config{Observer: s}))
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	time.Sleep(20 * time.Second)
	return func() { cancel(); <-ran }
}

// killed runs a consumer that writes to w, and kills it while an event hangs there.
func (s *scene) killed(w *warehouse, cfg *sluice.AtLeastOnceConfig) { s.begin(w, cfg)() }

// finishes runs a consumer that writes to w until all is done.
func (s *scene) finishes(w *warehouse) {
	s.t.Helper()
	_, stop := s.pour(w, nil, sluice.Config{})
	time.Sleep(2 * time.Minute)
	if err := stop(); err != nil {
		s.t.Fatal(err)
	}
}

// moved sums what the checkpoint's moves say, and returns the lag that the last one left.
func (s *scene) moved() (commits, events int, lag int64) {
	for _, o := range s.of(driver.KindCommitted) {
		commits, events, lag = commits+1, events+o.Events, o.Lag
	}
	return commits, events, lag
}

// wantDone checks that the events of these numbers were done, each once and no other, that the
// checkpoint is at a position and that nothing is left to do.
func (s *scene) wantDone(rows, want []int64, at int64) {
	s.t.Helper()
	_, events, lag := s.moved()
	fetched := 0
	for _, o := range s.of(driver.KindFetched) {
		fetched += o.Events
	}
	if !slices.Equal(rows, want) || events != len(want) || fetched != len(want) {
		s.t.Errorf("events %v are done, %d observed as committed and %d as fetched; want %v", rows, events, fetched, want)
	}
	if got := s.position("0"); got != at || lag != 0 {
		s.t.Errorf("the checkpoint is at %d with a lag of %d, want %d and 0", got, lag, at)
	}
	for _, k := range []driver.ObservationKind{driver.KindFailed, driver.KindStopped, driver.KindStalled} {
		for _, o := range s.of(k) {
			s.t.Errorf("reported %v", o.Err)
		}
	}
}

// Numbers without an event are passed, wherever they are: no handler sees one, no count has one,
// and the checkpoint comes to the end also where they are the last.
func TestSparse(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.t
		s.mix("- a - - b c - d - - -")
		sizes := 0
		_, end := s.consume("a", func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
			sizes = max(sizes, len(b.Events))
			time.Sleep(time.Second) // meanwhile the buffer fills
			return whole(ctx, tx, b)
		}, sluice.Config{MaxBatch: 3})
		time.Sleep(10 * time.Second)
		s.wantDone(s.rows(), []int64{1, 4, 5, 7}, 10)
		s.mix("e -")
		time.Sleep(10 * time.Second)
		s.mix("- -")
		time.Sleep(10 * time.Minute) // the reader that returns nothing is not silent
		end()
		s.wantDone(s.rows(), []int64{1, 4, 5, 7, 11}, 14)
		if sizes != 3 {
			t.Errorf("the largest batch has %d events, want 3", sizes)
		}
	})
}

// Numbers without an event that were read with the last event are passed in its transaction. Those
// that come later have one of their own, but no more than one a second.
func TestSparsePassesSeldom(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.t
		s.mix("a - - b - -")
		_, end := s.consume("a", whole, sluice.Config{})
		time.Sleep(5 * time.Second)
		if commits, _, _ := s.moved(); commits != 1 || s.position("0") != 5 {
			t.Errorf("%d transactions up to %d, want 1 up to 5", commits, s.position("0"))
		}
		for range 100 {
			s.mix("-")
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(1100 * time.Millisecond)
		if commits, _, lag := s.moved(); commits < 8 || commits > 13 || s.position("0") != 105 || lag != 0 {
			t.Errorf("%d transactions up to %d with a lag of %d, want about one a second up to 105", commits, s.position("0"), lag)
		}
		end()
	})
}

// A failure in a batch around numbers without an event blames the event, and its dead letter
// leaves none of them behind.
func TestSparseFailures(t *testing.T) {
	for name, h := range map[string]sluice.Handler[*sluicetest.Tx]{"each": sluice.Each(insert), "whole": whole} {
		t.Run(name, func(t *testing.T) {
			sparse(t, func(s *scene) {
				t := s.t
				s.mix("a - reject - b - - c bad - - -")
				_, end := s.consume("a", h, sluice.Config{})
				time.Sleep(time.Minute)
				end()
				letters := s.letters()
				if len(letters) != 2 || letters[0].Event.Sequence != 2 || letters[1].Event.Sequence != 8 || s.position("0") != 11 || !slices.Equal(s.rows(), []int64{0, 4, 7}) {
					t.Errorf("rows %v, dead letters %+v, checkpoint at %d", s.rows(), letters, s.position("0"))
				}
			})
		})
	}
}

// The event that ends the process is found, although a batch spans more numbers than MaxBatch.
func TestSparseSuspect(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.t
		const apart = 3000 // so a batch of twenty events spans 60,000 numbers
		for range 20 {
			s.mix("good" + strings.Repeat(" -", apart-1))
		}
		deaths := 0
		for n := range 20 {
			if !s.life(n, func(b sluice.Batch) bool {
				return slices.ContainsFunc(b.Events, func(e *sluice.Event) bool { return e.Sequence == 5*apart })
			}) {
				break
			}
			deaths++
		}
		if letters := s.letters(); deaths > 8 || len(letters) != 1 || letters[0].Event.Sequence != 5*apart || len(s.rows()) != 19 {
			t.Errorf("%d deaths, %d rows, dead letters %+v", deaths, len(s.rows()), letters)
		}
	})
}

// lateEvent is a log that returns a marker alone, and the event after it 20 seconds later.
type lateEvent struct{ driver.Source }

type lateReader struct {
	driver.Reader
	since time.Time
}

func (l lateEvent) Open(ctx context.Context, partition string, after driver.Position, epoch int64) (driver.Reader, error) {
	r, err := l.Source.Open(ctx, partition, after, epoch)
	return &lateReader{r, time.Now()}, err
}

func (l *lateReader) Read(ctx context.Context, max int) ([]*sluice.Event, error) {
	events, err := l.Reader.Read(ctx, min(max, 1))
	if err == nil && !events[0].Control {
		select {
		case <-time.After(20*time.Second - time.Since(l.since)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return events, err
}

// The attempts at an event that are on record stay there, although numbers before it are passed.
func TestSparseKeepsAttempts(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.t
		s.mix("- - - - bad") // the hub marks number 3 too
		tries := 0
		for n := range 3 {
			var source driver.Source = s.hub
			if n > 0 {
				source = lateEvent{s.hub}
			}
			_, end := s.run(source, sluice.Transactional(s.store, sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
				tries++
				return insert(ctx, tx, e)
			})), sluice.Config{Owner: fmt.Sprint("a", n), RetryMin: time.Hour, RetryMax: time.Hour})
			time.Sleep(time.Minute)
			end()
			if got := s.attempt("0"); n == 0 && (got.Attempts != 1 || s.position("0") != -1) {
				t.Fatalf("on record %+v at %d, want one attempt before any number was passed", got, s.position("0"))
			}
		}
		if tries != 3 || len(s.letters()) != 1 {
			t.Errorf("%d tries, %d dead letters", tries, len(s.letters()))
		}
	})
}

// The second delivery passes such numbers too, and also if there never was an event.
func TestSparseStream(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.t
		s.mix("- -")
		w := newWarehouse(t)
		_, stop := s.pour(w, &sluice.AtLeastOnceConfig{CheckpointEvery: time.Second}, sluice.Config{})
		time.Sleep(10 * time.Second)
		s.wantDone(w.rows(), nil, 1)
		s.mix("- a - b - -")
		time.Sleep(10 * time.Second)
		s.wantDone(sorted(w.rows()), []int64{3, 5}, 7)
		w.takes = func(*sluice.Event) time.Duration { return 20 * time.Second }
		s.mix("c - - -")
		time.Sleep(15 * time.Second)
		if got := s.position("0"); got != 7 {
			t.Errorf("the checkpoint is at %d while event 8 is in flight, want 7", got)
		}
		time.Sleep(10 * time.Second)
		s.wantDone(sorted(w.rows()), []int64{3, 5, 8}, 11)
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.wantDone(sorted(w.rows()), []int64{3, 5, 8}, 11)
	})
}

// What was done after the checkpoint is not repeated, and numbers without an event change nothing.
func TestSparseStreamRestarts(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.t
		s.mix("slow - a - b - c - -")
		w := newWarehouse(t)
		w.hangsAt(0)
		s.killed(w, nil)
		w.takes = nil
		s.finishes(w)
		if got := sorted(w.rows()); !slices.Equal(got, []int64{0, 2, 4, 6}) || s.position("0") != 8 {
			t.Errorf("events %v were written, and the checkpoint is at %d; want each once, and 8", got, s.position("0"))
		}
	})
}

// A replay has caught up when it has read to the end, although no event is there, and before the
// first event after it.
func TestSparseReplay(t *testing.T) {
	for name, log := range map[string]string{"the end has no event": "a - b - -", "only such numbers": "- - -", "events": "- a"} {
		t.Run(name, func(t *testing.T) {
			sparse(t, func(s *scene) {
				t := s.t
				s.mix(log)
				r := &recollection{}
				stop := s.remember(s.hub, r, sluice.Earliest())
				time.Sleep(5 * time.Second)
				before, _ := r.now()
				s.mix("- c -")
				time.Sleep(5 * time.Second)
				memory, told := r.now()
				if want := fmt.Sprintf("caught up with %d", len(before)); len(memory) != len(before)+1 || !slices.Equal(told, []string{want}) {
					t.Errorf("in memory %v, then %v; told %q, want %q", before, memory, told, want)
				}
				if _, events, lag := s.moved(); events != len(memory) || lag != 0 {
					t.Errorf("%d events observed, with a lag of %d", events, lag)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// between is a log whose end is a number without an event when a replay asks for it, and which has
// further events when it is read.
type between struct {
	driver.Source
	append func()
}

func (b *between) Open(ctx context.Context, partition string, after driver.Position, epoch int64) (driver.Reader, error) {
	if b.append != nil {
		b.append()
		b.append = nil
	}
	return b.Source.Open(ctx, partition, after, epoch)
}

// CaughtUp comes before the events that were sent after the assignment began.
func TestSparseReplayOfALogThatGrows(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.t
		s.mix("a b - -")
		r := &recollection{}
		stop := s.remember(&between{s.hub, func() { s.mix("- c d") }}, r, sluice.Earliest())
		time.Sleep(5 * time.Second)
		if memory, told := r.now(); !slices.Equal(memory, []int64{0, 1, 5, 6}) || !slices.Equal(told, []string{"caught up with 2"}) {
			t.Errorf("in memory %v, told %q, want CaughtUp after two events", memory, told)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// A dead letter whose body is not stored, and whose event compaction has removed, says so.
func TestSparseRedriveOfACompactedEvent(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.t
		s.mix("a reject b -")
		_, end := s.consume("a", mended, sluice.Config{BodyLimit: -1})
		time.Sleep(time.Minute)
		s.hub.Compact("0", 1)
		s.retry()
		time.Sleep(time.Minute)
		end()
		if letters := s.letters(sluice.StatusDead); len(letters) != 1 || !strings.Contains(letters[0].Error, "event 1: the log does not hold it any more") {
			t.Errorf("dead letters %+v", letters)
		}
	})
}

// After an operator has set the checkpoint back, the dead letter of an event that is read again is
// settled, and that of an event that the log does not hold any more stays.
func TestSparseSetBack(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.t
		s.mix("a reject reject b reject - reject c -")
		_, end := s.consume("a", mended, sluice.Config{})
		time.Sleep(time.Minute)
		end()
		s.hub.Compact("0", 2, 6)
		topic := must(s.hub.Describe(t.Context()))
		must(s.store.Reset(t.Context(), group, "0", topic.Incarnation, driver.Origin, "set"))
		_, end = s.consume("b", whole2, sluice.Config{})
		time.Sleep(time.Minute)
		end()
		var left []int64
		for _, l := range s.letters() {
			left = append(left, l.Event.Sequence)
		}
		if !slices.Equal(left, []int64{2, 6}) || s.position("0") != 8 {
			t.Errorf("dead letters of %v are left, checkpoint at %d; want 2 and 6, and 8", left, s.position("0"))
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
	s.t.Helper()
	stopped := s.of(driver.KindStopped)
	truncated := new(driver.TruncatedError)
	if len(stopped) != 1 || !errors.As(stopped[0].Err, &truncated) || !errors.Is(stopped[0].Err, sluice.ErrTruncated) || truncated.Partition != "0" || truncated.End != end || truncated.Position.Sequence != last {
		s.t.Fatalf("reported %+v, want the loss of %d to %d, once", stopped, end, last)
	}
}

// Where the log has lost events that were done and gives their numbers to others, the partition
// halts until an operator has set the checkpoint.
func TestTruncated(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.t
		s.mix("a b - c d -")
		_, end := s.consume("a", whole, sluice.Config{})
		time.Sleep(10 * time.Second)
		s.hub.Truncate("0", 3)
		s.mix("C D E F -")
		time.Sleep(time.Minute)
		s.wantTruncated(3, 5)
		if got := s.rows(); !slices.Equal(got, []int64{0, 1, 3, 4}) {
			t.Errorf("rows %v", got)
		}
		topic := must(s.hub.Describe(t.Context()))
		must(s.store.Reset(t.Context(), group, "0", topic.Incarnation, driver.Position{Sequence: 2}, "set"))
		time.Sleep(time.Minute)
		end()
		if got := s.rows(); !slices.Equal(got, []int64{0, 1, 3, 4, 3, 4, 5, 6}) || s.position("0") != 7 {
			t.Errorf("rows %v, checkpoint at %d", got, s.position("0"))
		}
	})
}

// A process that starts after the loss finds it too.
func TestTruncatedWhileDown(t *testing.T) {
	sparse(t, func(s *scene) {
		s.mix("a b c")
		_, end := s.consume("a", whole, sluice.Config{})
		time.Sleep(10 * time.Second)
		end()
		s.hub.Truncate("0", 1)
		s.mix("B C D")
		_, end = s.consume("b", whole, sluice.Config{})
		time.Sleep(time.Minute)
		end()
		s.wantTruncated(1, 2)
	})
}

// Events that were read ahead, and not done, are no loss: others have their numbers now.
func TestTruncatedReadAhead(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.t
		s.mix("a b c")
		hold := make(chan struct{})
		_, end := s.consume("a", func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
			if b.Events[0].Sequence > 0 {
				<-hold
			}
			return whole(ctx, tx, b)
		}, sluice.Config{MaxBatch: 1})
		time.Sleep(10 * time.Second)
		s.hub.Truncate("0", 2)
		s.mix("C D")
		close(hold)
		time.Sleep(time.Minute)
		end()
		bodies := 0
		if stopped := s.of(driver.KindStopped); len(stopped) > 0 {
			for _, o := range stopped {
				t.Log(o.Err)
			}
			bodies = -1
		}
		if got := s.rows(); bodies < 0 && len(got) != 3 || bodies == 0 && !slices.Equal(got, []int64{0, 1, 2, 3}) {
			t.Errorf("rows %v", got)
		}
	})
}

// A replay starts over.
func TestTruncatedReplay(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.t
		s.mix("a b c")
		r := &recollection{}
		stop := s.remember(s.hub, r, sluice.Earliest())
		time.Sleep(10 * time.Second)
		s.hub.Truncate("0", 1)
		s.mix("B")
		time.Sleep(time.Minute)
		memory, told := r.now()
		if !slices.Equal(memory, []int64{0, 1}) || len(told) != 3 || !strings.Contains(told[1], "the log lost events 1 to 2") {
			t.Errorf("in memory %v, told %q", memory, told)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// In the second delivery what was done after the checkpoint counts too.
func TestTruncatedStream(t *testing.T) {
	for name, stays := range map[string]bool{"process stays": true, "process is new": false} {
		t.Run(name, func(t *testing.T) {
			sparse(t, func(s *scene) {
				t := s.t
				s.mix("a slow b c - d")
				w := newWarehouse(t)
				w.hangsAt(1)
				kill := s.begin(w, nil)
				if !stays {
					kill()
				}
				s.hub.Truncate("0", 3)
				s.mix("C D E F")
				if !stays {
					_, stop := s.pour(w, nil, sluice.Config{})
					time.Sleep(2 * time.Minute)
					defer stop()
				}
				time.Sleep(2 * time.Minute)
				s.wantTruncated(3, 5)
				if n := w.tries(6); n != 0 {
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
		t := s.t
		s.mix("slow a b")
		s.hub.Truncate("0", 3)
		s.mix("c d -")
		w := newWarehouse(t)
		w.hangsAt(0)
		w.says = func(e *sluice.Event, _ int) error {
			if e.Sequence == 4 {
				return driver.Reject(errors.New("no"))
			}
			return nil
		}
		s.killed(w, nil)
		w.takes = nil
		s.finishes(w)
		if stopped := s.of(driver.KindStopped); len(stopped) > 0 || s.position("0") != 5 || len(s.letters()) != 1 || w.tries(4) != 1 {
			t.Errorf("halts %+v, checkpoint at %d, dead letters %+v, %d attempts at event 4", stopped, s.position("0"), s.letters(), w.tries(4))
		}
		if got := slices.Compact(sorted(w.rows())); !slices.Equal(got, []int64{0, 1, 2, 3}) {
			t.Errorf("events %v were written", got)
		}
	})
}

// A dead letter whose body is not stored does not become the event that has its number now.
func TestTruncatedRedrive(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.t
		s.mix("a reject b")
		_, end := s.consume("a", mended, sluice.Config{BodyLimit: -1})
		time.Sleep(time.Minute)
		end()
		s.hub.Truncate("0", 1)
		s.mix("another B C")
		s.retry()
		_, end = s.consume("b", mended, sluice.Config{BodyLimit: -1})
		time.Sleep(time.Minute)
		end()
		letters := s.letters(sluice.StatusDead)
		if len(letters) != 1 || !strings.Contains(letters[0].Error, "event 1: the log has lost it and has another event of this number") || !slices.Equal(s.rows(), []int64{0, 2}) {
			t.Errorf("rows %v, dead letters %+v", s.rows(), letters)
		}
	})
}

// A dead letter of an event that a later leader has written is no loss, although the checkpoint is of
// an earlier one.
func TestDeadLetterAfterAnotherLeader(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.t
		s.mix("slow a b")
		s.hub.Truncate("0", 3)
		s.mix("c reject d")
		w := newWarehouse(t)
		w.hangsAt(0)
		w.says = func(e *sluice.Event, _ int) error {
			if e.Sequence == 4 {
				return driver.Reject(errors.New("no"))
			}
			return nil
		}
		for _, cfg := range []*sluice.AtLeastOnceConfig{nil, {MaxEvents: 2}} {
			s.killed(w, cfg)
			time.Sleep(time.Minute)
		}
		w.takes = nil
		s.finishes(w)
		if stopped := s.of(driver.KindStopped); len(stopped) > 0 || s.position("0") != 5 || len(s.letters()) != 1 || w.tries(4) != 1 {
			t.Errorf("halts %+v, checkpoint at %d, dead letters %+v, %d attempts at event 4", stopped, s.position("0"), s.letters(), w.tries(4))
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
		t := s.t
		w := newWarehouse(t)
		w.says = func(e *sluice.Event, _ int) error {
			if e.Sequence == 0 {
				return driver.Reject(errors.New("no"))
			}
			return nil
		}
		for n := range 2 {
			s.hub.Append("0", &sluice.Event{Key: "a\x00\xff", Body: []byte("x")})
			_, stop := s.run(s.hub, sluice.AtLeastOnce(textStore{s.store}, sluice.EventAsRecord, w, &sluice.AtLeastOnceConfig{OnDeadLetter: sluice.KeyHold}), sluice.Config{Owner: fmt.Sprint(n)})
			time.Sleep(20 * time.Second)
			stop()
		}
		if letters := s.letters(); len(letters) != 2 || w.tries(1) != 0 {
			t.Errorf("dead letters %+v, %d attempts at the second event, want it held back", letters, w.tries(1))
		}
	})
}

// Events with an empty key are ordered, those without a key are not.
func TestEmptyKeyIsOrdered(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.t
		w := newWarehouse(t)
		w.takes = func(e *sluice.Event) time.Duration { return time.Duration(10-e.Sequence) * time.Millisecond }
		for n := range 10 {
			s.hub.Append("0", &sluice.Event{EmptyKey: n < 5, Body: []byte("x")})
		}
		_, stop := s.pour(w, nil, sluice.Config{})
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		var keyed []int64
		for _, n := range w.rows() {
			if n < 5 {
				keyed = append(keyed, n)
			}
		}
		if !slices.IsSorted(keyed) || len(w.rows()) != 10 || slices.IsSorted(w.rows()) {
			t.Errorf("written in the order %v, want the first five in order, the others not", w.rows())
		}
	})
}
