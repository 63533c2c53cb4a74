package partition_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// panicky are drivers of which one method panics the second time that it is called.
type panicky struct {
	method string
	mu     sync.Mutex
	calls  int
}

func (p *panicky) enter(method string) {
	if method != p.method {
		return
	}
	p.mu.Lock()
	p.calls++
	second := p.calls == 2
	p.mu.Unlock()
	if second {
		var nowhere *sluice.Event
		nowhere.Body = nil
	}
}

type panickyHub struct {
	*sluicetest.Hub
	*panicky
}

func (h panickyHub) Describe(ctx context.Context) (sluice.Topic, error) {
	h.enter("Describe")
	return h.Hub.Describe(ctx)
}

func (h panickyHub) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	h.enter("Bounds")
	return h.Hub.Bounds(ctx, partition)
}

func (h panickyHub) Seek(ctx context.Context, partition string, start sluice.Start, epoch int64) (sluice.Position, error) {
	h.enter("Seek")
	return h.Hub.Seek(ctx, partition, start, epoch)
}

func (h panickyHub) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	h.enter("Open")
	r, err := h.Hub.Open(ctx, partition, after, epoch)
	return panickyReader{r, h.panicky}, err
}

type panickyReader struct {
	driver.Reader
	*panicky
}

func (r panickyReader) Read(ctx context.Context, limit int) ([]*sluice.Event, error) {
	r.enter("Read")
	return r.Reader.Read(ctx, limit)
}

func (r panickyReader) Close(ctx context.Context) error {
	r.enter("Close")
	return r.Reader.Close(ctx)
}

type panickyLeases struct {
	driver.LeaseStore
	*panicky
}

func (l panickyLeases) Acquire(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
	l.enter("Acquire")
	return l.LeaseStore.Acquire(ctx, group, partition, owner, ttl, above)
}

func (l panickyLeases) Renew(ctx context.Context, lease sluice.Lease, ttl time.Duration) error {
	l.enter("Renew")
	return l.LeaseStore.Renew(ctx, lease, ttl)
}

func (l panickyLeases) Release(ctx context.Context, lease sluice.Lease) error {
	l.enter("Release")
	return l.LeaseStore.Release(ctx, lease)
}

func (l panickyLeases) List(ctx context.Context, group sluice.Group) ([]driver.LeaseInfo, error) {
	l.enter("List")
	return l.LeaseStore.List(ctx, group)
}

func (l panickyLeases) MarkBegan(ctx context.Context, lease sluice.Lease, incarnation string) error {
	l.enter("MarkBegan")
	return l.LeaseStore.MarkBegan(ctx, lease, incarnation)
}

// Before and Commit implement [sluicetest.Faults].
func (p *panicky) Before(op sluicetest.Op, _ sluice.Lease) error {
	p.enter("store: " + string(op))
	return nil
}

func (p *panicky) Commit(_ driver.Step, apply func() error) error { return apply() }

// TestDriverPanics: a panic in any method of a driver ends at most the partition, with a line that
// says where it was. The partition is acquired again, and each event takes effect once.
func TestDriverPanics(t *testing.T) {
	for _, method := range []string{
		"Describe", "Bounds", "Seek", "Open", "Read", "Close", "Acquire", "Renew", "Release", "List", "MarkBegan",
		"store: claim", "store: begin", "store: commit", "store: record", "store: leave", "store: due",
	} {
		t.Run(method, func(t *testing.T) {
			stage(t, 2, func(s *scene) {
				s.Panics = true
				p := &panicky{method: method}
				s.Store.Faults = p
				s.Send("0", "one", "two", "bad", "four")
				s.Send("1", "one", "two")
				run := func() (stop func()) {
					c, err := sluice.New(panickyHub{s.Hub, p}, panickyLeases{s.Leases, p}, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)),
						&sluice.Config{Owner: "a", Observer: s, MaxBatch: 1})
					if err != nil {
						s.T.Fatal(err)
					}
					ran := make(chan error, 1)
					go func() { ran <- c.Run(s.T.Context()) }()
					return func() {
						if err := c.Stop(s.T.Context()); err != nil {
							s.T.Errorf("stop: %v", err)
						}
						if err := <-ran; err != nil {
							s.T.Errorf("run: %v", err)
						}
					}
				}
				stop := run()
				time.Sleep(3 * time.Minute)
				stop()
				stop = run()
				s.Send("0", "five")
				time.Sleep(3 * time.Minute)
				stop()
				rows := s.Rows()
				slices.Sort(rows)
				if want := []int64{0, 0, 1, 1, 3, 4}; !slices.Equal(rows, want) {
					s.T.Errorf("rows %v, want %v", rows, want)
				}
				if p.calls < 2 {
					s.T.Fatalf("called %d times, want two at least", p.calls)
				}
				said := false
				for _, o := range s.Observations() {
					said = said || o.Err != nil && strings.Contains(o.Err.Error(), "panic outside of the handler, at ") && strings.Contains(o.Err.Error(), "panic_test.go:")
				}
				if !said {
					s.T.Error("no observation says that a driver panicked, and where")
				}
			})
		})
	}
}

