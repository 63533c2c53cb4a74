package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicetest"
)

// warehouse is a sink whose records are events: it takes its time, and says
// no as it is told to.
type warehouse struct {
	t     *testing.T
	takes func(e *sluice.Event) time.Duration
	says  func(e *sluice.Event, attempt int) error

	mu       sync.Mutex
	calls    sync.WaitGroup
	attempts map[int64]int
	written  []int64 // in the order of their completion
	sent     []time.Time
	flying   map[string]int
	most     map[string]int // in flight at once, by key
	all      int
	allMost  int
}

func newWarehouse(t *testing.T) *warehouse {
	w := &warehouse{t: t, attempts: map[int64]int{}, flying: map[string]int{}, most: map[string]int{}}
	t.Cleanup(w.calls.Wait)
	return w
}

func (w *warehouse) Submit(ctx context.Context, e *sluice.Event, done func(sluice.Result)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, time.Now())
	w.attempts[e.Sequence]++
	attempt := w.attempts[e.Sequence]
	w.flying[e.Key]++
	w.all++
	w.most[e.Key] = max(w.most[e.Key], w.flying[e.Key])
	w.allMost = max(w.allMost, w.all)
	takes := time.Millisecond
	if w.takes != nil {
		takes = w.takes(e)
	}
	w.calls.Go(func() {
		var err error
		select {
		case <-time.After(takes):
			if w.says != nil {
				err = w.says(e, attempt)
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
		w.mu.Lock()
		if err == nil {
			w.written = append(w.written, e.Sequence)
		}
		w.flying[e.Key]--
		w.all--
		w.mu.Unlock()
		done(sluice.Result{Err: err, Cost: 2})
	})
}

func (w *warehouse) rows() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.written)
}

func (w *warehouse) tries(sequence int64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.attempts[sequence]
}

// pour starts a consumer of the second delivery; the function it returns stops
// it and returns what Run did.
func (s *scene) pour(sink sluice.Sink[*sluice.Event], stream *sluice.StreamConfig[*sluice.Event], cfg sluice.Config) (*sluice.Consumer, func() error) {
	s.t.Helper()
	cfg.Observer = s
	c := must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(s.store, s.store, sluice.Itself, sink, stream), sluice.AllPartitions, &cfg))
	ran := make(chan error, 1)
	go func() { ran <- c.Run(s.t.Context()) }()
	return c, sync.OnceValue(func() error {
		if err := c.Stop(s.t.Context()); err != nil {
			return err
		}
		return <-ran
	})
}

func (s *scene) keyed(partition string, n int, key func(i int) string) {
	events := make([]*sluice.Event, n)
	for i := range events {
		events[i] = &sluice.Event{Key: key(i), Body: fmt.Appendf(nil, "%d", i)}
	}
	s.hub.Append(partition, events...)
}

func noKey(int) string { return "" }

func upTo(n int) (list []int64) {
	for i := range n {
		list = append(list, int64(i))
	}
	return list
}

func sorted(list []int64) []int64 { slices.Sort(list); return list }

func TestStreamWritesAllOutOfOrder(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.t
		s.keyed("0", 1000, noKey)
		w := newWarehouse(t)
		w.takes = func(e *sluice.Event) time.Duration { return time.Duration(1+e.Sequence*7919%997) * time.Millisecond }
		_, stop := s.pour(w, nil, sluice.Config{})
		time.Sleep(4 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		rows := w.rows()
		if slices.IsSorted(rows) {
			t.Error("completed in order: the test shows nothing")
		}
		if got := sorted(rows); !slices.Equal(got, upTo(1000)) {
			t.Errorf("%d rows written, want each of 1000 once", len(got))
		}
		if got := s.position("0"); got != 999 {
			t.Errorf("checkpoint at %d, want 999", got)
		}
		if n := s.count(sluice.KindWritten); n == 0 {
			t.Error("progress was not told")
		}
	})
}

