package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// uploads is where the handlers of Batches take effect. It checks that no event comes before its
// turn: all before it are done, or dead letters.
type uploads struct {
	s    *scene
	says func(ctx context.Context, b sluice.Batch) error // nil: says of each event what [verdict] does

	mu    sync.Mutex
	calls [][]int64     // that returned nil
	tried int           // all calls
	done  map[int64]int // by sequence number, how often
}

func (s *scene) uploads() *uploads { return &uploads{s: s, done: map[int64]int{}} }

func (u *uploads) handle(ctx context.Context, b sluice.Batch) error {
	u.inTurn(b)
	says := u.says
	if says == nil {
		says = verdict
	}
	if err := says(ctx, b); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var numbers []int64
	for _, e := range b.Events {
		numbers = append(numbers, e.Sequence)
		u.done[e.Sequence]++
	}
	u.calls = append(u.calls, numbers)
	return nil
}

func (u *uploads) inTurn(b sluice.Batch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.tried++
	dead := map[int64]bool{}
	for _, d := range u.s.Letters() {
		dead[d.Event.Sequence] = true
	}
	for n := range b.Events[0].Sequence {
		if u.done[n] == 0 && !dead[n] {
			u.s.T.Errorf("event %d was handled before event %d was done", b.Events[0].Sequence, n)
			return
		}
	}
}

// wantDone checks that each event but the given ones is done, and that no more than so many are
// done more than once.
func (u *uploads) wantDone(events, repeats int, except ...int64) {
	u.s.T.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	repeated := 0
	for n := range int64(events) {
		times := u.done[n]
		if (times > 0) == slices.Contains(except, n) {
			u.s.T.Errorf("event %d was done %d times", n, times)
		}
		repeated += max(times-1, 0)
	}
	if repeated > repeats {
		u.s.T.Errorf("%d events were repeated, want at most %d", repeated, repeats)
	}
}

// verdict names each event that the body says is bad.
func verdict(_ context.Context, b sluice.Batch) error {
	var errs []error
	for i, e := range b.Events {
		switch body := string(e.Body); {
		case strings.HasPrefix(body, "reject"):
			errs = append(errs, &driver.EventError{Index: i, Err: driver.Reject(errors.New(body))})
		case strings.HasPrefix(body, "bad"):
			errs = append(errs, &driver.EventError{Index: i, Err: errors.New(body)})
		}
	}
	return errors.Join(errs...)
}

// nameless is verdict without the indexes.
func nameless(ctx context.Context, b sluice.Batch) error {
	if err := verdict(ctx, b); err != nil {
		return errors.New("one of the events is bad")
	}
	return nil
}

// late is verdict where bad events run into a time limit.
func late(ctx context.Context, b sluice.Batch) error {
	var each *driver.EventError
	if errors.As(verdict(ctx, b), &each) {
		return &driver.EventError{Index: each.Index, Err: context.DeadlineExceeded}
	}
	return nil
}

func panics(ctx context.Context, b sluice.Batch) error {
	if err := verdict(ctx, b); err != nil {
		panic(err)
	}
	return nil
}

// upload starts a consumer; the function it returns stops it.
func (s *scene) upload(u *uploads, batches *sluice.BatchesConfig, cfg sluice.Config) (*sluice.Consumer, func()) {
	s.T.Helper()
	return s.Run(s.Hub, sluice.Batches(s.Store, u.handle, batches), cfg)
}

// dead returns the numbers of the events that are dead letters, in order.
func (s *scene) dead() (list []int64) {
	for _, d := range s.Letters() {
		list = append(list, d.Event.Sequence)
	}
	slices.Sort(list)
	return list
}

func (s *scene) wantDead(want ...int64) {
	s.T.Helper()
	if got := s.dead(); !slices.Equal(got, want) {
		s.T.Errorf("dead letters of events %v, want %v: %v", got, want, s.Letters())
	}
}

func (s *scene) wantPosition(want int64) {
	s.T.Helper()
	if at := s.Position("0"); at != want {
		s.T.Errorf("the checkpoint is at %d, want %d", at, want)
	}
}

func TestBatches(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", slices.Repeat([]string{"good"}, 10)...)
		u := s.uploads()
		topic := enginetest.Must(s.Hub.Describe(s.T.Context()))
		u.says = func(_ context.Context, b sluice.Batch) error {
			if b.Group != enginetest.Group || b.Partition != "0" || b.Epoch == 0 || b.Incarnation != topic.Incarnation || b.Redriven {
				s.T.Errorf("batch %+v", b)
			}
			return nil
		}
		_, stop := s.upload(u, nil, sluice.Config{MaxBatch: 4})
		time.Sleep(time.Minute)
		stop()
		if want := [][]int64{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}; fmt.Sprint(u.calls) != fmt.Sprint(want) {
			s.T.Errorf("batches %v, want %v", u.calls, want)
		}
		s.wantPosition(9)
		s.wantDead()
		events := 0
		for _, o := range s.Observations(driver.KindCommitted) {
			events += o.Events
		}
		if events != 10 {
			s.T.Errorf("%d events were reported as done", events)
		}
	})
}

