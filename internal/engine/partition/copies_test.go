package partition_test

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
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// mailbox is where dead letters are copied to.
type mailbox struct {
	says   func(d *sluice.DeadLetter) error // nil: takes all
	outage error                            // of all, if it is not nil

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
	down := m.outage
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
	m.outage = down
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
	workers := enginetest.Must(sluice.Workers(2, func(_ context.Context, e *sluice.Event) error { return says(e) }))
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

func TestCopies(t *testing.T) {
	for _, name := range []string{"transactional", "batches", "at least once"} {
		t.Run(name, func(t *testing.T) {
			stage(t, 2, func(s *scene) {
				s.Send("0", "good", "bad 1", "good", "bad 3")
				s.Send("1", "bad 0", "good")
				m := &mailbox{}
				s.RunWhile(deliveries(s.Store)[name], sluice.Config{CopyDeadLetters: m.copy}, func() {
					time.Sleep(10 * time.Second)
					if got := m.numbers(); !slices.Equal(got, []int64{0, 1, 3}) {
						s.T.Errorf("copied are events %v, want 0, 1, 3: each once", got)
					}
					s.Send("0", "bad 4")
					time.Sleep(5 * time.Second)
				})
				if got := m.numbers(); !slices.Equal(got, []int64{0, 1, 3, 4}) {
					s.T.Errorf("copied are events %v, want 0, 1, 3, 4", got)
				}
				for i := range m.got {
					d := &m.got[i]
					if d.ID == 0 || d.Group != enginetest.Group || d.Incarnation == "" || d.Error != "no "+string(d.Event.Body) || d.Attempts != 1 || !d.HasBody {
						s.T.Errorf("copied %+v, want all of the dead letter", d)
					}
				}
				if n := s.Count(driver.KindCopied); n == 0 || s.Count(driver.KindCopyFailed) != 0 {
					s.T.Errorf("%d observations of copies, %d of failures", n, s.Count(driver.KindCopyFailed))
				}
			})
		})
	}
}

// What a process stored and did not copy, the next one copies; also what another process stores
// while this one owns the partition. What was copied is not copied again.
func TestCopiesOfOthers(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "bad 0", "good", "bad 2")
		d := deliveries(s.Store)["transactional"]
		s.RunWhile(d, sluice.Config{}, func() { time.Sleep(5 * time.Second) })
		stored := s.Letters()
		if len(stored) != 2 {
			s.T.Fatalf("%d dead letters, want 2", len(stored))
		}
		if _, err := s.Store.Discard(s.T.Context(), enginetest.Group, sluice.DeadLetterFilter{IDs: []int64{stored[1].ID}}); err != nil {
			s.T.Fatal(err)
		}
		m := &mailbox{}
		s.RunWhile(d, sluice.Config{CopyDeadLetters: m.copy}, func() {
			time.Sleep(5 * time.Second)
			if got := m.numbers(); !slices.Equal(got, []int64{0, 2}) {
				s.T.Errorf("copied are events %v, want 0, and 2, which is discarded", got)
			}
			late := stored[0]
			late.ID, late.Event.Sequence = 0, 7
			if err := s.Store.Park(s.T.Context(), []sluice.DeadLetter{late}); err != nil {
				s.T.Fatal(err)
			}
			time.Sleep(time.Minute)
		})
		s.RunWhile(d, sluice.Config{CopyDeadLetters: m.copy}, func() { time.Sleep(time.Minute) })
		if got := m.numbers(); !slices.Equal(got, []int64{0, 2, 7}) {
			s.T.Errorf("copied are events %v, want 0, 2, 7", got)
		}
	})
}