func TestStreamOrders(t *testing.T) {
	for _, c := range []struct {
		order        sluice.Order
		perKey, most int
	}{{sluice.OrderKey, 1, 10}, {sluice.OrderPartition, 1, 1}, {sluice.OrderNone, 10, 100}} {
		t.Run(fmt.Sprint(c.order), func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				t := s.t
				s.keyed("0", 100, func(i int) string { return fmt.Sprint("k", i%10) })
				w := newWarehouse(t)
				w.takes = func(e *sluice.Event) time.Duration { return time.Duration(50-e.Sequence/2) * time.Millisecond }
				failed := map[int64]bool{}
				w.says = func(e *sluice.Event, attempt int) error {
					w.mu.Lock()
					defer w.mu.Unlock()
					if e.Sequence%3 == 0 && !failed[e.Sequence] {
						failed[e.Sequence] = true
						return sluice.RetryAfter(errors.New("busy"), 30*time.Millisecond)
					}
					return nil
				}
				_, stop := s.pour(w, &sluice.StreamConfig[*sluice.Event]{Order: c.order}, sluice.Config{})
				time.Sleep(30 * time.Second)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				rows := w.rows()
				if len(rows) != 100 {
					t.Fatalf("%d rows, want 100", len(rows))
				}
				if got := slices.Max(slices.Collect(maps.Values(w.most))); got != c.perKey {
					t.Errorf("%d of a key in flight together, want %d", got, c.perKey)
				}
				if w.allMost != c.most {
					t.Errorf("%d in flight together, want %d", w.allMost, c.most)
				}
				if c.order == sluice.OrderNone {
					return
				}
				last := map[int64]int64{}
				for _, n := range rows {
					if before, ok := last[n%10]; ok && before > n {
						t.Errorf("event %d written before %d of the same key", before, n)
					}
					last[n%10] = n
				}
			})
		})
	}
}

// A crash repeats what was in flight or done since the last checkpoint, and
// nothing else.
func TestStreamRestart(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.t
		s.keyed("0", 100, noKey)
		w := newWarehouse(t)
		w.takes = func(e *sluice.Event) time.Duration {
			if e.Sequence == 3 || e.Sequence == 50 {
				return time.Hour
			}
			return time.Millisecond
		}
		ctx, crash := context.WithCancel(t.Context())
		c := must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(s.store, s.store, sluice.Itself, w, nil), sluice.AllPartitions, &sluice.Config{Owner: "first"}))
		s.leases.cutOff("none")
		ran := make(chan error, 1)
		go func() { ran <- c.Run(ctx) }()
		time.Sleep(10 * time.Second)
		if got := s.position("0"); got != 2 {
			t.Errorf("checkpoint at %d before event 3 is done, want 2", got)
		}
		crash()
		<-ran

		again := newWarehouse(t)
		_, stop := s.pour(again, nil, sluice.Config{Owner: "second"})
		time.Sleep(40 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := sorted(again.rows()); !slices.Equal(got, []int64{3, 50}) {
			t.Errorf("written again: %v, want 3 and 50", got)
		}
		if got := s.position("0"); got != 99 {
			t.Errorf("checkpoint at %d, want 99", got)
		}
	})
}

// What an earlier tenure has done is not forgotten by a later one that has not
// come so far yet.
func TestStreamRestartsTwice(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.t
		s.keyed("0", 3000, noKey)
		stuck := map[int64]bool{3: true, 2500: true}
		run := func(limit int) []int64 {
			w := newWarehouse(t)
			w.takes = func(e *sluice.Event) time.Duration {
				if stuck[e.Sequence] {
					return time.Hour
				}
				return time.Millisecond
			}
			ctx, crash := context.WithCancel(t.Context())
			c := must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(s.store, s.store, sluice.Itself, w, &sluice.StreamConfig[*sluice.Event]{MaxEvents: limit}), sluice.AllPartitions, nil))
			ran := make(chan error, 1)
			go func() { ran <- c.Run(ctx) }()
			time.Sleep(20 * time.Second)
			crash()
			<-ran
			return sorted(w.rows())
		}
		if got := run(10_000); len(got) != 2998 {
			t.Errorf("%d written at first, want 2998", len(got))
		}
		// The second comes only as far as its limit allows.
		if got := run(100); len(got) != 0 {
			t.Errorf("written again: %v", got)
		}
		delete(stuck, 3)
		if got := run(10_000); !slices.Equal(got, []int64{3}) {
			t.Errorf("written again: %v, want 3", got)
		}
		stuck = nil
		if got := run(10_000); !slices.Equal(got, []int64{2500}) {
			t.Errorf("written again: %v, want 2500", got)
		}
		if got := s.position("0"); got != 2999 {
			t.Errorf("checkpoint at %d, want 2999", got)
		}
	})
}