// An event that fails by itself becomes a dead letter, however the handler reports it. What is
// repeated is the event that succeeded last, once for each of them, and halves of batches.
func TestBatchesBadEvents(t *testing.T) {
	bodies := slices.Repeat([]string{"good"}, 60)
	bodies[20], bodies[40] = "bad", "bad"
	for name, c := range map[string]struct {
		says    func(context.Context, sluice.Batch) error
		repeats int
	}{"named": {verdict, 2}, "nameless": {nameless, 2}, "named time limit": {late, 2}, "panic": {panics, 2}} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.Send("0", bodies...)
				u := s.uploads()
				u.says = c.says
				_, stop := s.upload(u, nil, sluice.Config{})
				time.Sleep(time.Minute)
				stop()
				u.wantDone(60, c.repeats, 20, 40)
				s.wantDead(20, 40)
				s.wantPosition(59)
			})
		})
	}
}

// Rejected events leave with the first repetition of the batch, and nothing is handled twice.
func TestBatchesRejections(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "reject", "good", "reject", "good", "good")
		u := s.uploads()
		_, stop := s.upload(u, nil, sluice.Config{})
		time.Sleep(time.Minute)
		stop()
		u.wantDone(5, 0, 0, 2)
		s.wantDead(0, 2)
		s.wantPosition(4)
		if u.tried != 3 {
			s.T.Errorf("the handler was called %d times, want 3: the batch, without the rejected events, and the rest", u.tried)
		}
	})
}

// A batch that takes longer than the handler's own time limit is split, and the next ones are
// smaller for a while.
func TestBatchesTimeLimit(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", slices.Repeat([]string{"good"}, 400)...)
		u := s.uploads()
		u.says = func(ctx context.Context, b sluice.Batch) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			select {
			case <-ctx.Done():
				return fmt.Errorf("upload: %w", ctx.Err())
			case <-time.After(time.Duration(len(b.Events)) * 15 * time.Millisecond): // 66 in a second
				return nil
			}
		}
		_, stop := s.upload(u, nil, sluice.Config{MaxBatch: 200})
		time.Sleep(time.Minute)
		stop()
		u.wantDone(400, 0)
		s.wantDead()
		s.wantPosition(399)
	})
}

// What a handler marks as an outage counts against no event, for as long as it lasts.
func TestBatchesOutage(t *testing.T) {
	for name, says := range map[string]func(error) error{
		"outage": driver.Outage, "retry after": func(err error) error { return driver.RetryAfter(err, 3*time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				a, u := newAPI(says), s.uploads()
				u.says = func(context.Context, sluice.Batch) error { return a.call() }
				a.failing.Store(true)
				_, stop := s.upload(u, nil, sluice.Config{})
				s.Send("0", slices.Repeat([]string{"good"}, 50)...)
				time.Sleep(time.Hour)
				a.failing.Store(false)
				if !s.movesWithin(15*time.Second, 49) {
					s.T.Errorf("the checkpoint is at %d", s.Position("0"))
				}
				stop()
				u.wantDone(50, 0)
				s.wantDead()
			})
		})
	}
}

// writes fails the writes of a store that it is asked to.
type writes struct {
	fails func(op sluicetest.Op, apply func() error) error
}

func (w *writes) Before(sluicetest.Op, sluice.Lease) error { return nil }

func (w *writes) Commit(_ driver.Step, apply func() error) error { return apply() }

func (w *writes) Write(op sluicetest.Op, _ sluice.Lease, apply func() error) error {
	return w.fails(op, apply)
}

// A checkpoint that is not stored, or whose answer is lost, repeats no batch.
func TestBatchesLostCheckpoint(t *testing.T) {
	for _, applied := range []bool{true, false} {
		t.Run(fmt.Sprintf("applied=%v", applied), func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				n := 0
				s.Store.Faults = &writes{func(op sluicetest.Op, apply func() error) error {
					if n++; op != sluicetest.OpAdvance || n%3 == 0 {
						return apply()
					}
					if applied {
						if err := apply(); err != nil {
							return err
						}
					}
					return errors.New("connection lost")
				}}
				s.Send("0", slices.Repeat([]string{"good"}, 50)...)
				u := s.uploads()
				_, stop := s.upload(u, nil, sluice.Config{MaxBatch: 10})
				time.Sleep(time.Minute)
				stop()
				u.wantDone(50, 0)
				s.wantPosition(49)
				if s.Count(driver.KindFailed) == 0 {
					s.T.Error("no failure was reported")
				}
			})
		})
	}
}

