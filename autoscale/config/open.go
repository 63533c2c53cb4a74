package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// Mode says which parts of an autoscaler to open.
type Mode string

const (
	AllParts  Mode = ""          // all three parts, joined by queues in memory
	Collector Mode = "collector" // one part, joined to the others by queues in the state
	Logic     Mode = "logic"
	Scaler    Mode = "scaler"
	// DryRun is all parts, but nothing is scaled and nothing is saved. The number of
	// instances is read once; after that it is the number that the decisions would
	// have led to.
	DryRun Mode = "dry-run"
)

// Options are what a program adds to the file. nil is the same as the zero value.
type Options struct {
	// OnRecord is called with each record of the decision log after it was saved, on
	// the goroutine of the logic: for a [Group], on several at the same time.
	OnRecord func(autoscale.Record)
	// Watch, if set, is informed of the rest: see [Watch].
	Watch Watch
	// Log receives actions and failures. Default: nothing is logged.
	Log *slog.Logger

	resource  string
	dryRun    bool // start no workers
	mustExist bool // create no state
}

// Parts is an autoscaler, or a part of one, that is ready to run.
type Parts struct {
	part   autoscale.Part
	store  autoscale.Store   // nil for a collector
	holder *autoscale.Holder // of the resource's lease; nil unless all parts run
	close  []closer
}

// Run works until ctx ends; then it returns nil. With [AllParts] it takes the lease of the
// resource, and releases it at the end; if another process holds the lease, or takes it
// because it was not renewed in time, the error is an [*autoscale.LeasedError].
func (p *Parts) Run(ctx context.Context) error {
	if p.holder == nil {
		return p.part.Run(ctx)
	}
	held, release, err := p.holder.Hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	return p.runHeld(held)
}

// runHeld is Run, once the lease is held, if it must be.
func (p *Parts) runHeld(ctx context.Context) error {
	if err := p.part.Run(ctx); err != nil {
		return err
	}
	return lost(ctx)
}

// Close closes what Open has opened, in the reverse order. Call it after Run has
// returned. Workers are stopped gracefully, which ctx does not cut short.
func (p *Parts) Close(ctx context.Context) error {
	var errs []error
	for _, one := range slices.Backward(p.close) {
		errs = append(errs, one(ctx))
	}
	p.close = nil
	return errors.Join(errs...)
}