func TestStreamDeadLetters(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.t
		s.send("0", "good", "reject 1", "good", "bad 3", "unmade 4", "panic 5", "good")
		w := newWarehouse(t)
		w.says = func(e *sluice.Event, _ int) error {
			switch body := string(e.Body); {
			case strings.HasPrefix(body, "reject"):
				return sluice.Reject(errors.New(body))
			case strings.HasPrefix(body, "bad"):
				return errors.New(body)
			}
			return nil
		}
		records := func(_ context.Context, e *sluice.Event) ([]*sluice.Event, error) {
			switch body := string(e.Body); {
			case strings.HasPrefix(body, "unmade"):
				return nil, errors.New(body)
			case strings.HasPrefix(body, "panic"):
				panic(body)
			}
			return []*sluice.Event{e}, nil
		}
		c := must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(s.store, s.store, records, w, nil), sluice.AllPartitions, &sluice.Config{Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(10 * time.Second)
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-ran
		var got []string
		for _, d := range s.letters() {
			got = append(got, fmt.Sprintf("%d %d %s", d.Event.Sequence, d.Attempts, d.Error))
		}
		want := []string{"1 1 reject 1", "3 3 bad 3", "4 1 make records: unmade 4", "5 1 make records: panic: panic 5"}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("dead letters %q, want %q", got, want)
		}
		if got := w.tries(3); got != 3 {
			t.Errorf("%d attempts at event 3, want 3", got)
		}
		if got := s.position("0"); got != 6 {
			t.Errorf("checkpoint at %d, want 6", got)
		}
	})
}

// The checkpoint does not pass an event whose dead letter could not be stored.
func TestStreamLettersComeFirst(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.t
		s.send("0", "good", "reject 1", "good")
		w := newWarehouse(t)
		w.says = func(e *sluice.Event, _ int) error {
			if strings.HasPrefix(string(e.Body), "reject") {
				return sluice.Reject(errors.New("no"))
			}
			return nil
		}
		letters := &failingLetters{LetterStore: s.store, err: errors.New("no room")}
		c := must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(s.store, letters, sluice.Itself, w, nil), sluice.AllPartitions, &sluice.Config{Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(20 * time.Second)
		if got := s.position("0"); got != 0 {
			t.Errorf("checkpoint at %d while the dead letter of event 1 is not stored, want 0", got)
		}
		letters.mend()
		time.Sleep(20 * time.Second)
		if got := s.position("0"); got != 2 || len(s.letters()) != 1 {
			t.Errorf("checkpoint at %d and %d dead letters, want 2 and 1", got, len(s.letters()))
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-ran
	})
}

type failingLetters struct {
	sluice.LetterStore
	mu  sync.Mutex
	err error
}

func (l *failingLetters) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = nil
}

func (l *failingLetters) Park(ctx context.Context, letters []sluice.DeadLetter) error {
	l.mu.Lock()
	err := l.err
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.LetterStore.Park(ctx, letters)
}

func TestStreamRetriesForever(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.t
		s.keyed("0", 10, noKey)
		w := newWarehouse(t)
		began := time.Now()
		w.says = func(e *sluice.Event, attempt int) error {
			if e.Sequence == 4 && attempt <= 50 {
				return sluice.RetryAfter(errors.New("429"), 0)
			}
			return nil
		}
		_, stop := s.pour(w, nil, sluice.Config{})
		time.Sleep(3 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := w.tries(4); got != 51 {
			t.Errorf("%d attempts, want 51", got)
		}
		if took := w.sent[len(w.sent)-1].Sub(began); took < 100*time.Second || took > 105*time.Second {
			t.Errorf("50 waits of 2 s took %v", took)
		}
		if len(s.letters()) != 0 || s.position("0") != 9 {
			t.Errorf("%d dead letters, checkpoint at %d", len(s.letters()), s.position("0"))
		}
	})
}

// An outage stops the partition, is tried by one record at a time, and is
// never held against an event.
func TestStreamOutage(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.t
		s.keyed("0", 2000, noKey)
		w := newWarehouse(t)
		began := time.Now()
		w.says = func(*sluice.Event, int) error {
			if time.Since(began) < 5*time.Minute {
				return sluice.Outage(errors.New("401: key is not valid"))
			}
			return nil
		}
		_, stop := s.pour(w, nil, sluice.Config{})
		time.Sleep(5 * time.Minute)
		w.mu.Lock()
		sent := len(w.sent)
		w.mu.Unlock()
		if sent > 2060 { // all that was in flight at first, and then one at a time
			t.Errorf("%d records sent in 5 minutes of outage: it was not held back", sent)
		}
		time.Sleep(30 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := sorted(w.rows()); !slices.Equal(got, upTo(2000)) {
			t.Errorf("%d rows written, want each of 2000 once", len(got))
		}
		if len(s.letters()) != 0 {
			t.Errorf("%d dead letters, want none", len(s.letters()))
		}
		if n := s.count(sluice.KindFailed); n == 0 || n > 60 {
			t.Errorf("the outage was told %d times", n)
		}
	})
}