// A database that has lost its newest commits is brought up to date: nothing is repeated.
func TestBatchesDatabaseLosesCommits(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", slices.Repeat([]string{"good"}, 10)...)
		u := s.uploads()
		_, stop := s.upload(u, nil, sluice.Config{})
		time.Sleep(time.Minute)
		restore := s.Store.Snapshot()
		s.Send("0", slices.Repeat([]string{"good"}, 10)...)
		time.Sleep(time.Minute)
		restore()
		s.Send("0", "good")
		time.Sleep(time.Minute)
		stop()
		u.wantDone(21, 0)
		s.wantPosition(20)
	})
}

// The context of a handler ends with the lease. A checkpoint written late is refused, and the next
// owner repeats the batch.
func TestBatchesLostLease(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "a", "b")
		u := s.uploads()
		late := make(chan struct{})
		u.says = func(ctx context.Context, b sluice.Batch) error {
			if s.Leases.IsCut("first") {
				return nil
			}
			s.Leases.CutOff("first")
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), sluice.ErrLeaseExpired) {
				s.T.Errorf("the context ended with %v", context.Cause(ctx))
			}
			<-late // the handler takes no notice
			return nil
		}
		_, stopFirst := s.upload(u, nil, sluice.Config{Owner: "first"})
		time.Sleep(time.Second)
		_, stopSecond := s.upload(u, nil, sluice.Config{Owner: "second"})
		time.Sleep(2 * time.Minute)
		u.wantDone(2, 0)
		s.wantPosition(1)
		s.Send("0", "c")
		close(late)
		time.Sleep(time.Minute)
		u.wantDone(3, 2)
		s.wantPosition(2)
		stopFirst()
		stopSecond()
	})
}

// counted counts the checkpoints that are stored.
func (s *scene) advances() (n *atomic.Int64) {
	n = new(atomic.Int64)
	s.Store.Faults = &writes{func(op sluicetest.Op, apply func() error) error {
		if op == sluicetest.OpAdvance {
			n.Add(1)
		}
		return apply()
	}}
	return n
}

// With an interval the checkpoint is stored once in it, and when there are no more events. A crash
// repeats what was done since, a stop nothing.
func TestBatchesCheckpointEvery(t *testing.T) {
	stage(t, 1, func(s *scene) {
		n := s.advances()
		u := s.uploads()
		u.says = func(context.Context, sluice.Batch) error { time.Sleep(100 * time.Millisecond); return nil }
		every := &sluice.BatchesConfig{CheckpointEvery: 10 * time.Second}
		_, stop := s.upload(u, every, sluice.Config{Owner: "a", MaxBatch: 1})
		time.Sleep(time.Minute)
		n.Store(0)
		s.Send("0", slices.Repeat([]string{"good"}, 1000)...) // 100 s of work
		time.Sleep(95 * time.Second)
		if n := n.Load(); n < 9 || n > 11 {
			s.T.Errorf("%d checkpoints in 95 s, want one in 10 s", n)
		}
		if at, committed := s.Position("0"), s.committed(); at != committed {
			s.T.Errorf("event %d was reported as done, the checkpoint is at %d", committed, at)
		}
		time.Sleep(18 * time.Second)
		s.wantPosition(999)
		s.Send("0", "good", "good")
		time.Sleep(time.Second)
		stop()
		s.wantPosition(1001)
		u.wantDone(1002, 0)

		s.Send("0", slices.Repeat([]string{"good"}, 100)...)
		if !s.batchLife("b", u, every, func(b sluice.Batch) bool { return b.Events[0].Sequence > 1050 }) {
			s.T.Fatal("the process has not ended")
		}
		_, stop = s.upload(u, nil, sluice.Config{Owner: "c"})
		time.Sleep(3 * time.Minute)
		stop()
		u.wantDone(1102, 50)
		s.wantPosition(1101)
	})
}

// What is done is reported in order, also where the answer that its checkpoint is stored was lost.
func TestBatchesReportedInOrder(t *testing.T) {
	stage(t, 1, func(s *scene) {
		advances := 0
		s.Store.Faults = &writes{func(op sluicetest.Op, apply func() error) error {
			if err := apply(); err != nil || op != sluicetest.OpAdvance {
				return err
			}
			if advances++; advances%3 == 0 {
				return errors.New("the connection was lost")
			}
			return nil
		}}
		u := s.uploads()
		u.says = func(context.Context, sluice.Batch) error { time.Sleep(100 * time.Millisecond); return nil }
		s.Send("0", slices.Repeat([]string{"good"}, 1000)...)
		_, stop := s.upload(u, &sluice.BatchesConfig{CheckpointEvery: 10 * time.Second}, sluice.Config{MaxBatch: 3})
		time.Sleep(5 * time.Minute)
		stop()
		u.wantDone(1000, 0)
		at, events := int64(-1), 0
		for _, o := range s.Observations(driver.KindCommitted) {
			if o.To.Sequence <= at {
				s.T.Errorf("events up to %d were reported after those up to %d", o.To.Sequence, at)
			}
			at, events = o.To.Sequence, events+o.Events
		}
		if at != 999 || events != 1000 {
			s.T.Errorf("%d events were reported, up to %d", events, at)
		}
	})
}

