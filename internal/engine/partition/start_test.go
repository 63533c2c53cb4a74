package partition_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// overtaking is a log whose retention passes the position of the first openings, after
// it was chosen.
type overtaking struct {
	*sluicetest.Hub
	mu    sync.Mutex
	trims []int64 // of each opening: the first event that is left
}

func (o *overtaking) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	o.mu.Lock()
	if len(o.trims) > 0 {
		o.Trim(partition, o.trims[0])
		o.trims = o.trims[1:]
	}
	o.mu.Unlock()
	return o.Hub.Open(ctx, partition, after, epoch)
}

// While nothing was read, a start that retention overtakes is chosen again.
func TestStartOvertakenByRetention(t *testing.T) {
	for _, test := range []struct {
		name  string
		start sluice.Start
		trims []int64
		halts bool
	}{
		{"earliest", sluice.Earliest(), []int64{7}, false},
		{"again and again", sluice.Earliest(), []int64{1, 2, 3, 4, 5, 6, 7}, false},
		{"time", sluice.At(time.Unix(1, 0)), []int64{7}, false},
		{"ago", sluice.Ago(1000 * time.Hour), []int64{7}, false},
		{"ago, until all events are older", sluice.Ago(500 * time.Millisecond), []int64{1, 2, 3, 4, 5, 6, 7}, false},
		{"sequence", sluice.FromSequence(2), []int64{7}, true},
	} {
		for name, atLeastOnce := range map[string]bool{"transactional": false, "at least once": true} {
			t.Run(test.name+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					hub := sluicetest.NewHub(enginetest.Group, 1)
					hub.Append("0", sluicetest.Bodies(make([]string, 10)...)...)
					h := &enginetest.Halts{}
					got := h.Read(t, &overtaking{Hub: hub, trims: test.trims}, enginetest.NewLedger(), &sluicetest.Store{}, atLeastOnce, test.start)
					if test.halts {
						if len(h.Halted) != 1 || got != nil {
							t.Errorf("halted by %v, applied %v", h.Halted, got)
						}
						return
					}
					if want := []int64{7, 8, 9}; !slices.Equal(got, want) || h.Halted != nil {
						t.Errorf("applied %v, want %v; halted by %v", got, want, h.Halted)
					}
					if h.Failed == nil {
						t.Error("nothing was reported")
					}
				})
			})
		}
	}
}

// unready is a log whose first reader returns an event and then an error.
type unready struct {
	*sluicetest.Hub
	once sync.Once
}

func (u *unready) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	r, err := u.Hub.Open(ctx, partition, after, epoch)
	u.once.Do(func() { r = &brief{Reader: r, ended: func() { u.Trim(partition, 7) }} })
	return r, err
}

// brief is a reader that ends after one event.
type brief struct {
	driver.Reader
	ended func()
	read  bool
}

func (b *brief) Read(ctx context.Context, max int) ([]*sluice.Event, error) {
	if b.read {
		b.ended()
		return nil, enginetest.ErrCut
	}
	b.read = true
	return b.Reader.Read(ctx, 1)
}

// An event that was read may have had effects. So what retention removes after it is
// lost, and an operator decides; also after a restart, when nobody knows what was read.
func TestRetentionAfterSomethingWasRead(t *testing.T) {
	for name, atLeastOnce := range map[string]bool{"transactional": false, "at least once": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := sluicetest.NewHub(enginetest.Group, 1)
				hub.Append("0", sluicetest.Bodies(make([]string, 10)...)...)
				h := &enginetest.Halts{}
				got := h.Read(t, &unready{Hub: hub}, enginetest.NewLedger(), &sluicetest.Store{}, atLeastOnce, sluice.Earliest())
				if len(got) > 1 || len(h.Halted) != 1 {
					t.Errorf("applied %v, halted by %v", got, h.Halted)
				}
			})
		})
		t.Run("restart, "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, store := sluicetest.NewHub(enginetest.Group, 1), &sluicetest.Store{}
				h := &enginetest.Halts{}
				if got := h.Read(t, hub, enginetest.NewLedger(), store, atLeastOnce, sluice.Earliest()); got != nil || h.Halted != nil {
					t.Fatalf("applied %v, halted by %v", got, h.Halted)
				}
				hub.Append("0", sluicetest.Bodies(make([]string, 10)...)...)
				hub.Trim("0", 7)
				if got := h.Read(t, hub, enginetest.NewLedger(), store, atLeastOnce, sluice.Earliest()); got != nil || len(h.Halted) != 1 {
					t.Errorf("applied %v, halted by %v", got, h.Halted)
				}
			})
		})
	}
}

// A database that has lost the checkpoint is not taken for one that never had it: the partition
// halts, and goes on where an operator sets it.
func TestStartIsLost(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.Send("0", "before", "before")
		lose := s.Store.Snapshot()
		_, end := s.Consume("a", sluice.Each(enginetest.Insert), sluice.Config{Start: sluice.Latest()})
		defer end()
		time.Sleep(10 * time.Second)
		s.Send("0", "after", "after")
		time.Sleep(10 * time.Second)
		if got, want := s.Rows(), []int64{2, 3}; !slices.Equal(got, want) {
			t.Fatalf("rows %v, want %v", got, want)
		}
		lose()
		if got := s.Rows(); len(got) != 0 {
			t.Fatalf("the database still has rows %v", got)
		}
		time.Sleep(time.Minute)
		if got := s.Rows(); len(got) != 0 || len(s.missing()) != 1 {
			t.Errorf("after the database lost the checkpoint: rows %v, halted by %v", got, s.missing())
		}
		topic := enginetest.Must(s.Hub.Describe(t.Context()))
		enginetest.Must(s.Store.Reset(t.Context(), enginetest.Group, "0", topic.Incarnation, sluice.Position{Sequence: 1}, driver.HowSet))
		time.Sleep(time.Minute)
		if got, want := s.Rows(), []int64{2, 3}; !slices.Equal(got, want) {
			t.Errorf("after the checkpoint was set: rows %v, want %v", got, want)
		}
	})
}