func TestStreamHoldsKeys(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.t
		s.keyed("0", 60, func(i int) string { return fmt.Sprint("k", i%3) })
		w := newWarehouse(t)
		broken := true
		w.says = func(e *sluice.Event, _ int) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if broken && e.Sequence == 30 { // of k0
				return sluice.Reject(errors.New("no"))
			}
			return nil
		}
		cfg := &sluice.StreamConfig[*sluice.Event]{OnDeadLetter: sluice.HoldKey}
		_, stop := s.pour(w, cfg, sluice.Config{})
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := len(s.letters()); got != 10 {
			t.Errorf("%d dead letters, want event 30 and the 9 behind it of its key", got)
		}
		// Held back also after a restart.
		s.keyed("0", 3, func(i int) string { return fmt.Sprint("k", i%3) })
		_, stop = s.pour(w, cfg, sluice.Config{})
		time.Sleep(10 * time.Second)
		if got := len(s.letters()); got != 11 {
			t.Errorf("%d dead letters after a restart, want 11", got)
		}
		w.mu.Lock()
		broken = false
		w.mu.Unlock()
		must(s.store.Retry(t.Context(), group, sluice.DeadLetterFilter{}, time.Time{}))
		time.Sleep(10 * time.Second)
		s.keyed("0", 1, func(int) string { return "k0" })
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := s.letters(); len(got) != 0 {
			t.Errorf("%d dead letters left after a retry of all", len(got))
		}
		var k0 []int64
		for _, n := range w.rows() {
			if n%3 == 0 {
				k0 = append(k0, n)
			}
		}
		if !slices.IsSorted(k0) || len(k0) != 22 {
			t.Errorf("k0 was written as %v: not in order, or not all", k0)
		}
	})
}

func TestStreamRedrives(t *testing.T) {
	for name, limit := range map[string]int{"bodies": 0, "no bodies": -1} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				t := s.t
				s.keyed("0", 50, noKey)
				w := newWarehouse(t)
				broken := true
				w.says = func(e *sluice.Event, _ int) error {
					w.mu.Lock()
					defer w.mu.Unlock()
					if broken && e.Sequence%5 == 0 || e.Sequence == 7 {
						return sluice.Reject(errors.New("no"))
					}
					return nil
				}
				_, stop := s.pour(w, nil, sluice.Config{BodyLimit: limit})
				time.Sleep(10 * time.Second)
				if got := len(s.letters(sluice.StatusDead)); got != 11 {
					t.Fatalf("%d dead letters, want 11", got)
				}
				w.mu.Lock()
				broken = false
				w.mu.Unlock()
				must(s.store.Retry(t.Context(), group, sluice.DeadLetterFilter{}, time.Time{}))
				s.keyed("0", 50, noKey)
				time.Sleep(30 * time.Second)
				left := s.letters()
				if len(left) != 1 || left[0].Event.Sequence != 7 || left[0].Attempts != 2 || left[0].Status != sluice.StatusDead {
					t.Errorf("left: %+v, want event 7, tried twice", left)
				}
				// Without an owner the command does it.
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				must(s.store.Retry(t.Context(), group, sluice.DeadLetterFilter{}, time.Time{}))
				w.says = nil
				c := must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(s.store, s.store, sluice.Itself, w, nil), 1, nil))
				applied, failed, err := c.Redrive(t.Context())
				if applied != 1 || failed != 0 || err != nil {
					t.Errorf("redrive: %d applied, %d failed, %v", applied, failed, err)
				}
				want := upTo(100)
				if got := sorted(w.rows()); !slices.Equal(got, want) {
					t.Errorf("%d rows, want each of 100 once: %v", len(got), got)
				}
			})
		})
	}
}

