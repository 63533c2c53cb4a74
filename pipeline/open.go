package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// Parts are the source and the stores of an opened pipeline. They are safe for
// concurrent use.
type Parts struct {
	// Group is the key of the pipeline's checkpoints and dead letters, with its
	// namespace.
	Group sluice.Group
	// Source remembers what it was asked, for a watcher beside the consumer. It is a
	// [health.SharedSource].
	Source      driver.Source
	Leases      driver.LeaseStore
	DeadLetters driver.DeadLetterStore // nil for a [Pipeline.Rollup]
	// Checkpoints of a [Pipeline.Rollup] are the positions up to which this process
	// has published.
	Checkpoints Checkpoints

	pipeline *Pipeline
	log      Source // below that Source
	catalog  catalog
	store    driver.AtLeastOnceStore // of targets outside a database; nil: the stores have none
	rollup   *rollupWorker           // nil unless the pipeline is a rollup
	delivery func(trace.TracerProvider) sluice.Delivery
	close    []func(context.Context) error
}

// Checkpoints are the operations of a [driver.TxStore] for operators.
type Checkpoints interface {
	// Read returns the group's checkpoints sorted by partition.
	Read(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error)
	// Reset moves a checkpoint, see [driver.TxStore].
	Reset(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position, how driver.How) (epoch int64, err error)
}

// CopyMarks returns the marks of the dead letters that were copied; nil if the file does not ask
// for copies.
func (parts *Parts) CopyMarks() driver.CopyMarks {
	if parts.pipeline.copies == nil {
		return nil
	}
	marks, _ := parts.DeadLetters.(driver.CopyMarks)
	return marks
}

// Options are settings of a consumer that a program adds to those of the file. The
// zero value adds nothing.
type Options struct {
	Owner    string          // as in [sluice.Config]
	Observer driver.Observer // as in [sluice.Config]; if set, it writes the log too, or nobody does
	Hooks    sluice.Hooks
	// Source, if set, is read instead of the pipeline's own source, for example
	// one that wraps it.
	Source driver.Source
	// TracerProvider, if set, gets a span for each batch that is written to a
	// table, and for each event that is sent on or written elsewhere; see Trace and
	// TraceRecords of package sluiceotel.
	TracerProvider trace.TracerProvider
	// MeterProvider, if set, gets the metrics of what is sent to a hub, a queue or a topic; see
	// Sender of package sluiceotel. The metrics of the consumer are those of an Observer.
	MeterProvider metric.MeterProvider
}

// Open opens the database, and creates or migrates Sluice's own tables in it. It does not connect
// to the log, which the source does when it is first used, unless only the log knows the namespace
// of the checkpoints: the id of a Kafka cluster. An outbox is created if the file says `create:
// true`.
func (p *Pipeline) Open(ctx context.Context) (*Parts, error) {
	if o, is := p.source.(*outboxTable); is {
		if err := o.create(ctx); err != nil {
			return nil, p.problem(p.places.source, err)
		}
	}
	return p.openParts(ctx)
}