// committed returns the last position that was reported.
func (s *scene) committed() (at int64) {
	for _, o := range s.Observations(driver.KindCommitted) {
		at = o.To.Sequence
	}
	return at
}

// What was done in a topic that is no more never counts in the next one.
func TestBatchesRecreatedTopic(t *testing.T) {
	stage(t, 1, func(s *scene) {
		u := s.uploads()
		empty := s.Store.Snapshot()
		s.Send("0", slices.Repeat([]string{"good"}, 10)...)
		_, stop := s.upload(u, &sluice.BatchesConfig{CheckpointEvery: time.Hour}, sluice.Config{})
		time.Sleep(time.Minute)
		s.Hub.Recreate()
		time.Sleep(time.Minute) // the partition halts
		empty()                 // the database has lost the checkpoint too
		s.Send("0", slices.Repeat([]string{"good"}, 10)...)
		time.Sleep(5 * time.Minute)
		stop()
		u.mu.Lock()
		defer u.mu.Unlock()
		for n := range int64(10) {
			if u.done[n] != 2 {
				s.T.Errorf("event %d was done %d times, want once in each topic", n, u.done[n])
			}
		}
	})
}

// A dead letter is redriven by the partition's owner, or by a command where there is none.
func TestBatchesRedrive(t *testing.T) {
	for _, owner := range []bool{true, false} {
		t.Run(fmt.Sprintf("owner=%v", owner), func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.Send("0", "good", "reject", "reject twice", "good")
				u := s.uploads()
				u.says = func(ctx context.Context, b sluice.Batch) error {
					for i, e := range b.Events {
						if b.Redriven && string(e.Body) != "reject" {
							return &driver.EventError{Index: i, Err: driver.Reject(errors.New("still refused"))}
						}
					}
					if b.Redriven {
						return nil
					}
					return verdict(ctx, b)
				}
				c, stop := s.upload(u, nil, sluice.Config{})
				time.Sleep(time.Minute)
				s.wantDead(1, 2)
				if !owner {
					stop()
					c = enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Batches(s.Store, u.handle, nil), &sluice.Config{Observer: s}))
				}
				s.RedriveAll()
				if !owner {
					if applied, failed, err := c.Redrive(s.T.Context()); applied != 1 || failed != 1 || err != nil {
						s.T.Errorf("redriven %d, %d failed, %v", applied, failed, err)
					}
				}
				time.Sleep(time.Minute)
				stop()
				s.wantDead(2)
				u.wantDone(4, 0, 2)
				if l := s.Letters(); len(l) == 1 && (l[0].Status != sluice.StatusDead || l[0].Attempts != 2) {
					s.T.Errorf("dead letter %+v", l[0])
				}
			})
		})
	}
}

// A redrive that meets an outage is postponed, and the partition does not wait.
func TestBatchesRedriveOutage(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "reject")
		u := s.uploads()
		a := newAPI(driver.Outage)
		a.failing.Store(true)
		u.says = func(ctx context.Context, b sluice.Batch) error {
			if b.Redriven {
				return a.call()
			}
			return verdict(ctx, b)
		}
		_, stop := s.upload(u, nil, sluice.Config{})
		time.Sleep(time.Minute)
		s.RedriveAll()
		time.Sleep(time.Minute)
		s.Send("0", "good")
		time.Sleep(time.Second)
		s.wantPosition(1)
		s.wantDead(0)
		a.failing.Store(false)
		time.Sleep(time.Minute)
		stop()
		s.wantDead()
		u.wantDone(2, 0)
	})
}

func TestBatchesConfig(t *testing.T) {
	hub, store := sluicetest.NewHub(enginetest.Group, 1), &sluicetest.Store{}
	ok := func(context.Context, sluice.Batch) error { return nil }
	for name, delivery := range map[string]sluice.Delivery{
		"no store":   sluice.Batches(nil, ok, nil),
		"no handler": sluice.Batches(store, nil, nil),
		"negative":   sluice.Batches(store, ok, &sluice.BatchesConfig{CheckpointEvery: -1}),
	} {
		if _, err := sluice.New(hub, &sluicetest.Leases{}, delivery, nil); err == nil || !strings.HasPrefix(err.Error(), "batches: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