// While the target is down, the delivery continues, and copies are tried again with back-off.
func TestCopyOutage(t *testing.T) {
	stage(t, 3, func(s *scene) {
		m := &mailbox{}
		m.set(driver.Outage(errors.New("queue is down")))
		s.RunWhile(deliveries(s.Store)["transactional"], sluice.Config{CopyDeadLetters: m.copy}, func() {
			for range 10 {
				for _, p := range []string{"0", "1", "2"} {
					s.Send(p, "good", "bad", "bad", "bad", "bad")
				}
				time.Sleep(30 * time.Second)
			}
			if n := len(s.Letters()); n != 120 {
				s.T.Errorf("%d dead letters, want 120: the delivery waits for copies", n)
			}
			synctest.Wait() // a call that ends just now is reported
			m.mu.Lock()
			calls, failed := len(m.calls), len(m.calls)-m.busy
			m.mu.Unlock()
			if calls > 3*30 {
				s.T.Errorf("%d calls in five minutes of outage, want back-off", calls)
			}
			if n := s.Count(driver.KindCopyFailed); n != failed {
				s.T.Errorf("%d reports of %d failures", n, failed)
			}
			if s.Count(driver.KindFailed)+s.Count(driver.KindStalled) > 0 {
				s.T.Error("the target's outage is one of the partition")
			}
			m.set(nil)
			time.Sleep(time.Minute)
		})
		if n := len(m.got); n != 120 {
			s.T.Errorf("%d copies, want 120", n)
		}
		if m.most != 16 || m.peak != 1 {
			s.T.Errorf("%d dead letters in a call, %d calls at a time: want 16, 1", m.most, m.peak)
		}
	})
}

// A dead letter that the target refuses does not keep others back. Its error is in one line.
func TestCopyRefused(t *testing.T) {
	stage(t, 1, func(s *scene) {
		for range 40 {
			s.Send("0", "bad")
		}
		m := &mailbox{says: func(d *sluice.DeadLetter) error {
			if d.Event.Sequence < 20 {
				return driver.Reject(fmt.Errorf("too strange: %d", d.Event.Sequence))
			}
			return nil
		}}
		s.RunWhile(deliveries(s.Store)["transactional"], sluice.Config{CopyDeadLetters: m.copy}, func() {
			time.Sleep(time.Minute)
			if got := m.numbers(); len(got) != 20 || got[0] != 20 {
				s.T.Errorf("copied are events %v, want 20 to 39", got)
			}
			m.mu.Lock()
			m.says = nil
			m.mu.Unlock()
			time.Sleep(time.Minute)
		})
		if got := m.numbers(); len(got) != 40 {
			s.T.Errorf("copied are events %v, want 0 to 39, once each", got)
		}
		for _, o := range s.Observations() {
			if o.Kind == driver.KindCopyFailed && (o.Events != 20 || !strings.Contains(o.Err.Error(), "too strange") || strings.Contains(o.Err.Error(), "\n")) {
				s.T.Errorf("%d refused, reported as %d in %q; want one line", 20, o.Events, o.Err)
			}
		}
	})
}

// A store that fails between copy and mark makes the copy come again. A panic is a failure.
func TestCopyMarkFails(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "bad")
		marks := &failingMarks{Store: s.Store, fail: 2}
		panics := 1
		m := &mailbox{says: func(*sluice.DeadLetter) error {
			if panics > 0 {
				panics--
				panic("typo")
			}
			return nil
		}}
		s.RunWhile(deliveries(marks)["transactional"], sluice.Config{CopyDeadLetters: m.copy}, func() { time.Sleep(time.Minute) })
		if got := m.numbers(); !slices.Equal(got, []int64{0, 0, 0}) {
			s.T.Errorf("copied are events %v, want 0 three times: the first two copies could not be marked", got)
		}
		if n := s.Count(driver.KindCopyFailed); n != 3 {
			s.T.Errorf("%d failures reported, want the panic and two marks", n)
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
		s.Send("0", "bad", "good")
		release := make(chan struct{})
		hangs := func(context.Context, []sluice.DeadLetter) error { <-release; return nil }
		s.RunWhile(deliveries(s.Store)["transactional"], sluice.Config{CopyDeadLetters: hangs}, func() {
			time.Sleep(time.Minute)
			s.Send("0", "good")
			time.Sleep(time.Second)
			if got := s.Rows(); !slices.Equal(got, []int64{1, 2}) {
				s.T.Errorf("rows %v, want 1 and 2", got)
			}
			if s.Count(driver.KindStalled) == 0 || s.Count(driver.KindLost) > 0 {
				s.T.Errorf("%d stalls, %d leases lost", s.Count(driver.KindStalled), s.Count(driver.KindLost))
			}
			close(release)
		})
	})
}

func TestCopiesNeedMarks(t *testing.T) {
	hub, leases, store := sluicetest.NewHub(enginetest.Group, 1), &sluicetest.Leases{}, &sluicetest.Store{}
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
