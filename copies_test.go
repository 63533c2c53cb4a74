package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// mailbox is where dead letters are copied to.
type mailbox struct {
	says func(d *sluice.DeadLetter) error // nil: takes all
	down error                            // of all, if it is not nil

	mu    sync.Mutex
	calls []time.Time
	got   []sluice.DeadLetter
	most  int // dead letters in a call
	busy  int // calls in progress
	peak  int
}

func (m *mailbox) copy(ctx context.Context, dead []sluice.DeadLetter) error {
	m.mu.Lock()
	m.calls = append(m.calls, time.Now())
	m.most, m.busy = max(m.most, len(dead)), m.busy+1
	m.peak = max(m.peak, m.busy)
	down := m.down
	m.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy--
	if down != nil {
		return down
	}
	var errs []error
	for i := range dead {
		var err error
		if m.says != nil {
			err = m.says(&dead[i])
		}
		if err != nil {
			errs = append(errs, &driver.EventError{Index: i, Err: err})
			continue
		}
		m.got = append(m.got, dead[i])
	}
	return errors.Join(errs...)
}

func (m *mailbox) set(down error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
}

// numbers are the sequence numbers of what has arrived.
func (m *mailbox) numbers() (list []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.got {
		list = append(list, m.got[i].Event.Sequence)
	}
	slices.Sort(list)
	return list
}

// rejecting rejects events whose body begins with bad.
func rejecting(_ context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
	for i, e := range b.Events {
		if strings.HasPrefix(string(e.Body), "bad") {
			return &driver.EventError{Index: i, Err: driver.Reject(errors.New("no " + string(e.Body)))}
		}
		if err := tx.Insert("rows", e.Sequence); err != nil {
			return err
		}
	}
	return nil
}

// deliveries are the three with dead letters, over a store.
func deliveries(store interface {
	driver.TxStore[*sluicetest.Tx]
	driver.AtLeastOnceStore
}) map[string]sluice.Delivery {
	says := func(e *sluice.Event) error {
		if strings.HasPrefix(string(e.Body), "bad") {
			return driver.Reject(errors.New("no " + string(e.Body)))
		}
		return nil
	}
	workers := must(sluice.Workers(2, func(_ context.Context, e *sluice.Event) error { return says(e) }))
	return map[string]sluice.Delivery{
		"transactional": sluice.Transactional(store, sluice.Handler[*sluicetest.Tx](rejecting)),
		"batches": sluice.Batches(store, func(_ context.Context, b sluice.Batch) error {
			for i, e := range b.Events {
				if err := says(e); err != nil {
					return &driver.EventError{Index: i, Err: err}
				}
			}
			return nil
		}, nil),
		"at least once": sluice.AtLeastOnce(store, sluice.EventAsRecord, workers, nil),
	}
}

// runWith runs a consumer for a while, and stops it.
func (s *scene) runWith(d sluice.Delivery, cfg sluice.Config, meanwhile func()) {
	s.t.Helper()
	cfg.Observer = s
	c := must(sluice.New(s.hub, s.leases, d, &cfg))
	ran := make(chan error, 1)
	go func() { ran <- c.Run(s.t.Context()) }()
	meanwhile()
	if err := c.Stop(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	if err := <-ran; err != nil {
		s.t.Fatal(err)
	}
}

func TestCopies(t *testing.T) {
	for _, name := range []string{"transactional", "batches", "at least once"} {
		t.Run(name, func(t *testing.T) {
			stage(t, 2, func(s *scene) {
				s.send("0", "good", "bad 1", "good", "bad 3")
				s.send("1", "bad 0", "good")
				m := &mailbox{}
				s.runWith(deliveries(s.store)[name], sluice.Config{CopyDeadLetters: m.copy}, func() {
					time.Sleep(10 * time.Second)
					if got := m.numbers(); !slices.Equal(got, []int64{0, 1, 3}) {
						s.t.Errorf("copied are events %v, want 0, 1, 3: each once", got)
					}
					s.send("0", "bad 4")
					time.Sleep(5 * time.Second)
				})
				if got := m.numbers(); !slices.Equal(got, []int64{0, 1, 3, 4}) {
					s.t.Errorf("copied are events %v, want 0, 1, 3, 4", got)
				}
				for i := range m.got {
					d := &m.got[i]
					if d.ID == 0 || d.Group != group || d.Incarnation == "" || d.Error != "no "+string(d.Event.Body) || d.Attempts != 1 || !d.HasBody {
						s.t.Errorf("copied %+v, want all of the dead letter", d)
					}
				}
				if n := s.count(driver.KindCopied); n == 0 || s.count(driver.KindCopyFailed) != 0 {
					s.t.Errorf("%d observations of copies, %d of failures", n, s.count(driver.KindCopyFailed))
				}
			})
		})
	}
}

// What a process stored and did not copy, the next one copies; also what another process stores while
// this one owns the partition. What was copied is not copied again.
func TestCopiesOfOthers(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.send("0", "bad 0", "good", "bad 2")
		d := deliveries(s.store)["transactional"]
		s.runWith(d, sluice.Config{}, func() { time.Sleep(5 * time.Second) })
		stored := s.letters()
		if len(stored) != 2 {
			s.t.Fatalf("%d dead letters, want 2", len(stored))
		}
		if _, err := s.store.Discard(s.t.Context(), group, sluice.DeadLetterFilter{IDs: []int64{stored[1].ID}}); err != nil {
			s.t.Fatal(err)
		}
		m := &mailbox{}
		s.runWith(d, sluice.Config{CopyDeadLetters: m.copy}, func() {
			time.Sleep(5 * time.Second)
			if got := m.numbers(); !slices.Equal(got, []int64{0, 2}) {
				s.t.Errorf("copied are events %v, want 0, and 2, which is discarded", got)
			}
			late := stored[0]
			late.ID, late.Event.Sequence = 0, 7
			if err := s.store.Park(s.t.Context(), []sluice.DeadLetter{late}); err != nil {
				s.t.Fatal(err)
			}
			time.Sleep(time.Minute)
		})
		s.runWith(d, sluice.Config{CopyDeadLetters: m.copy}, func() { time.Sleep(time.Minute) })
		if got := m.numbers(); !slices.Equal(got, []int64{0, 2, 7}) {
			s.t.Errorf("copied are events %v, want 0, 2, 7", got)
		}
	})
}