// A partition that is stuck stops at its share, and the others go on.
func TestStreamBackPressure(t *testing.T) {
	stage(t, 2, func(s *scene) {
		t := s.t
		s.keyed("0", 5000, noKey)
		s.keyed("1", 5000, noKey)
		w := newWarehouse(t)
		w.takes = func(e *sluice.Event) time.Duration {
			if e.Partition == "0" {
				return time.Hour
			}
			return time.Millisecond
		}
		cfg := &sluice.StreamConfig[*sluice.Event]{MaxEvents: 1000, MaxAge: time.Minute}
		_, stop := s.pour(w, cfg, sluice.Config{})
		time.Sleep(50 * time.Second)
		if got := s.position("1"); got != 4999 {
			t.Errorf("the other partition is at %d, want 4999", got)
		}
		if got := s.count(sluice.KindFailed); got != 0 {
			t.Errorf("%d errors before the age limit", got)
		}
		time.Sleep(30 * time.Second)
		w.mu.Lock()
		stuck := w.flying[""]
		w.mu.Unlock()
		if stuck != 500 {
			t.Errorf("%d in flight, want 500", stuck)
		}
		var old *sluice.BacklogError
		s.mu.Lock()
		for _, o := range s.seen {
			if o.Kind == sluice.KindFailed && errors.As(o.Err, &old) {
				break
			}
		}
		s.mu.Unlock()
		if old == nil || old.Partition != "0" || old.Sequence != 0 || old.InFlight != 500 {
			t.Errorf("age: %+v", old)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { _ = stop() }()
		<-ctx.Done()
	})
}

func TestStreamAgeIsFatal(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.t
		s.keyed("0", 10, noKey)
		w := newWarehouse(t)
		w.takes = func(e *sluice.Event) time.Duration { return time.Hour }
		c := must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(s.store, s.store, sluice.Itself, w, &sluice.StreamConfig[*sluice.Event]{AgeFatal: true}), sluice.AllPartitions, nil))
		began := time.Now()
		err := c.Run(t.Context())
		var old *sluice.BacklogError
		if took := time.Since(began); !errors.As(err, &old) || took < 10*time.Minute || took > 10*time.Minute+10*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestStreamRate(t *testing.T) {
	stage(t, 4, func(s *scene) {
		t := s.t
		for p := range 4 {
			s.keyed(fmt.Sprint(p), 1000, noKey)
		}
		w := newWarehouse(t)
		w.says = func(e *sluice.Event, attempt int) error { // retries count
			if attempt%7 == 0 {
				return sluice.RetryAfter(errors.New("429"), 10*time.Millisecond)
			}
			return nil
		}
		rate := must(sluice.NewRate(100))
		_, stop := s.pour(w, &sluice.StreamConfig[*sluice.Event]{Rate: rate}, sluice.Config{})
		time.Sleep(20 * time.Second)
		if err := rate.Set(50); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		window(t, w.sent, 100)
		if n := len(w.sent); n < 20*99+10*49-100 || n > 20*100+10*50+1 {
			t.Errorf("%d sent in 20 s at 100/s and 10 s at 50/s", n)
		}
	})
}

// window sees that no second holds more than n.
func window(t *testing.T, sent []time.Time, n int) {
	t.Helper()
	for i := n; i < len(sent); i++ {
		if d := sent[i].Sub(sent[i-n]); d < time.Second {
			t.Fatalf("%d sent within %v", n+1, d)
		}
	}
}

// Two processes keep a cluster's rate, through a takeover too.
func TestStreamClusterRate(t *testing.T) {
	stage(t, 4, func(s *scene) {
		t := s.t
		for p := range 4 {
			s.keyed(fmt.Sprint(p), 20000, noKey)
		}
		w := newWarehouse(t)
		run := func(owner string, n sluice.Partitions) *sluice.Consumer {
			cfg := &sluice.StreamConfig[*sluice.Event]{Rate: must(sluice.NewClusterRate(202))}
			return must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(s.store, s.store, sluice.Itself, w, cfg), n, &sluice.Config{Owner: owner}))
		}
		var running sync.WaitGroup
		first, second := run("a", 4), run("b", 4)
		ctx, kill := context.WithCancel(t.Context())
		running.Go(func() { _ = first.Run(ctx) })
		time.Sleep(20 * time.Second)
		running.Go(func() { _ = second.Run(t.Context()) })
		time.Sleep(10 * time.Second)
		before := len(w.rows())
		kill()
		time.Sleep(20 * time.Second)
		if err := second.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		running.Wait()
		window(t, w.sent, 202)
		if n := len(w.rows()); n < before+13*200 {
			t.Errorf("%d written after the takeover", n-before)
		}
		small := must(sluice.NewClusterRate(3))
		c := must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(s.store, s.store, sluice.Itself, w, &sluice.StreamConfig[*sluice.Event]{Rate: small}), 1, nil))
		if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "3 a second for 4 partitions") {
			t.Errorf("a rate below the number of partitions: %v", err)
		}
	})
}

