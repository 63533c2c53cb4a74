package autoscale

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Config holds the options of an [Autoscaler]. The zero value takes every default.
type Config struct {
	// Store keeps the resource's state. Default: a [MemoryStore].
	Store Store
	// Retention is how long records are kept. Default: 30 days.
	Retention time.Duration
	// OnRecord is called with each record after it was saved. It must return soon.
	OnRecord func(Record)
	// OnReading, OnCount and OnAttempt are those of [CollectorConfig] and [ScalerConfig].
	OnReading func(Point, error)
	OnCount   func(instances int, err error)
	OnAttempt func(Action, error)
	// Clock replaces the system's clock in tests.
	Clock Clock
	// Log receives actions and failures. Default: nothing is logged.
	Log *slog.Logger
}

// Autoscaler is a collector, a logic and a scaler in one process, joined by
// [MemoryQueue]s.
type Autoscaler struct {
	collector *Collector
	logic     *Logic
	scaler    *Scaler

	metrics, actions, reports *MemoryQueue
}

// New returns an autoscaler of a resource. It reads the metrics from sources, by
// name, and scales target. There must be exactly one source for each of the
// resource's metrics. New does not take ownership: the caller closes sources,
// target and store after Run has returned. A nil cfg takes every default.
func New(resource *Resource, sources map[string]Source, target Target, cfg *Config) (*Autoscaler, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.Store == nil {
		c.Store = NewMemoryStore()
	}
	for _, name := range resource.Metrics {
		if sources[name] == nil {
			return nil, fmt.Errorf("metric %s of %s has no source", name, resource.Name)
		}
	}
	if len(sources) != len(resource.Metrics) {
		return nil, fmt.Errorf("%d sources for the %d metrics of %s: each source needs a metric of its name", len(sources), len(resource.Metrics), resource.Name)
	}
	a := &Autoscaler{metrics: NewMemoryQueue(0), actions: NewMemoryQueue(0), reports: NewMemoryQueue(0)}
	queues := Queues{Metrics: a.metrics, Actions: a.actions, Reports: a.reports}
	logic, err := NewLogic(resource, c.Store, queues, &LogicConfig{Retention: c.Retention, OnRecord: c.OnRecord, Clock: c.Clock, Log: c.Log})
	if err != nil {
		return nil, err
	}
	every := logic.resource.Limits.Interval
	scaler, err := NewScaler(&logic.resource, target, c.Store, queues, &ScalerConfig{Interval: min(every, time.Minute), OnCount: c.OnCount, OnAttempt: c.OnAttempt, Clock: c.Clock, Log: c.Log})
	if err != nil {
		return nil, err
	}
	a.collector = NewCollector(resource.Name, sources, queues.Metrics, &CollectorConfig{Interval: every, OnReading: c.OnReading, Clock: c.Clock, Log: c.Log})
	a.logic, a.scaler = logic, scaler
	return a, nil
}

// Run reads, decides and scales until ctx ends; then it returns nil. It can be
// called again afterwards, but not concurrently.
func (a *Autoscaler) Run(ctx context.Context) error {
	return RunAll(ctx, a.scaler, a.logic, a.collector)
}

// Part is a [Collector], a [Logic] or a [Scaler].
type Part interface {
	// Run works until ctx ends; then it returns nil.
	Run(ctx context.Context) error
}

// RunAll runs parts concurrently until ctx ends or one of them fails, and returns
// their errors joined.
func RunAll(ctx context.Context, parts ...Part) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errs := make([]error, len(parts))
	var running sync.WaitGroup
	for i, p := range parts {
		running.Go(func() {
			errs[i] = p.Run(ctx)
			cancel(cmp.Or(errs[i], context.Canceled))
		})
	}
	running.Wait()
	return errors.Join(errs...)
}
