package stamp_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// amnesiac is a database that can lose all it has committed, as one does
// that was restored from before. It keeps its fence.
type amnesiac struct {
	*sluicetest.Store
	mu      sync.Mutex
	loses   func(call string) bool // loses it before this call
	restore func(lease sluice.Lease) *sluicetest.Store
}

func (f *amnesiac) storeFor(call string, lease sluice.Lease) *sluicetest.Store {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loses != nil && f.loses(call) {
		f.loses, f.Store = nil, f.restore(lease)
	}
	return f.Store
}

func (f *amnesiac) Commit(ctx context.Context, step driver.Step, fn func(context.Context, *sluicetest.Tx) error) error {
	return f.storeFor("commit", step.Lease).Commit(ctx, step, fn)
}

func (f *amnesiac) RecordAttempt(ctx context.Context, lease sluice.Lease, at sluice.Position, trial driver.AttemptRecord) error {
	return f.storeFor("record", lease).RecordAttempt(ctx, lease, at, trial)
}

// A checkpoint that goes back within a tenure takes the ids seen behind it
// along: what is read again is judged as at first, wherever it was noticed.
func TestRepeatsAfterLostCommits(t *testing.T) {
	for _, call := range []string{"commit", "record"} {
		t.Run(call, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				incarnation := enginetest.Must(s.Hub.Describe(s.T.Context())).Incarnation
				store := &amnesiac{Store: s.Store}
				store.restore = func(lease sluice.Lease) *sluicetest.Store {
					restored := &sluicetest.Store{}
					enginetest.Must(restored.Claim(s.T.Context(), lease, incarnation))
					if err := restored.Commit(s.T.Context(), driver.Step{Lease: lease, From: driver.Unset, To: driver.Origin}, nil); err != nil {
						s.T.Error(err)
					}
					return restored
				}
				fails := true
				c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Transactional(store, sluice.Each(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
					if string(e.Body) == "flaky" && fails {
						fails = false
						return errors.New("not yet")
					}
					return tx.Insert("rows", e.Sequence)
				})), &sluice.Config{Observer: s, MaxBatch: 1, StampsFrom: s.StampsFrom}))
				ran := make(chan error, 1)
				go func() { ran <- c.Run(s.T.Context()) }()
				s.Hub.Append("0", message(stampOf(5, 1, 4)), message(stampOf(5, 1, 4)), message(stampOf(6, 1, 4)))
				time.Sleep(time.Minute)
				store.mu.Lock()
				store.loses = func(now string) bool { return now == call }
				store.mu.Unlock()
				last := message(stampOf(7, 1, 4))
				last.Body = []byte("flaky")
				s.Hub.Append("0", last)
				time.Sleep(10 * time.Minute)
				if err := errors.Join(c.Stop(s.T.Context()), <-ran); err != nil {
					s.T.Error(err)
				}
				var rows []int64
				for _, row := range store.Rows("rows") {
					rows = append(rows, row.(int64))
				}
				if !slices.Equal(rows, []int64{0, 2, 3}) {
					s.T.Errorf("the database that was restored has %v, want 0, 2, 3", rows)
				}
				seen := enginetest.Must(store.ReadDedup(s.T.Context(), enginetest.Group, "0"))
				if len(seen) != 3 || store.loses != nil {
					s.T.Errorf("it has seen %+v, want what three steps have left; lost: %t", seen, store.loses == nil)
				}
			})
		})
	}
}

// The ids of retries live as long as their origin sends anything, whoever owns
// the partition, and are stored again before they would expire; but not those
// that come only behind the step.
func TestRepeatsKeepRetries(t *testing.T) {
	for _, maxBatch := range []int{1, 7, 100} {
		for _, consumers := range []int{1, 2, 3} {
			for _, late := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d a batch, %d consumers, late: %t", maxBatch, consumers, late), func(t *testing.T) {
					stage(t, 1, func(s *scene) {
						at := time.Now()
						const day = 24 * time.Hour
						put := func(after time.Duration, stamp stamp.Stamp) {
							e := message(stamp)
							e.Enqueued = at.Add(after)
							s.Hub.Append("0", e)
						}
						put(0, stampOf(5, 1, 4))
						put(0, stampOf(6, 1, 4))
						put(0, parked(stampOf(21, 1, 20), "-1/0:5"))
						put(0, retried(7))
						for d := range int64(20) {
							put(time.Duration(d+1)*10*day, stampOf(300+d, 1, 299+d))
						}
						if late {
							s.pass(maxBatch, consumers)
						}
						put(201*day, retried(5))
						put(201*day, retried(7))
						put(201*day, retried(8))
						put(202*day, stampOf(400, 1, 399))
						put(202*day, retried(8))
						want := []int64{0, 1, 2, 3}
						for n := int64(4); n < 24; n++ {
							want = append(want, n)
						}
						want = append(want, 26, 27)
						if got := s.pass(maxBatch, consumers); !slices.Equal(got, want) {
							s.T.Errorf("handled %v, want %v: what got through of 5, and the retry of 7, are known for as long as their origin", got, want)
						}
						other := stampOf(1, 1, -1)
						other.ID.Source = "other"
						put(400*day, other)
						s.pass(maxBatch, 1)
						put(400*day, retried(5))
						if got := s.pass(maxBatch, 1); !slices.Equal(got, append(want, 29, 30)) {
							s.T.Errorf("handled %v, want %v and 29, 30: the origin was silent for too long", got, want)
						}
					})
				})
			}
		}
	}
}