// flaky is a log whose connections break.
type flaky struct {
	*sluicetest.Hub
	every time.Duration
}

type flakyReader struct {
	sluice.Reader
	until time.Time
}

func (f *flaky) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (sluice.Reader, error) {
	r, err := f.Hub.Open(ctx, partition, after, epoch)
	return &flakyReader{r, time.Now().Add(f.every)}, err
}

func (r *flakyReader) Read(ctx context.Context, most int) ([]*sluice.Event, error) {
	ctx, cancel := context.WithDeadline(ctx, r.until)
	defer cancel()
	events, err := r.Reader.Read(ctx, most)
	if err != nil {
		err = errCut
	}
	return events, err
}

// A connection that breaks repeats nothing of what is in flight.
func TestStreamReadsOnAfterACut(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.t
		s.keyed("0", 500, noKey)
		w := newWarehouse(t)
		w.takes = func(e *sluice.Event) time.Duration { return 20 * time.Second }
		c := must(sluice.New(&flaky{s.hub, 3 * time.Second}, s.leases, sluice.AtLeastOnce(s.store, s.store, sluice.Itself, w, nil), 1, &sluice.Config{Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(5 * time.Second)
		s.keyed("0", 500, noKey)
		time.Sleep(60 * time.Second)
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-ran
		if got := s.count(sluice.KindOpened); got < 10 {
			t.Errorf("opened %d times: it was not cut", got)
		}
		if got := sorted(w.rows()); !slices.Equal(got, upTo(1000)) {
			t.Errorf("%d rows, want each of 1000 once", len(got))
		}
	})
}

func TestWorkers(t *testing.T) {
	stage(t, 2, func(s *scene) {
		t := s.t
		s.keyed("0", 300, noKey)
		s.keyed("1", 300, noKey)
		var mu sync.Mutex
		var now, most, calls int
		sink := must(sluice.Workers(16, func(ctx context.Context, e *sluice.Event) error {
			mu.Lock()
			calls++
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			if e.Sequence == 100 {
				panic("no")
			}
			return nil
		}))
		_, stop := s.pour(sink, nil, sluice.Config{})
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if most != 16 || calls != 600+2*2 {
			t.Errorf("%d at once and %d calls, want 16 and 604", most, calls)
		}
		if got := s.letters(); len(got) != 2 || got[0].Error != "panic: no" {
			t.Errorf("dead letters %+v", got)
		}
	})
	if _, err := sluice.Workers(0, nil); err == nil {
		t.Error("no workers are allowed")
	}
}

// A cancelled consumer lets go at once, and checkpoints what was done.
func TestStreamCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t, hub: sluicetest.NewHub(group, 1), leases: newLedger(), store: &sluicetest.Store{}}
		s.keyed("0", 100, noKey)
		w := newWarehouse(t)
		w.takes = func(e *sluice.Event) time.Duration {
			if e.Sequence >= 50 {
				return time.Hour
			}
			return time.Millisecond
		}
		c := must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(s.store, s.store, sluice.Itself, w, nil), 1, nil))
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- c.Run(ctx) }()
		time.Sleep(2 * time.Second)
		began := time.Now()
		cancel()
		if err := <-ran; !errors.Is(err, context.Canceled) || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if got := s.position("0"); got != 49 {
			t.Errorf("checkpoint at %d, want 49", got)
		}
	})
}

// A stop in an outage, while the target still has records, waits for these
// without a stir.
func TestStreamStopsInAnOutage(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.t
		s.keyed("0", 100, noKey)
		w := newWarehouse(t)
		w.takes = func(e *sluice.Event) time.Duration {
			if e.Sequence == 50 {
				return time.Minute
			}
			return time.Millisecond
		}
		w.says = func(e *sluice.Event, _ int) error {
			if e.Sequence < 50 {
				return sluice.Outage(errors.New("down"))
			}
			return nil
		}
		_, stop := s.pour(w, nil, sluice.Config{})
		time.Sleep(5 * time.Second)
		began := time.Now()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 50*time.Second || took > 56*time.Second {
			t.Errorf("the stop took %v, want until the record was written", took)
		}
		if got := len(w.rows()); got != 50 {
			t.Errorf("%d rows, want 50", got)
		}
	})
}
