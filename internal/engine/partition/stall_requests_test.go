package partition_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// noAnswer decides which requests get no answer: the first of one kind, or all of it for a time.
type noAnswer struct {
	mu      sync.Mutex
	kind    string
	release chan struct{} // all of the kind hang until this is closed; nil: only the first one does
	deaf    bool          // they hang whatever their contexts say
}

// begin has all requests of a kind hang. The function that it returns ends that.
func (u *noAnswer) begin(kind string, deaf bool) (end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.kind, u.release, u.deaf = kind, make(chan struct{}), deaf
	return sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.kind = ""
		close(u.release)
	})
}

// hangs reports whether a kind hangs now.
func (u *noAnswer) hangs(kind string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.kind == kind
}

// ask waits for the end of ctx if the request gets no answer.
func (u *noAnswer) ask(ctx context.Context, kind string) error {
	u.mu.Lock()
	hang, until := u.kind == kind, u.release
	if hang && until == nil {
		u.kind = ""
	}
	over := ctx.Done()
	if u.deaf {
		over = nil
	}
	u.mu.Unlock()
	if !hang {
		return nil
	}
	select {
	case <-over:
		return ctx.Err()
	case <-until:
		return nil
	}
}

// answered makes a request of u's kind hang before it is done.
func answered[T any](ctx context.Context, u *noAnswer, kind string, do func() (T, error)) (none T, err error) {
	if err := u.ask(ctx, kind); err != nil {
		return none, fmt.Errorf("%s: %w", kind, err)
	}
	return do()
}

// silentHub is a log over a connection that can go silent.
type silentHub struct {
	*sluicetest.Hub
	u *noAnswer
}

func (h silentHub) Describe(ctx context.Context) (sluice.Topic, error) {
	return answered(ctx, h.u, "describe", func() (sluice.Topic, error) { return h.Hub.Describe(ctx) })
}

func (h silentHub) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	return answered(ctx, h.u, "bounds", func() (driver.Bounds, error) { return h.Hub.Bounds(ctx, partition) })
}

func (h silentHub) Seek(ctx context.Context, partition string, start sluice.Start, epoch int64) (sluice.Position, error) {
	return answered(ctx, h.u, "seek", func() (sluice.Position, error) { return h.Hub.Seek(ctx, partition, start, epoch) })
}

func (h silentHub) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	return answered(ctx, h.u, "open", func() (driver.Reader, error) {
		r, err := h.Hub.Open(ctx, partition, after, epoch)
		return silentReader{r, h.u}, err
	})
}

type silentReader struct {
	driver.Reader
	u *noAnswer
}

func (r silentReader) Read(ctx context.Context, most int) ([]*sluice.Event, error) {
	if r.u.hangs("describe") && r.u.release != nil {
		return nil, errors.New("connection lost")
	}
	return answered(ctx, r.u, "read", func() ([]*sluice.Event, error) { return r.Reader.Read(ctx, most) })
}

func (r silentReader) Close(ctx context.Context) error {
	_, err := answered(ctx, r.u, "close", func() (none struct{}, err error) { return none, r.Reader.Close(ctx) })
	return err
}

// silentStore is a store over a connection that can go silent.
type silentStore struct {
	*sluicetest.Store
	u *noAnswer
}

func (s silentStore) Claim(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
	return answered(ctx, s.u, "claim", func() (sluice.Checkpoint, error) { return s.Store.Claim(ctx, lease, incarnation) })
}

func (s silentStore) Begin(ctx context.Context, lease sluice.Lease, from, to sluice.Position) error {
	_, err := answered(ctx, s.u, "begin", func() (none struct{}, err error) { return none, s.Store.Begin(ctx, lease, from, to) })
	return err
}

func (s silentStore) Commit(ctx context.Context, step driver.Step, fn func(context.Context, *sluicetest.Tx) error) error {
	_, err := answered(ctx, s.u, "commit", func() (none struct{}, err error) { return none, s.Store.Commit(ctx, step, fn) })
	return err
}

func (s silentStore) Park(ctx context.Context, dead []sluice.DeadLetter) error {
	_, err := answered(ctx, s.u, "park", func() (none struct{}, err error) { return none, s.Store.Park(ctx, dead) })
	return err
}

func (s silentStore) Settle(ctx context.Context, g sluice.Group, done []int64, failed []sluice.DeadLetter) error {
	_, err := answered(ctx, s.u, "settle", func() (none struct{}, err error) { return none, s.Store.Settle(ctx, g, done, failed) })
	return err
}

func (s silentStore) Uncopied(ctx context.Context, g sluice.Group, partition string, after int64, limit int) ([]sluice.DeadLetter, error) {
	return answered(ctx, s.u, "uncopied", func() ([]sluice.DeadLetter, error) { return s.Store.Uncopied(ctx, g, partition, after, limit) })
}

func (s silentStore) ReadDedup(ctx context.Context, g sluice.Group, partition string) ([]driver.DedupState, error) {
	return answered(ctx, s.u, "dedup", func() ([]driver.DedupState, error) { return s.Store.ReadDedup(ctx, g, partition) })
}

