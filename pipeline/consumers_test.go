package pipeline

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// refusing is a source whose broker refuses it.
type refusing struct{ *sluicetest.Hub }

func (refusing) Describe(context.Context) (sluice.Topic, error) {
	return sluice.Topic{}, sluice.ErrRefused
}

func stageOf(t *testing.T, source driver.Source, released *atomic.Int64) *sluice.Consumer {
	t.Helper()
	cfg := &sluice.Config{Observer: observerFunc(func(o driver.Observation) {
		if o.Kind == driver.KindReleased {
			released.Add(1)
		}
	})}
	c, err := sluice.New(source, &sluicetest.Leases{}, sluice.Replay(sluice.Replayer{Apply: func(context.Context, sluice.Batch) error { return nil }}), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type observerFunc func(driver.Observation)

func (f observerFunc) Observe(o driver.Observation) { f(o) }

func TestConsumersStopTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := sluice.Group{Namespace: "n", Topic: "t", Name: "g"}
		var first, second atomic.Int64
		var all Consumers
		all.Add("one", stageOf(t, sluicetest.NewHub(group, 2), &first))
		all.Add("two", stageOf(t, sluicetest.NewHub(group, 1), &second))
		ran := make(chan error, 1)
		go func() { ran <- all.Run(t.Context()) }()
		time.Sleep(5 * time.Second)
		if err := errors.Join(all.Stop(t.Context()), <-ran); err != nil {
			t.Error(err)
		}
		if first.Load() != 2 || second.Load() != 1 {
			t.Errorf("released %d and %d partitions", first.Load(), second.Load())
		}
	})
}

func TestAStageThatFailsEndsAllInGoodOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := sluice.Group{Namespace: "n", Topic: "t", Name: "g"}
		hub := sluicetest.NewHub(group, 2)
		var first, second atomic.Int64
		var all Consumers
		all.Add("sound", stageOf(t, hub, &first))
		all.Add("refused", stageOf(t, &late{Source: refusing{hub}, end: time.Now().Add(5 * time.Second)}, &second))
		err := all.Run(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), "stage refused: describe topic: ") || !errors.Is(err, sluice.ErrRefused) {
			t.Errorf("got %v", err)
		}
		if first.Load() != 2 || second.Load() != 0 {
			t.Errorf("released %d and %d partitions", first.Load(), second.Load())
		}
	})
}

// late is a source that doesn't answer at first.
type late struct {
	driver.Source
	end time.Time
}

func (l *late) Describe(ctx context.Context) (sluice.Topic, error) {
	select {
	case <-time.After(time.Until(l.end)):
		return l.Source.Describe(ctx)
	case <-ctx.Done():
		return sluice.Topic{}, ctx.Err()
	}
}
