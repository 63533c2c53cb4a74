package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/driver"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/strictyaml"
	"github.com/sluice-go/sluice/sluiceotel"
)

// Parts is an opened pipeline: what it is made of, ready for use. It is safe
// for concurrent use.
type Parts struct {
	Source      driver.Source
	Leases      driver.LeaseStore
	DeadLetters driver.DeadLetterStore // nil for a pipeline that is [Pipeline.Rollup]
	// Checkpoints are, for a pipeline that is [Pipeline.Rollup], those of
	// this process: what its memory holds, and has published.
	Checkpoints Checkpoints

	pipeline *Pipeline
	catalog  catalog
	store    driver.AtLeastOnceStore // for what is written at least once
	rollup   *rollupWorker           // for a memory
	delivery func(trace.TracerProvider) sluice.Delivery
	close    []func(context.Context) error
}

// Checkpoints is the operator's side of a [sluice.TxStore].
type Checkpoints interface {
	// Read returns the group's checkpoints sorted by partition.
	Read(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error)
	// Reset moves a checkpoint by hand, as [sluice.TxStore.Reset] says.
	Reset(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position) (epoch int64, err error)
}

// Options are what a program adds to what the file says. The zero value adds
// nothing.
type Options struct {
	Owner    string // as in [sluice.Config]
	Observer sluice.Observer
	Hooks    sluice.Hooks
	// Source is read instead of the pipeline's own: one that wraps it, or a
	// test's.
	Source driver.Source
	// TracerProvider takes a span of each batch that is written to a table; see
	// [otel.Trace]. Default: none are made.
	TracerProvider trace.TracerProvider
}

// database is one of the kinds of database that a pipeline can write to.
type database interface {
	dialect() *dialect
	// open opens the stores. It sets the parts' Leases, DeadLetters and
	// Checkpoints, and what else depends on the database.
	open(ctx context.Context, p *Pipeline, parts *Parts) error
	// inspect connects for a look at the catalog, changing nothing. The catalog
	// is nil if the database is still to be created.
	inspect(ctx context.Context) (c catalog, done func(), err error)
}

// Open opens the database, and brings Sluice's own tables in it up to date. The
// hub is first asked when the source is used.
func (p *Pipeline) Open(ctx context.Context) (*Parts, error) {
	source, err := p.hub.source()
	if err != nil {
		return nil, p.problem(p.places.source, err)
	}
	parts := &Parts{Source: source, pipeline: p, close: []func(context.Context) error{source.Close}}
	if err := p.database.open(ctx, p, parts); err != nil {
		return nil, errors.Join(p.problem(p.places.database, err), parts.Close(ctx))
	}
	if p.rollup != nil {
		parts.rollup = newRollupWorker(p)
		parts.Checkpoints, parts.DeadLetters = parts.rollup, nil
	}
	return parts, nil
}

// OpenExisting is Open for a look at what consumers have left behind: where
// Open would create the database, it is an error, so that a slip in its name
// does not read as "nothing there".
func (p *Pipeline) OpenExisting(ctx context.Context) (*Parts, error) {
	found, done, err := p.database.inspect(ctx)
	if err != nil {
		return nil, p.problem(p.places.database, err)
	}
	done()
	if found == nil {
		return nil, p.problem(p.places.database, errors.New("there is no such database yet: run the pipeline first, or mend the name"))
	}
	return p.Open(ctx)
}

// Consumer makes a consumer of the pipeline, after a look at the target: the
// table must fit the mapping, and is created if it is missing and the file says
// so. Each call makes another consumer, but a pipeline that is
// [Pipeline.Rollup] has one only. A nil opts adds nothing.
func (parts *Parts) Consumer(ctx context.Context, opts *Options) (*sluice.Consumer, error) {
	p := parts.pipeline
	cfg, source := p.config, parts.Source
	var traces trace.TracerProvider
	if opts != nil {
		traces = opts.TracerProvider
		cfg.Owner, cfg.Observer, cfg.Hooks = opts.Owner, opts.Observer, opts.Hooks
		if opts.Source != nil {
			source = opts.Source
		}
	}
	delivery, err := parts.deliver(ctx, cfg.Observer, traces)
	if err != nil {
		return nil, p.problem(p.places.target, err)
	}
	if parts.rollup != nil {
		source = parts.rollup.wrapSource(source)
	}
	cfg.Partitions = p.Partitions
	c, err := sluice.New(source, parts.Leases, delivery, &cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	return c, nil
}

// deliver makes the delivery, after a look at the target.
func (parts *Parts) deliver(ctx context.Context, observer sluice.Observer, traces trace.TracerProvider) (sluice.Delivery, error) {
	p := parts.pipeline
	switch {
	case parts.rollup != nil:
		return parts.rollup.deliver(ctx, parts, observer)
	case p.messages != nil:
		return p.messages.deliver(ctx, p, parts)
	case p.cosmos != nil:
		return p.cosmos.deliver(ctx, p, parts)
	}
	if err := p.target.prepare(ctx, parts.catalog, true); err != nil {
		return nil, err
	}
	return parts.delivery(traces), nil
}

// traced has a handler make spans, if somebody takes them.
func traced[Tx any](provider trace.TracerProvider, h sluice.Handler[Tx]) sluice.Handler[Tx] {
	if provider == nil {
		return h
	}
	return h.With(sluiceotel.Trace[Tx](provider))
}

// onClose has something closed before what it stands on.
func (parts *Parts) onClose(end func(context.Context) error) {
	parts.close = append([]func(context.Context) error{end}, parts.close...)
}

// Close closes the source and the database. Consumers must have stopped.
func (parts *Parts) Close(ctx context.Context) error {
	var all []error
	for _, end := range parts.close {
		all = append(all, end(ctx))
	}
	return errors.Join(all...)
}

// Check reaches for the hub, the database and the target, and changes nothing.
// The error has a line for each that is not as it should be.
func (p *Pipeline) Check(ctx context.Context) error {
	hub := make(chan error, 1)
	go func() { hub <- p.checkHub(ctx) }()
	database := p.checkDatabase(ctx)
	return errors.Join(<-hub, database)
}

func (p *Pipeline) checkHub(ctx context.Context) error {
	source, err := p.hub.source()
	if err == nil {
		_, err = source.Describe(ctx)
		err = errors.Join(err, source.Close(ctx))
	}
	return p.problem(p.places.source, err)
}

func (p *Pipeline) checkDatabase(ctx context.Context) error {
	c, done, err := p.database.inspect(ctx)
	if err != nil {
		return p.problem(p.places.database, err)
	}
	defer done()
	switch {
	case p.messages != nil:
		return p.problem(p.places.target, p.messages.check(ctx))
	case p.cosmos != nil:
		return p.problem(p.places.target, p.cosmos.check(ctx))
	}
	if c == nil {
		c = emptyCatalog{}
	}
	return p.problem(p.places.target, p.target.prepare(ctx, c, false))
}

// problem gives an error its place in the file; nil stays nil.
func (p *Pipeline) problem(at strictyaml.Place, err error) error {
	if err == nil {
		return nil
	}
	return &strictyaml.Problem{Place: at, Err: err}
}
