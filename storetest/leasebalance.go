package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// checkBalance runs consumers that share the partitions of a topic over the
// store. They must find each other in its list, and see by its times which of
// them have left.
func checkBalance(t testing.TB, h leaseHarness) {
	consume := func(owner string) (stop func()) {
		idle := func(context.Context, struct{}, sluice.Batch) error { return nil }
		c, err := sluice.New(idleSource{}, h.LeaseStore, sluice.Transactional(idleStore{}, idle), &sluice.Config{
			Partitions: sluice.Balanced,
			Owner:      owner, LeaseFor: h.long, RenewEvery: time.Second, AssignEvery: 20 * time.Millisecond,
			Logger: slog.New(slog.DiscardHandler),
		})
		suite.NoError(t, "make a consumer", err)
		ran := make(chan error, 1)
		go func() { ran <- c.Run(context.WithoutCancel(t.Context())) }()
		end := func() error { return c.Stop(context.Background()) }
		t.Cleanup(func() { _ = end(); <-ran })
		return func() { suite.NoError(t, "stop "+owner, end()) }
	}
	hold := func(want map[string]int) {
		t.Helper()
		suite.Eventually(t, fmt.Sprintf("partitions are held by %v", want), func() bool {
			list, err := h.List(suite.Context(t), testGroup)
			suite.NoError(t, "list", err)
			held := map[string]int{}
			for _, l := range list {
				if l.Live() && !l.Member() {
					held[l.Owner]++
				}
			}
			return maps.Equal(held, want)
		})
	}
	stopA := consume("a")
	hold(map[string]int{"a": 4})
	stopB := consume("b")
	hold(map[string]int{"a": 2, "b": 2})
	stopA()
	hold(map[string]int{"b": 4})
	stopB()
	hold(map[string]int{})
}

// idleSource is a topic of four partitions without events.
type idleSource struct{}

func (idleSource) Describe(context.Context) (driver.Topic, error) {
	return driver.Topic{Group: testGroup, Incarnation: "incarnation 1", Partitions: []string{"0", "1", "2", "3"}}, nil
}

func (idleSource) Bounds(context.Context, string) (driver.Bounds, error) {
	return driver.Bounds{Last: driver.Origin}, nil
}

func (idleSource) Seek(context.Context, string, driver.Start, int64) (driver.Position, error) {
	return driver.Origin, nil
}

func (idleSource) Open(context.Context, string, driver.Position, int64) (driver.Reader, error) {
	closed, end := context.WithCancel(context.Background())
	return &idleReader{closed, end}, nil
}

type idleReader struct {
	closed context.Context
	end    context.CancelFunc
}

func (r *idleReader) Read(ctx context.Context, _ int) ([]*driver.Event, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.closed.Done():
		return nil, errors.New("the reader is closed")
	}
}

func (r *idleReader) Close(context.Context) error {
	r.end()
	return nil
}

// idleStore has what a consumer of an [idleSource] calls.
type idleStore struct{ driver.TxStore[struct{}] }

func (idleStore) Claim(_ context.Context, lease driver.Lease, incarnation string) (driver.Checkpoint, error) {
	return driver.Checkpoint{
		Group: lease.Group, Partition: lease.Partition, Incarnation: incarnation, Position: driver.Origin,
		Owner: lease.Owner, Epoch: lease.Epoch, Claims: 1,
	}, nil
}

func (idleStore) Leave(context.Context, driver.Lease) error { return nil }

func (idleStore) Due(context.Context, driver.Group, string, int) ([]driver.DeadLetter, error) {
	return nil, nil
}

func (idleStore) ReadDedup(context.Context, driver.Group, string) ([]driver.DedupState, error) {
	return nil, nil
}
