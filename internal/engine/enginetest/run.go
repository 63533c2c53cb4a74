package enginetest

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// Run makes a consumer and runs it. The function it returns stops it as cancelling its context
// does.
func Run(t *testing.T, hub driver.Source, leases driver.LeaseStore, d sluice.Delivery, n sluice.Partitions, cfg sluice.Config) (*sluice.Consumer, func()) {
	t.Helper()
	cfg.Partitions = n
	c, err := sluice.New(hub, leases, d, byOperator(&cfg))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}()
	var once sync.Once
	end := func() { once.Do(func() { cancel(); <-done }) }
	t.Cleanup(end)
	return c, end
}

// byOperator leaves dead letters to an operator, unless the scene says when they are tried again.
func byOperator(cfg *sluice.Config) *sluice.Config {
	if cfg.RetryLater == nil {
		cfg.RetryLater = []time.Duration{}
	}
	return cfg
}

// config is the configuration of the scene's consumers.
func (s *Scene) config(cfg *sluice.Config) *sluice.Config {
	cfg.Observer = s
	if s.RetryLater {
		return cfg
	}
	return byOperator(cfg)
}

// RunTransactional is [Run] with the transactional delivery. Without a handler it does nothing with
// its events.
func RunTransactional(t *testing.T, hub driver.Source, leases driver.LeaseStore, store *sluicetest.Store, h sluice.Handler[*sluicetest.Tx], n sluice.Partitions, cfg sluice.Config) (*sluice.Consumer, func()) {
	t.Helper()
	if h == nil {
		h = Nothing
	}
	return Run(t, hub, leases, sluice.Transactional(store, h), n, cfg)
}

// Consume is [RunTransactional] in this scene, with all partitions.
func (s *Scene) Consume(owner string, h sluice.Handler[*sluicetest.Tx], cfg sluice.Config) (*sluice.Consumer, func()) {
	s.T.Helper()
	cfg.Owner, cfg.Observer, cfg.StampsFrom = owner, s, s.StampsFrom
	return RunTransactional(s.T, s.Hub, s.Leases, s.Store, h, sluice.AllPartitions, cfg)
}

// Run starts a consumer of any delivery; the function it returns stops it.
func (s *Scene) Run(source driver.Source, delivery sluice.Delivery, cfg sluice.Config) (*sluice.Consumer, func()) {
	s.T.Helper()
	c := Must(sluice.New(source, s.Leases, delivery, s.config(&cfg)))
	ran := make(chan error, 1)
	go func() { ran <- c.Run(s.T.Context()) }()
	return c, sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(s.T.Context(), time.Minute)
		defer cancel()
		if err := cmp.Or(c.Stop(ctx), <-ran); err != nil {
			s.T.Error(err)
		}
	})
}

// RunWhile runs a consumer of any delivery until a function returns, and stops it.
func (s *Scene) RunWhile(d sluice.Delivery, cfg sluice.Config, meanwhile func()) {
	s.T.Helper()
	c := Must(sluice.New(s.Hub, s.Leases, d, s.config(&cfg)))
	ran := make(chan error, 1)
	go func() { ran <- c.Run(s.T.Context()) }()
	meanwhile()
	if err := c.Stop(s.T.Context()); err != nil {
		s.T.Fatal(err)
	}
	if err := <-ran; err != nil {
		s.T.Fatal(err)
	}
}

// Pour starts a consumer of the at-least-once delivery; the function it returns stops it and
// returns what Run did.
func (s *Scene) Pour(sink driver.Sink[*sluice.Event], stream *sluice.AtLeastOnceConfig, cfg sluice.Config) (*sluice.Consumer, func() error) {
	s.T.Helper()
	c := Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, sink, stream), s.config(&cfg)))
	ran := make(chan error, 1)
	go func() { ran <- c.Run(s.T.Context()) }()
	return c, sync.OnceValue(func() error {
		if err := c.Stop(s.T.Context()); err != nil {
			return err
		}
		return <-ran
	})
}

// MeasureConsumer times a consumer from its first batch on, until it has been given b.N events.
func MeasureConsumer(b *testing.B, source driver.Source, store driver.TxStore[*sluicetest.Tx], batch int) {
	b.Helper()
	seen := make(chan int, 1024)
	handler := func(ctx context.Context, _ *sluicetest.Tx, batch sluice.Batch) error {
		select {
		case seen <- len(batch.Events):
		case <-ctx.Done():
		}
		return nil
	}
	c, err := sluice.New(source, &sluicetest.Leases{}, sluice.Transactional(store, handler),
		&sluice.Config{MaxBatch: batch, AssignEvery: time.Millisecond, StampsFrom: []stamp.Source{{Topic: "flights"}}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	<-seen
	b.ResetTimer()
	for n := 0; n < b.N; {
		n += <-seen
	}
	b.StopTimer()
	cancel()
	<-done
}
