package sender_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sender"
)

// TestMaxWait pauses the sequence: the messages before the pause don't wait for
// those after it, and batches still fill between the pauses.
func TestMaxWait(t *testing.T) {
	for name, c := range map[string]struct {
		ordered bool
		keys    int64
	}{"keys": {keys: 100}, "keyless": {}, "ordered": {ordered: true, keys: 100}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &sizeUnawareHub{limit: 1 << 20}
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
				checkReport(t, report, h.inventory(t, f))
				if most := int64(20 + 5*4); !c.ordered && report.Batches > most {
					t.Errorf("%d batches", report.Batches)
				}
			})
		})
	}
}

// TestOnRejected checks that OnRejected is called for each message that can't be
// sent, and that SendAll returns no error for the others.
func TestOnRejected(t *testing.T) {
	h := &sizeUnawareHub{limit: 5000}
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
	var notified []int64
	s := sender.New(e, &sender.Config{OnRejected: func(e *sender.RejectedError) {
		mu.Lock()
		defer mu.Unlock()
		notified = append(notified, e.Index)
		if !errors.Is(e, sender.ErrTooLarge) {
			t.Errorf("refused: %v", e)
		}
	}})
	report, err := s.SendAll(testContext(t), f.all())
	if err != nil || report.Messages+int64(len(notified)) != f.count || len(notified) < 10 {
		t.Fatalf("%d of %d accepted, %d refused: %v", report.Messages, f.count, len(notified), err)
	}
	slices.Sort(notified)
	var want []int64
	for _, r := range report.Rejected {
		for i := r.First; i <= r.Last; i++ {
			want = append(want, i)
		}
	}
	if !slices.Equal(notified, want) {
		t.Errorf("OnRejected was called for %v, the report has %v", notified, want)
	}
}

// A busy service is asked for the size of a batch again.
func TestMaxBatchBytesRepeatsBusy(t *testing.T) {
	need.RealTime(t)
	busy := &emulator.AsAzure{Seed: 1}
	busy.EventHubs.RandomBusy, busy.ServiceBus.RandomBusy = 0.3, 0.3
	srv, bus := start(t, 2, &emulator.Config{AsAzure: busy}), startBus(t, &emulator.ServiceBusConfig{AsAzure: busy})
	for range 5 {
		if n, err := open(t, srv, nil).MaxBatchBytes(testContext(t)); err != nil || n != 1<<20 {
			t.Errorf("a hub: %d bytes, %v", n, err)
		}
		if n, err := openBus(t, bus.ConnectionString(), queue, nil).MaxBatchBytes(testContext(t)); err != nil || n != 256<<10 {
			t.Errorf("a queue: %d bytes, %v", n, err)
		}
	}
}

// TestMaxBatchBytes asks for the size of a batch, and bounds how many messages a
// batch has.
func TestMaxBatchBytes(t *testing.T) {
	srv := start(t, 2, &emulator.Config{MaxMessageBytes: 123_456, AsAzure: withoutBusy()})
	standard, premium := startBus(t, nil), startBus(t, &emulator.ServiceBusConfig{Premium: true})
	for name, c := range map[string]struct {
		limit func() (int, error)
		want  int
	}{
		"hub": {func() (int, error) { return open(t, srv, nil).MaxBatchBytes(testContext(t)) }, 123_456},
		"hub, MaxBytes": {func() (int, error) {
			return open(t, srv, &sender.EventHubConfig{MaxBytes: 999}).MaxBatchBytes(testContext(t))
		}, 999},
		"standard tier": {func() (int, error) {
			return openBus(t, standard.ConnectionString(), queue, nil).MaxBatchBytes(testContext(t))
		}, 256 << 10},
		"premium tier": {func() (int, error) {
			return openBus(t, premium.ConnectionString(), queue, nil).MaxBatchBytes(testContext(t))
		}, 1 << 20},
	} {
		if got, err := c.limit(); err != nil || got != c.want {
			t.Errorf("%s: %d bytes, want %d: %v", name, got, c.want, err)
		}
	}
	if _, err := openBus(t, standard.ConnectionString(), "nowhere", nil).MaxBatchBytes(testContext(t)); !errors.Is(err, sender.ErrPermanent) {
		t.Errorf("a queue that isn't there: %v", err)
	}

	keyless := traffic{count: 100, size: fixed(10)}
	report, err := sender.New(open(t, srv, &sender.EventHubConfig{MaxMessages: 10}), nil).SendAll(testContext(t), keyless.all())
	if err != nil || report.Batches != 10 || report.Messages != keyless.count {
		t.Errorf("%+v: %v", report, err)
	}
	if a := srv.IncomingStats(hub); a.Messages != 10 {
		t.Errorf("%d batches arrived", a.Messages)
	}
}

// TestNoConnectionString: an empty connection string, as of a variable that is not set, is refused
// as empty.
func TestNoConnectionString(t *testing.T) {
	for _, text := range []string{"", " \n"} {
		if _, err := sender.OpenEventHub(text, "flights", nil); err == nil || !strings.Contains(err.Error(), "the connection string is empty: copy it") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