// poisonous is a store whose COMMIT of a certain event panics each time.
type poisonous struct{ sequence int64 }

func (poisonous) Before(sluicetest.Op, sluice.Lease) error { return nil }

func (p poisonous) Commit(step driver.Step, apply func() error) error {
	if step.From.Sequence < p.sequence && p.sequence <= step.To.Sequence && len(step.DeadLetters) == 0 {
		panic("an index is out of range")
	}
	return apply()
}

// TestCommitThatPanics: an event whose commit panics each time becomes a dead letter, as one that
// ends the process each time. The partition does not come back faster and faster.
func TestCommitThatPanics(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Panics = true
		s.Store.Faults = poisonous{2}
		s.Send("0", "one", "two", "three", "four", "five")
		_, stop := s.Run(s.Hub, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)), sluice.Config{})
		time.Sleep(time.Hour)
		stop()
		rows := s.Rows()
		slices.Sort(rows)
		if want := []int64{0, 1, 3, 4}; !slices.Equal(rows, want) {
			s.T.Errorf("rows %v, want %v", rows, want)
		}
		if letters := s.Letters(); len(letters) != 1 || letters[0].Event.Sequence != 2 {
			s.T.Errorf("dead letters %v, want that of event 2", letters)
		}
		if n := s.Count(driver.KindLost); n > 20 {
			s.T.Errorf("the partition was given up %d times", n)
		}
	})
}

// TestPanicBesideRecordsInFlight: a panic of the log waits for what the sink has, and what was
// written is stored.
func TestPanicBesideRecordsInFlight(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Panics = true
		p := &panicky{method: "Read"}
		w := enginetest.NewWarehouse(s.T)
		s.SendKeyed("0", 50, enginetest.NoKey)
		c := enginetest.Must(sluice.New(panickyHub{s.Hub, p}, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, nil), &sluice.Config{Observer: s, MaxBatch: 10}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(s.T.Context()) }()
		time.Sleep(5 * time.Minute)
		if err := errors.Join(c.Stop(s.T.Context()), <-ran); err != nil {
			s.T.Error(err)
		}
		rows := enginetest.Sorted(w.Rows())
		if !slices.Equal(slices.Compact(rows), enginetest.UpTo(50)) {
			s.T.Errorf("rows %v, want each of 50", rows)
		}
		if p.calls < 3 {
			s.T.Errorf("Read was called %d times", p.calls)
		}
	})
}

// TestPanicWhileMemoryIsBuilt: a Replayer hears of the end before its events come again.
func TestPanicWhileMemoryIsBuilt(t *testing.T) {
	for _, method := range []string{"Read", "Open", "Close"} {
		t.Run(method, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.Panics = true
				p := &panicky{method: method}
				s.Send("0", "one", "two", "three")
				var mu sync.Mutex
				var memory []int64
				delivery := sluice.Replay(sluice.Replayer{
					Apply: func(_ context.Context, b sluice.Batch) error {
						mu.Lock()
						defer mu.Unlock()
						for _, e := range b.Events {
							memory = append(memory, e.Sequence)
						}
						return nil
					},
					Released: func(sluice.Lease, error) {
						mu.Lock()
						defer mu.Unlock()
						memory = nil
					},
				})
				c := enginetest.Must(sluice.New(panickyHub{s.Hub, p}, s.Leases, delivery, &sluice.Config{Observer: s, MaxBatch: 1}))
				ran := make(chan error, 1)
				go func() { ran <- c.Run(s.T.Context()) }()
				time.Sleep(3 * time.Minute)
				if method != "Read" {
					s.Hub.Recreate() // the log is opened again
					s.Send("0", "one", "two", "three")
					time.Sleep(3 * time.Minute)
				}
				mu.Lock()
				if want := []int64{0, 1, 2}; !slices.Equal(memory, want) {
					s.T.Errorf("the memory has %v, want %v", memory, want)
				}
				mu.Unlock()
				if err := errors.Join(c.Stop(s.T.Context()), <-ran); err != nil {
					s.T.Error(err)
				}
			})
		})
	}
}

// TestPanicOfACopy: a store that panics while dead letters are copied does not end copying.
func TestPanicOfACopy(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Panics = true
		p := &panicky{method: "store: " + string(sluicetest.OpUncopied)}
		s.Store.Faults = p
		s.Send("0", "reject", "good", "reject", "good")
		copied := 0
		_, stop := s.Run(s.Hub, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)), sluice.Config{
			CopyDeadLetters: func(_ context.Context, dead []sluice.DeadLetter) error { copied += len(dead); return nil },
		})
		time.Sleep(10 * time.Minute)
		stop()
		if copied < 2 || p.calls < 2 {
			s.T.Errorf("%d of 2 dead letters were copied, after %d calls", copied, p.calls)
		}
	})
}