// While the target is down, the delivery continues, and copies are tried again with back-off.
func TestCopyOutage(t *testing.T) {
	stage(t, 3, func(s *scene) {
		m := &mailbox{}
		m.set(driver.Outage(errors.New("queue is down")))
		s.runWith(deliveries(s.store)["transactional"], sluice.Config{CopyDeadLetters: m.copy}, func() {
			for range 10 {
				for _, p := range []string{"0", "1", "2"} {
					s.send(p, "good", "bad", "bad", "bad", "bad")
				}
				time.Sleep(30 * time.Second)
			}
			if n := len(s.letters()); n != 120 {
				s.t.Errorf("%d dead letters, want 120: the delivery waits for copies", n)
			}
			synctest.Wait() // a call that ends just now is reported
			m.mu.Lock()
			calls, failed := len(m.calls), len(m.calls)-m.busy
			m.mu.Unlock()
			if calls > 3*30 {
				s.t.Errorf("%d calls in five minutes of outage, want back-off", calls)
			}
			if n := s.count(driver.KindCopyFailed); n != failed {
				s.t.Errorf("%d reports of %d failures", n, failed)
			}
			if s.count(driver.KindFailed)+s.count(driver.KindStalled) > 0 {
				s.t.Error("the target's outage is one of the partition")
			}
			m.set(nil)
			time.Sleep(time.Minute)
		})
		if n := len(m.got); n != 120 {
			s.t.Errorf("%d copies, want 120", n)
		}
		if m.most != 16 || m.peak != 1 {
			s.t.Errorf("%d dead letters in a call, %d calls at a time: want 16, 1", m.most, m.peak)
		}
	})
}

// A dead letter that the target refuses does not keep others back. Its error is in one line.
func TestCopyRefused(t *testing.T) {
	stage(t, 1, func(s *scene) {
		for range 40 {
			s.send("0", "bad")
		}
		m := &mailbox{says: func(d *sluice.DeadLetter) error {
			if d.Event.Sequence < 20 {
				return driver.Reject(fmt.Errorf("too strange: %d", d.Event.Sequence))
			}
			return nil
		}}
		s.runWith(deliveries(s.store)["transactional"], sluice.Config{CopyDeadLetters: m.copy}, func() {
			time.Sleep(time.Minute)
			if got := m.numbers(); len(got) != 20 || got[0] != 20 {
				s.t.Errorf("copied are events %v, want 20 to 39", got)
			}
			m.mu.Lock()
			m.says = nil
			m.mu.Unlock()
			time.Sleep(time.Minute)
		})
		if got := m.numbers(); len(got) != 40 {
			s.t.Errorf("copied are events %v, want 0 to 39, once each", got)
		}
		for _, o := range s.of() {
			if o.Kind == driver.KindCopyFailed && (o.Events != 20 || !strings.Contains(o.Err.Error(), "too strange") || strings.Contains(o.Err.Error(), "\n")) {
				s.t.Errorf("%d refused, reported as %d in %q; want one line", 20, o.Events, o.Err)
			}
		}
	})
}

// A store that fails between copy and mark makes the copy come again. A panic is a failure.
func TestCopyMarkFails(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.send("0", "bad")
		marks := &failingMarks{Store: s.store, fail: 2}
		panics := 1
		m := &mailbox{says: func(*sluice.DeadLetter) error {
			if panics > 0 {
				panics--
				panic("typo")
			}
			return nil
		}}
		s.runWith(deliveries(marks)["transactional"], sluice.Config{CopyDeadLetters: m.copy}, func() { time.Sleep(time.Minute) })
		if got := m.numbers(); !slices.Equal(got, []int64{0, 0, 0}) {
			s.t.Errorf("copied are events %v, want 0 three times: the first two copies could not be marked", got)
		}
		if n := s.count(driver.KindCopyFailed); n != 3 {
			s.t.Errorf("%d failures reported, want the panic and two marks", n)
		}
	})
}

