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

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Store is what the autoscaler remembers by. Default: a [MemoryStore].
	Store Store
	// Retention is how long records of decisions are kept. Default: 30 days.
	Retention time.Duration
	// OnRecord is told of each record once it is kept; it must return soon.
	OnRecord func(Record)
	// Clock is the time. Default: the system's.
	Clock Clock
	// Log is told what is done and what fails. Default: nothing is logged.
	Log *slog.Logger
}

// Autoscaler is collector, logic and scaler in one process.
type Autoscaler struct {
	collector *Collector
	logic     *Logic
	scaler    *Scaler
}

// New returns an autoscaler of a resource, which reads the metrics from
// sources, by name, and scales target. There must be a source for each of the
// resource's metrics. Neither they nor the target are closed.
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
		return nil, fmt.Errorf("%d sources for the %d metrics of %s", len(sources), len(resource.Metrics), resource.Name)
	}
	queues := Queues{Metrics: NewMemoryQueue(0), Actions: NewMemoryQueue(0), Reports: NewMemoryQueue(0)}
	logic, err := NewLogic(resource, c.Store, queues, &LogicConfig{Retention: c.Retention, OnRecord: c.OnRecord, Clock: c.Clock, Log: c.Log})
	if err != nil {
		return nil, err
	}
	every := logic.resource.Limits.Interval
	return &Autoscaler{
		logic:     logic,
		collector: NewCollector(resource.Name, sources, queues.Metrics, &CollectorConfig{Interval: every, Clock: c.Clock, Log: c.Log}),
		scaler:    NewScaler(resource.Name, target, c.Store, queues, &ScalerConfig{Interval: min(every, time.Minute), Clock: c.Clock, Log: c.Log}),
	}, nil
}

// Run scales until ctx ends, and returns nil then.
func (a *Autoscaler) Run(ctx context.Context) error {
	return RunAll(ctx, a.scaler, a.logic, a.collector)
}

// Part is a [Collector], a [Logic] or a [Scaler].
type Part interface {
	// Run returns nil after ctx has ended.
	Run(ctx context.Context) error
}

// RunAll runs parts until ctx ends, or one of them fails.
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
