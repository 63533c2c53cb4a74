package autoscale_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// gauge is a metric that a test sets.
type gauge struct {
	mu      sync.Mutex
	reading autoscale.Reading
	err     error
}

func (g *gauge) set(value float64) { g.put(autoscale.Reading{Value: value}, nil) }

func (g *gauge) put(r autoscale.Reading, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reading, g.err = r, err
}

func (g *gauge) Read(context.Context) (autoscale.Reading, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reading, g.err
}

// scaling is one call of Scale that had its effect.
type scaling struct {
	time      time.Time
	number    int64
	instances int
}

// fleet is a target that records its scalings.
type fleet struct {
	takes time.Duration // for each scaling

	mu        sync.Mutex
	instances int
	fail      func() error // called before each scaling
	lose      func() error // called after it: a response that is lost
	done      []scaling
}

func (f *fleet) Instances(context.Context) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.instances, nil
}

func (f *fleet) Scale(ctx context.Context, to int) error {
	if err := ask(f.fail); err != nil {
		return err
	}
	if f.takes > 0 {
		select {
		case <-time.After(f.takes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	a, _ := autoscale.ActionFrom(ctx)
	f.mu.Lock()
	f.instances = to
	f.done = append(f.done, scaling{time.Now(), a.Number, to})
	f.mu.Unlock()
	return ask(f.lose)
}

func ask(fn func() error) error {
	if fn == nil {
		return nil
	}
	return fn()
}

func (f *fleet) scalings() []scaling {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]scaling(nil), f.done...)
}

// skewed is the clock of a synctest bubble, with a wall clock that can be set.
type skewed struct {
	origin time.Time
	offset atomic.Int64
}

func newSkewed() *skewed { return &skewed{origin: time.Now()} }

func (c *skewed) Wall() time.Time        { return time.Now().Add(time.Duration(c.offset.Load())) }
func (c *skewed) Elapsed() time.Duration { return time.Since(c.origin) }
func (c *skewed) set(d time.Duration)    { c.offset.Store(int64(d)) }
func (c *skewed) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// started runs an autoscaler until the function that it returns is called.
func started(t *testing.T, r *autoscale.Resource, sources map[string]autoscale.Source, target autoscale.Target, cfg *autoscale.Config) (stop func()) {
	t.Helper()
	a, err := autoscale.New(r, sources, target, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	}
}

var errOut = errors.New("out of order")