func (p *Pipeline) openParts(ctx context.Context) (*Parts, error) {
	parts, err := p.OpenLog(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.storage.database.open(ctx, p, parts); err != nil {
		return nil, errors.Join(p.problem(p.places.database, err), parts.Close(ctx))
	}
	if p.storage.leases != nil {
		store, err := p.storage.leases.store(ctx)
		if err != nil {
			return nil, errors.Join(p.problem(p.places.leases, err), parts.Close(ctx))
		}
		parts.Leases = store.Leases()
	}
	if o, is := p.source.(*outboxTable); is {
		o.deleteAfter(parts)
	}
	if err := parts.respell(ctx); err != nil {
		return nil, errors.Join(p.problem(p.places.source, err), parts.Close(ctx))
	}
	if p.Rollup {
		parts.rollup = newRollupWorker(p)
		parts.rollup.group = parts.Group
		parts.Checkpoints, parts.DeadLetters = parts.rollup, nil
	}
	return parts, nil
}

// completeGroup asks the log for the namespace of the group, if the file has none.
func (parts *Parts) completeGroup(ctx context.Context) error {
	if parts.Group.Namespace != "" {
		return nil
	}
	topic, err := parts.Source.Describe(ctx) // which bounds its time
	parts.Group = topic.Group
	return err
}

// respell takes the spelling that the stores have of the group, if the log ignores case in names.
func (parts *Parts) respell(ctx context.Context) (err error) {
	if parts.pipeline.System != EventHubs || parts.Leases == nil {
		return nil
	}
	if parts.Group, err = driver.Spelling(ctx, parts.Group, parts.Leases, parts.Checkpoints); err == nil {
		parts.Source.(*health.SharedSource).SetGroup(parts.Group)
	}
	return err
}

// ErrLeasesMissing is the error of [Pipeline.OpenExisting] if the container of the leases does not
// exist beside a database that does.
var ErrLeasesMissing = errors.New("the container of the leases does not exist: run the pipeline first, or correct the name")

// ErrDatabaseMissing is the error of [Pipeline.OpenExisting] if the database does not exist.
var ErrDatabaseMissing = errors.New("the database does not exist: run the pipeline first, or correct the name")

// OpenLog opens the log alone: the parts have no stores. It is for tools that change nothing where
// there is no database yet.
func (p *Pipeline) OpenLog(ctx context.Context) (*Parts, error) {
	source, err := p.source.open("")
	if err != nil {
		return nil, p.problem(p.places.source, err)
	}
	parts := &Parts{Group: p.Group, Source: health.NewSharedSource(source), log: source, pipeline: p, close: []func(context.Context) error{source.Close}}
	if err := parts.completeGroup(ctx); err != nil {
		return nil, errors.Join(p.problem(p.places.source, err), parts.Close(ctx))
	}
	return parts, nil
}

// OpenExisting is Open for an existing database, and container of leases, for tools that
// inspect what consumers have written. Where Open would create one, OpenExisting
// fails, so that a wrong name is not mistaken for an empty database.
func (p *Pipeline) OpenExisting(ctx context.Context) (*Parts, error) {
	found, done, err := p.storage.database.inspect(ctx)
	if err != nil {
		return nil, p.problem(p.places.database, err)
	}
	done()
	if found == nil {
		return nil, p.problem(p.places.database, ErrDatabaseMissing)
	}
	if p.storage.leases != nil {
		exists, err := p.storage.leases.check(ctx)
		if err == nil && !exists {
			err = ErrLeasesMissing
		}
		if err != nil {
			return nil, p.problem(p.places.leases, err)
		}
	}
	return p.openParts(ctx)
}

// Consumer checks the target and returns a new consumer of the pipeline. The table
// must fit the mapping. It is created if it is missing and the file says
// `create: true`. A [Pipeline.Rollup] can have one consumer only. opts may be nil.
func (parts *Parts) Consumer(ctx context.Context, opts *Options) (*sluice.Consumer, error) {
	p := parts.pipeline
	cfg, source := p.config, parts.Source
	var to telemetry
	if opts != nil {
		to = telemetry{opts.TracerProvider, opts.MeterProvider}
		cfg.Owner, cfg.Observer, cfg.Hooks = opts.Owner, opts.Observer, opts.Hooks
		if opts.Observer != nil {
			cfg.Logger = slog.New(slog.DiscardHandler)
		}
		if opts.Source != nil {
			source = opts.Source
		}
	}
	delivery, err := parts.deliver(ctx, cfg.Observer, to)
	if err != nil {
		return nil, p.problem(p.places.target, err)
	}
	if p.Rollup {
		source = parts.rollup.wrapSource(source)
	}
	if cfg.Observer, err = parts.publishProgress(ctx, cfg.Observer); err != nil {
		return nil, p.problem(p.places.source, err)
	}
	if p.copies != nil {
		if cfg.CopyDeadLetters, err = p.copies.open(parts); err != nil {
			return nil, p.problem(p.copies.place, err)
		}
	}
	cfg.Partitions = p.Partitions
	if !p.Rollup { // a rollup counts by itself
		cfg.Filter = p.Filter()
	}
	p.limitMemory()
	c, err := sluice.New(source, parts.Leases, delivery, &cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	return c, nil
}

// deliver checks the targets and returns the delivery.
func (parts *Parts) deliver(ctx context.Context, observer driver.Observer, to telemetry) (sluice.Delivery, error) {
	p := parts.pipeline
	if p.Rollup {
		return parts.rollup.deliver(ctx, parts, observer, to)
	}
	var outlets []outlet
	for _, r := range p.routing.routes {
		out, err := r.target.outlet(ctx, parts, to)
		if err != nil {
			return nil, p.problem(r.place, err)
		}
		outlets = append(outlets, out)
	}
	switch {
	case !p.AtLeastOnce():
		return parts.delivery(to.traces), nil
	case p.routing.listed:
		return p.routedDelivery(parts, outlets, to)
	}
	return outlets[0].delivery(p, parts, to)
}

// onClose registers a function that Close calls before those registered earlier.
func (parts *Parts) onClose(end func(context.Context) error) {
	parts.close = append([]func(context.Context) error{end}, parts.close...)
}

// Close closes the source, the sink and the stores. The consumers must have stopped.
func (parts *Parts) Close(ctx context.Context) error {
	var all []error
	for _, end := range parts.close {
		all = append(all, end(ctx))
	}
	return errors.Join(all...)
}

// problem adds the place in the file to an error. nil stays nil, and so does an error with a place.
func (p *Pipeline) problem(at strictyaml.Place, err error) error {
	if err == nil {
		return nil
	}
	switch e := err.(type) {
	case *strictyaml.Problem:
		return err
	case problems:
		placed := make(problems, len(e))
		for i := range e {
			placed[i] = p.problem(at, e[i])
		}
		return placed
	}
	return &strictyaml.Problem{Place: at, Err: err}
}