func (s silentStore) RecordAttempt(ctx context.Context, lease sluice.Lease, at sluice.Position, attempt driver.AttemptRecord) error {
	_, err := answered(ctx, s.u, "record", func() (none struct{}, err error) { return none, s.Store.RecordAttempt(ctx, lease, at, attempt) })
	return err
}

func (s silentStore) Due(ctx context.Context, g sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error) {
	return answered(ctx, s.u, "due", func() ([]sluice.DeadLetter, error) { return s.Store.Due(ctx, g, partition, limit) })
}

func (s silentStore) Parked(ctx context.Context, g sluice.Group, partition, incarnation string, after int64) ([]driver.ParkedEvent, error) {
	return answered(ctx, s.u, "parked", func() ([]driver.ParkedEvent, error) { return s.Store.Parked(ctx, g, partition, incarnation, after) })
}

func (s silentStore) Held(ctx context.Context, g sluice.Group, partition string, except []int64) ([]driver.HeldKey, error) {
	return answered(ctx, s.u, "held", func() ([]driver.HeldKey, error) { return s.Store.Held(ctx, g, partition, except) })
}

// DuePartitions has Due called for a test of that.
func (s silentStore) DuePartitions(ctx context.Context, group sluice.Group, partitions []string) ([]string, error) {
	s.u.mu.Lock()
	due := s.u.kind == "due"
	s.u.mu.Unlock()
	if due {
		return []string{"0"}, nil
	}
	return answered(ctx, s.u, "redrives", func() ([]string, error) { return s.Store.DuePartitions(ctx, group, partitions) })
}

func (s silentStore) Leave(ctx context.Context, lease sluice.Lease) error {
	_, err := answered(ctx, s.u, "leave", func() (none struct{}, err error) { return none, s.Store.Leave(ctx, lease) })
	return err
}

func (s silentStore) Advance(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
	_, err := answered(ctx, s.u, "advance", func() (none struct{}, err error) { return none, s.Store.Advance(ctx, lease, incarnation, to, done) })
	return err
}

// TestRequestsWithoutAnAnswer: whichever of the engine's requests gets no answer while
// others do, it is reported within the lease and the partition moves within two.
func TestRequestsWithoutAnAnswer(t *testing.T) {
	transactional := []string{"describe", "seek", "open", "bounds", "claim", "dedup", "record", "due", "redrives"}
	atLeastOnce := []string{"describe", "seek", "open", "bounds", "claim", "due", "redrives", "parked", "held", "advance"}
	try := func(kind string, rows func(*scene) []int64, deliver func(*scene, silentStore) sluice.Delivery) {
		t.Run(kind, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				e := &sluice.Event{Properties: map[string]any{}, Body: []byte("good")}
				stamp.Stamp{ID: stamp.CausationID{Source: "flights@12ab", Partition: "0"}, Epoch: 1, Low: -1}.SetTo(e.Properties)
				s.Hub.Append("0", e)
				s.Send("0", "bad", "good")
				u := &noAnswer{kind: kind[strings.LastIndex(kind, " ")+1:]}
				began := time.Now()
				_, stop := s.Run(silentHub{s.Hub, u}, deliver(s, silentStore{s.Store, u}), sluice.Config{StampsFrom: s.StampsFrom})
				time.Sleep(55 * time.Second)
				if got := rows(s); !slices.Contains(got, 2) {
					s.T.Errorf("rows %v within two leases, want event 2 among them", got)
				}
				reported := false
				for _, o := range append(s.Observations(driver.KindFailed), s.Observations(driver.KindStalled)...) {
					reported = reported || o.Time.Sub(began) <= 30*time.Second
				}
				if !reported && !strings.HasSuffix(kind, "bounds") {
					s.T.Error("not reported within the lease")
				}
				if u.kind != "" {
					s.T.Errorf("no request to %s", u.kind)
				}
				stop()
			})
		})
	}
	for _, kind := range transactional {
		try("transactional "+kind, (*scene).Rows, func(_ *scene, store silentStore) sluice.Delivery {
			return sluice.Transactional(store, sluice.Each(enginetest.Insert))
		})
	}
	for _, kind := range atLeastOnce {
		var written *enginetest.Warehouse
		try("at least once "+kind, func(*scene) []int64 { return written.Rows() }, func(s *scene, store silentStore) sluice.Delivery {
			written = enginetest.NewWarehouse(s.T)
			return sluice.AtLeastOnce(store, sluice.EventAsRecord, written, &sluice.AtLeastOnceConfig{OnDeadLetter: sluice.KeyHold})
		})
	}
}

// TestLeavingIsBounded: a stop does not wait for a store that does not answer.
func TestLeavingIsBounded(t *testing.T) {
	stage(t, 1, func(s *scene) {
		u := &noAnswer{kind: "leave"}
		_, stop := s.Run(s.Hub, sluice.Transactional(silentStore{s.Store, u}, sluice.Each(enginetest.Insert)), sluice.Config{})
		time.Sleep(5 * time.Second)
		began := time.Now()
		stop()
		if took := time.Since(began); took > 6*time.Second || u.kind != "" {
			s.T.Errorf("the stop took %v, want at most 5 s", took)
		}
	})
}