// Open opens what the mode needs, and no more: the sources for the collector, the
// target for the scaler, the state for logic and scaler. Errors have the place in the
// file. The caller closes the result. nil opts are the zero value.
func (c *Config) Open(ctx context.Context, mode Mode, opts *Options) (_ *Parts, err error) {
	e := Options{}
	if opts != nil {
		e = *opts
	}
	e.resource, e.dryRun = c.Resource.Name, mode == DryRun
	ofTarget := e
	if e.Log != nil {
		ofTarget.Log = e.Log.With("resource", c.Resource.Name) // the parts add it themselves
	}
	p := &Parts{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close(ctx))
		}
	}()
	o := &opening{Config: c, ctx: ctx, opts: &ofTarget, parts: p}
	if mode == AllParts || mode == DryRun {
		p.part, err = o.all(mode, &e)
	} else {
		p.part, err = o.one(mode, &e)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// all opens all parts, joined by queues in memory.
func (o *opening) all(mode Mode, e *Options) (*autoscale.Autoscaler, error) {
	o.parts.store = autoscale.NewMemoryStore()
	if mode == AllParts {
		s, err := o.openState()
		if err != nil {
			return nil, err
		}
		o.parts.store = s.store
	}
	target, err := o.openTarget(mode)
	if err != nil {
		return nil, err
	}
	if mode == AllParts {
		o.parts.holder = autoscale.NewHolder(o.parts.store, o.Resource.Name, o.lease(), e.Log)
		target = o.parts.holder.Guard(target)
	}
	sources, err := o.openSources()
	if err != nil {
		return nil, err
	}
	w := e.watcher(o.Resource.Name)
	return autoscale.New(&o.Resource, sources, target, &autoscale.Config{Store: o.parts.store, Retention: o.Retention,
		OnRecord: e.OnRecord, OnReading: w.reading, OnCount: w.count, OnAttempt: w.attempt, Log: e.Log})
}

// one opens one part, joined to the others by queues in the state.
func (o *opening) one(mode Mode, e *Options) (autoscale.Part, error) {
	every := o.Resource.Limits.Interval
	s, err := o.openState()
	if err != nil {
		return nil, err
	}
	queues, err := o.openQueues(s)
	if err != nil {
		return nil, err
	}
	w := e.watcher(o.Resource.Name)
	switch mode {
	case Collector:
		sources, err := o.openSources()
		if err != nil {
			return nil, err
		}
		return autoscale.NewCollector(o.Resource.Name, sources, queues.Metrics, &autoscale.CollectorConfig{Interval: every, OnReading: w.reading, Log: e.Log}), nil
	case Logic:
		return autoscale.NewLogic(&o.Resource, s.store, queues, &autoscale.LogicConfig{Retention: o.Retention, OnRecord: e.OnRecord, OnRound: w.round, Log: e.Log})
	}
	target, err := o.openTarget(mode)
	if err != nil {
		return nil, err
	}
	return autoscale.NewScaler(&o.Resource, target, s.store, queues, &autoscale.ScalerConfig{Interval: min(every, time.Minute), OnCount: w.count, OnAttempt: w.attempt, OnRound: w.round, Log: e.Log})
}

// OpenSources opens only the sources, and returns a collector for
// [autoscale.Collector.Read] and a function that closes them. The collector has no
// queue, so it must not be run.
func (c *Config) OpenSources(ctx context.Context, opts *Options) (*autoscale.Collector, func(context.Context) error, error) {
	if opts == nil {
		opts = &Options{}
	}
	p := &Parts{}
	sources, err := (&opening{Config: c, ctx: ctx, opts: opts, parts: p}).openSources()
	if err != nil {
		return nil, nil, errors.Join(err, p.Close(ctx))
	}
	return autoscale.NewCollector(c.Resource.Name, sources, nil, &autoscale.CollectorConfig{Interval: c.Resource.Limits.Interval, Log: opts.Log}), p.Close, nil
}

// OpenStore opens only the state, for reading, and returns a function that closes it.
// For a SQLite file that does not exist, the error wraps fs.ErrNotExist.
func (c *Config) OpenStore(ctx context.Context) (autoscale.Store, func(context.Context) error, error) {
	s, done, err := c.state(ctx, &Options{resource: c.Resource.Name, mustExist: true})
	if err != nil {
		return nil, nil, c.problem("state", err)
	}
	return s.store, done, nil
}

// opening holds what the steps of Open share.
type opening struct {
	*Config
	ctx   context.Context
	opts  *Options
	parts *Parts
}

// openState opens the state, which the parts close.
func (o *opening) openState() (state, error) {
	s, done, err := o.state(o.ctx, o.opts)
	if err != nil {
		return s, o.problem("state", err)
	}
	o.parts.close = append(o.parts.close, done)
	return s, nil
}

// openQueues opens the queues that join the parts.
func (o *opening) openQueues(s state) (queues autoscale.Queues, err error) {
	for name, q := range map[string]*autoscale.Queue{
		autoscale.MetricsQueue: &queues.Metrics, autoscale.ActionsQueue: &queues.Actions, autoscale.ReportsQueue: &queues.Reports,
	} {
		if *q, err = s.queue(o.ctx, name); err != nil {
			return queues, o.problem("state", err)
		}
	}
	return queues, nil
}

func (o *opening) openSources() (map[string]autoscale.Source, error) {
	sources := map[string]autoscale.Source{}
	var errs []error
	for _, name := range o.Resource.Metrics {
		open := o.sources[name]
		if open == nil {
			errs = append(errs, fmt.Errorf("metric %s has no source", name))
			continue
		}
		s, done, err := open(o.ctx, o.opts)
		if err != nil {
			errs = append(errs, o.problem(name, err))
			continue
		}
		sources[name] = s
		o.parts.close = append(o.parts.close, done)
	}
	return sources, errors.Join(errs...)
}

func (o *opening) openTarget(mode Mode) (autoscale.Target, error) {
	target, done, err := o.target(o.ctx, o.opts)
	if err != nil {
		return nil, o.problem("target", err)
	}
	if mode == DryRun {
		n, err := target.Instances(o.ctx)
		if err := errors.Join(err, done(o.ctx)); err != nil {
			return nil, o.problem("target", err)
		}
		return &dryRunTarget{instances: n}, nil
	}
	o.parts.close = append(o.parts.close, done)
	return target, nil
}

// dryRunTarget is a target that only counts.
type dryRunTarget struct {
	mu        sync.Mutex
	instances int
}

func (r *dryRunTarget) Instances(context.Context) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.instances, nil
}

func (r *dryRunTarget) Scale(_ context.Context, to int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instances = to
	return nil
}