type failingMarks struct {
	*sluicetest.Store
	fail int
}

func (f *failingMarks) MarkCopied(ctx context.Context, group sluice.Group, partition string, copied []driver.ParkedEvent) error {
	if f.fail > 0 {
		f.fail--
		return errors.New("no answer")
	}
	return f.Store.MarkCopied(ctx, group, partition, copied)
}

// A call that ignores its context is reported, and delays neither events nor the lease.
func TestCopyHangs(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.send("0", "bad", "good")
		release := make(chan struct{})
		hangs := func(context.Context, []sluice.DeadLetter) error { <-release; return nil }
		s.runWith(deliveries(s.store)["transactional"], sluice.Config{CopyDeadLetters: hangs}, func() {
			time.Sleep(time.Minute)
			s.send("0", "good")
			time.Sleep(time.Second)
			if got := s.rows(); !slices.Equal(got, []int64{1, 2}) {
				s.t.Errorf("rows %v, want 1 and 2", got)
			}
			if s.count(driver.KindStalled) == 0 || s.count(driver.KindLost) > 0 {
				s.t.Errorf("%d stalls, %d leases lost", s.count(driver.KindStalled), s.count(driver.KindLost))
			}
			close(release)
		})
	})
}

func TestCopiesNeedMarks(t *testing.T) {
	hub, leases, store := sluicetest.NewHub(group, 1), &sluicetest.Leases{}, &sluicetest.Store{}
	without := struct{ driver.TxStore[*sluicetest.Tx] }{store}
	for name, d := range map[string]sluice.Delivery{
		"a store without marks": sluice.Transactional[*sluicetest.Tx](without, rejecting),
		"Replay":                sluice.Replay(sluice.Replayer{Apply: func(context.Context, sluice.Batch) error { return nil }}),
	} {
		_, err := sluice.New(hub, leases, d, &sluice.Config{CopyDeadLetters: func(context.Context, []sluice.DeadLetter) error { return nil }})
		if err == nil || !strings.Contains(err.Error(), "driver.CopyMarks") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// A sink's results decide what is copied. What it rejects it gets again without body.
func TestCopyTo(t *testing.T) { synctest.Test(t, testCopyTo) }

func testCopyTo(t *testing.T) {
	type letter struct {
		text        string
		incarnation string
	}
	sink := sinkFunc[letter](func(ctx context.Context, l letter, done func(driver.WriteResult)) {
		switch {
		case l.text == "lost":
		case l.text == "down":
			done(driver.WriteResult{Err: driver.Outage(errors.New("down"))})
		case strings.HasPrefix(l.text, "large"), l.text == "hopeless without body":
			done(driver.WriteResult{Err: driver.Reject(errors.New("too large"))})
		default:
			if driver.IncarnationOf(ctx) != l.incarnation || driver.FencingTokenOf(ctx).Lease.Group != group {
				t.Errorf("%s: context of %q, %+v", l.text, driver.IncarnationOf(ctx), driver.FencingTokenOf(ctx))
			}
			if _, is := stamp.Of(ctx, &sluice.Event{}, 0); is || stamp.Foreign(ctx, stamp.Stamp{}) {
				t.Errorf("%s: has a stamp", l.text)
			}
			done(driver.WriteResult{})
			done(driver.WriteResult{Err: errors.New("twice")})
		}
	})
	copies := sluice.CopyTo(sink, func(_ context.Context, d *sluice.DeadLetter) (letter, error) {
		if d.Error == "unmade" {
			return letter{}, errors.New("unmade")
		}
		text := d.Error
		if !d.HasBody {
			text = strings.TrimPrefix(text, "large ") + " without body"
		}
		return letter{text, d.Incarnation}, nil
	})
	var dead []sluice.DeadLetter
	for i, text := range []string{"fine", "large one", "unmade", "down", "lost", "large hopeless", "fine"} {
		dead = append(dead, sluice.DeadLetter{ID: int64(i), Group: group, Incarnation: fmt.Sprint(i), Error: text, HasBody: true, Event: sluice.Event{Partition: "0", Body: []byte("x")}})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := copies(ctx, dead)
	var failed []int
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		failed = append(failed, e.(*driver.EventError).Index)
	}
	if !slices.Equal(failed, []int{2, 3, 4, 5}) || !errors.Is(err, sluice.ErrOutage) {
		t.Errorf("not copied are %v (%v), want what was not made, down, lost and hopeless", failed, err)
	}
	if string(dead[1].Event.Body) != "x" {
		t.Error("the dead letter was changed")
	}
}

type sinkFunc[R any] func(ctx context.Context, record R, done func(driver.WriteResult))

func (f sinkFunc[R]) Submit(ctx context.Context, record R, done func(driver.WriteResult)) {
	f(ctx, record, done)
}
