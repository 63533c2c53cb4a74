package sender_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/sender"
)

// TestMaxWait has a sequence pause: what it has yielded doesn't wait for what
// follows, and batches still fill where it doesn't pause.
func TestMaxWait(t *testing.T) {
	for name, c := range map[string]struct {
		ordered bool
		keys    int64
	}{"keys": {keys: 100}, "loose": {}, "ordered": {ordered: true, keys: 100}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &blindHub{limit: 1 << 20}
				e, err := sender.NewEstimator(h, &sender.EstimatorConfig{MaxMessages: 50})
				if err != nil {
					t.Fatal(err)
				}
				f := traffic{count: 1000, keys: c.keys, size: fixed(10)}
				s := sender.New(e, &sender.Config{MaxWait: time.Second, Ordered: c.ordered})
				report, err := s.SendAll(t.Context(), func(yield func(sender.Message) bool) {
					for i := range f.count {
						if i%250 == 101 {
							time.Sleep(2 * time.Second)
							if n := s.Stats().Messages; n != i {
								t.Errorf("%d of %d messages went during the pause", n, i)
							}
						}
						if !yield(f.message(i)) {
							return
						}
					}
				})
				if err != nil || report.Messages != f.count {
					t.Fatalf("%d of %d accepted: %v", report.Messages, f.count, err)
				}
				agree(t, report, h.inventory(t, f))
				if most := int64(20 + 5*4); !c.ordered && report.Batches > most {
					t.Errorf("%d batches", report.Batches)
				}
			})
		})
	}
}

// TestRefusedIsTold has each message that can't be sent told at once, and no
// error for the others.
func TestRefusedIsTold(t *testing.T) {
	h := &blindHub{limit: 5000}
	e, err := sender.NewEstimator(h, &sender.EstimatorConfig{Limit: 3000})
	if err != nil {
		t.Fatal(err)
	}
	f := traffic{count: 500, keys: 50, size: func(r *rand.Rand) int {
		if r.IntN(20) == 0 {
			return 6000
		}
		return 100
	}}
	var mu sync.Mutex
	var told []int64
	s := sender.New(e, &sender.Config{OnRejected: func(e *sender.RejectedError) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, e.Index)
		if !errors.Is(e, sender.ErrTooLarge) {
			t.Errorf("refused: %v", e)
		}
	}})
	report, err := s.SendAll(within(t), f.all())
	if err != nil || report.Messages+int64(len(told)) != f.count || len(told) < 10 {
		t.Fatalf("%d of %d accepted, %d refused: %v", report.Messages, f.count, len(told), err)
	}
	slices.Sort(told)
	var want []int64
	for _, r := range report.Rejected {
		for i := r.First; i <= r.Last; i++ {
			want = append(want, i)
		}
	}
	if !slices.Equal(told, want) {
		t.Errorf("told of %v, reported %v", told, want)
	}
}

// TestLimit asks for the size of batches, and bounds how many messages one has.
func TestLimit(t *testing.T) {
	srv := start(t, 2, &emulator.Config{MaxMessageBytes: 123_456})
	standard, premium := startBus(t, nil), startBus(t, &emulator.ServiceBusConfig{Premium: true})
	for name, c := range map[string]struct {
		limit func() (int, error)
		want  int
	}{
		"hub": {func() (int, error) { return open(t, srv, nil).MaxBatchBytes(within(t)) }, 123_456},
		"hub, by hand": {func() (int, error) {
			return open(t, srv, &sender.EventHubConfig{MaxBytes: 999}).MaxBatchBytes(within(t))
		}, 999},
		"standard tier": {func() (int, error) {
			return openBus(t, standard.ConnectionString(), queue, nil).MaxBatchBytes(within(t))
		}, 256 << 10},
		"premium tier": {func() (int, error) {
			return openBus(t, premium.ConnectionString(), queue, nil).MaxBatchBytes(within(t))
		}, 1 << 20},
	} {
		if got, err := c.limit(); err != nil || got != c.want {
			t.Errorf("%s: %d bytes, want %d: %v", name, got, c.want, err)
		}
	}
	if _, err := openBus(t, standard.ConnectionString(), "nowhere", nil).MaxBatchBytes(within(t)); !errors.Is(err, sender.ErrPermanent) {
		t.Errorf("a queue that isn't there: %v", err)
	}

	loose := traffic{count: 100, size: fixed(10)}
	report, err := sender.New(open(t, srv, &sender.EventHubConfig{MaxMessages: 10}), nil).SendAll(within(t), loose.all())
	if err != nil || report.Batches != 10 || report.Messages != loose.count {
		t.Errorf("%+v: %v", report, err)
	}
	if a := srv.Arrivals(hub); a.Messages != 10 {
		t.Errorf("%d batches arrived", a.Messages)
	}
}
