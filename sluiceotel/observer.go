package sluiceotel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/internal/partitionstate"
)

// scope is the name of the instrumentation scope. It is part of what is exported,
// and so does not follow the package's name.
const scope = "github.com/sluice-go/sluice/otel"

// Attributes of OpenTelemetry's conventions for messaging.
const (
	systemKey    = attribute.Key("messaging.system")
	operationKey = attribute.Key("messaging.operation.name")
	serverKey    = attribute.Key("server.address")
	errorKey     = attribute.Key("error.type")
)

// Values of messaging.system.
const (
	EventHubs = "eventhubs"
	Kafka     = "kafka"
)

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Group is what is consumed; its names become attributes, its namespace server.address.
	Group driver.Group
	// System is messaging.system. Default: eventhubs.
	System string
	// Attributes are added to all metrics.
	Attributes []attribute.KeyValue
	// Meter makes the metrics. Default: OpenTelemetry's global provider.
	Meter metric.MeterProvider
	// Now returns the time. Default: time.Now.
	Now func() time.Time
}

// Observer is a [driver.Observer] that exports metrics. It serves one consumer and
// is safe for concurrent use. It costs a few counters for each batch.
type Observer struct {
	now         func() time.Time
	fixed       []attribute.KeyValue
	instruments instruments
	callback    metric.Registration
	state       *partitionstate.Tracker
	warning     map[health.WarningKind]metric.MeasurementOption

	mu         sync.Mutex
	partitions map[string]*partition
	watched    *health.Report // the last one without an error; nil: none
	counted    *health.Report // the last one with the number of dead letters; nil: none
}

// New makes an observer and registers its metrics.
func New(cfg *Config) (*Observer, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.System == "" {
		c.System = EventHubs
	}
	if c.Meter == nil {
		c.Meter = otel.GetMeterProvider()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	o := &Observer{now: c.Now, state: partitionstate.New(&partitionstate.Config{Now: c.Now}), partitions: map[string]*partition{}}
	o.fixed = append([]attribute.KeyValue{
		systemKey.String(c.System),
		serverKey.String(c.Group.Namespace),
		attribute.String("messaging.destination.name", c.Group.Topic),
		attribute.String("messaging.consumer.group.name", c.Group.Name),
	}, c.Attributes...)
	o.warning = warningOptions(o.fixed)
	m := c.Meter.Meter(scope)
	if err := o.instruments.create(m); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	var err error
	if o.callback, err = m.RegisterCallback(o.gauges, o.instruments.gauges()...); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return o, nil
}

// Close unregisters the gauges.
func (o *Observer) Close() error { return o.callback.Unregister() }

// instruments are the metrics.
type instruments struct {
	fetched, bytes, committed, commits, repeats   metric.Int64Counter
	filtered, passed                              metric.Int64Counter
	lost, retries, deadLetters, written, failures metric.Int64Counter
	cost, waited                                  metric.Float64Counter
	process, renewals                             metric.Float64Histogram

	lag, checkpoint, held, epoch, inFlight, stopped, stalled metric.Int64ObservableGauge
	stored, warnings                                         metric.Int64ObservableGauge
	age                                                      metric.Float64ObservableGauge
}

// boundaries of durations in seconds, as OpenTelemetry's conventions advise.
var boundaries = metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

func (s *instruments) create(m metric.Meter) error {
	var errs []error
	count := func(into *metric.Int64Counter, name, unit, text string) {
		var err error
		*into, err = m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
	}
	gauge := func(into *metric.Int64ObservableGauge, name, unit, text string) {
		var err error
		*into, err = m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
	}
	timed := func(into *metric.Float64Histogram, name, text string) {
		var err error
		*into, err = m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), boundaries)
		errs = append(errs, err)
	}
	count(&s.fetched, "messaging.client.consumed.messages", "{message}", "Events fetched from the log.")
	count(&s.bytes, "sluice.fetched.bytes", "By", "Bodies of events fetched from the log.")
	count(&s.committed, "sluice.committed.messages", "{message}", "Events that the checkpoint passed.")
	count(&s.commits, "sluice.commits", "{commit}", "Moves of the checkpoint, by outcome.")
	count(&s.repeats, "sluice.repeats", "{message}", "Events skipped as duplicates of earlier ones.")
	count(&s.filtered, "sluice.filtered", "{message}", "Events left out by a filter.")
	count(&s.passed, "sluice.passed", "{number}", "Numbers of the log without an event, by reason.")
	count(&s.lost, "sluice.lease.lost", "{lease}", "Leases lost, by expiry or to another owner.")
	count(&s.retries, "sluice.retries", "{attempt}", "Attempts at an event that failed and are repeated, by type of error.")
	count(&s.deadLetters, "sluice.dead_letters", "{message}", "Dead letters, by outcome.")
	count(&s.written, "sluice.written.records", "{record}", "Records that the sink wrote.")
	count(&s.failures, "sluice.failures", "{failure}", "Failures of log, database, lease store and hooks, by type.")
	timed(&s.process, "messaging.process.duration", "Handler and commit of a batch.")
	timed(&s.renewals, "sluice.lease.renewal.duration", "Renewals of leases.")
	gauge(&s.lag, "sluice.lag.messages", "{message}", "Events that are not done.")
	gauge(&s.checkpoint, "sluice.checkpoint", "{sequence}", "Sequence number of the last event done.")
	gauge(&s.held, "sluice.lease.held", "{lease}", "1 while the partition is this process's.")
	gauge(&s.epoch, "sluice.lease.epoch", "{epoch}", "Epoch of the partition's lease.")
	gauge(&s.inFlight, "sluice.inflight.messages", "{message}", "Events taken and not done.")
	gauge(&s.stopped, "sluice.stopped", "{partition}", "1 while the partition is halted, operator action required.")
	gauge(&s.stalled, "sluice.stalled", "{partition}", "1 while something has held the partition up for too long, such as a handler that does not return.")
	gauge(&s.stored, "sluice.dead_letters.stored", "{message}", "Dead letters in the store, by status.")
	gauge(&s.warnings, "sluice.warnings", "{partition}", "Partitions with a warning that an operator must see, by kind.")
	var err error
	s.cost, err = m.Float64Counter("sluice.written.cost", metric.WithUnit("{unit}"), metric.WithDescription("What the store charged, in its own unit (RU for Cosmos DB)."))
	errs = append(errs, err)
	s.waited, err = m.Float64Counter("sluice.limiter.wait", metric.WithUnit("s"), metric.WithDescription("Time for which records were held back by the rate, or by the sink's own limit (RU)."))
	errs = append(errs, err)
	s.age, err = m.Float64ObservableGauge("sluice.lag.time", metric.WithUnit("s"), metric.WithDescription("Age of the oldest event that is not done, as far as it is known."))
	return errors.Join(append(errs, err)...)
}

func (s *instruments) gauges() []metric.Observable {
	return []metric.Observable{s.lag, s.checkpoint, s.held, s.epoch, s.inFlight, s.stopped, s.stalled, s.stored, s.warnings, s.age}
}

// Observe implements [driver.Observer].
func (o *Observer) Observe(what driver.Observation) {
	o.state.Observe(what)
	p := o.partition(what.Partition)
	ctx, m := context.Background(), &o.instruments
	switch what.Kind {
	case driver.KindAcquired:
		m.begin(ctx, p)
	case driver.KindFetched:
		m.fetched.Add(ctx, int64(what.Events), p.receive)
		m.bytes.Add(ctx, int64(what.Bytes), p.plain)
	case driver.KindCommitted:
		m.committed.Add(ctx, int64(what.Events), p.plain)
		m.commits.Add(ctx, 1, p.outcome["committed"])
		m.process.Record(ctx, what.Duration.Seconds(), p.process)
		if what.Duplicates > 0 {
			m.repeats.Add(ctx, int64(what.Duplicates), p.plain)
		}
		m.countFiltered(ctx, &what, p)
	case driver.KindPassed:
		m.countPassed(ctx, &what.Passed, p)
	case driver.KindFenced:
		m.commits.Add(ctx, 1, p.outcome["fenced"])
	case driver.KindUnknown:
		m.commits.Add(ctx, 1, p.outcome["unknown"])
	case driver.KindWritten:
		m.written.Add(ctx, int64(what.Events), p.plain)
		m.cost.Add(ctx, what.Cost, p.plain)
		m.waited.Add(ctx, what.Waited.Seconds(), p.plain)
		m.countFiltered(ctx, &what, p)
	case driver.KindRenewed:
		m.renewals.Record(ctx, what.Duration.Seconds(), p.plain)
	case driver.KindLost:
		m.lost.Add(ctx, 1, p.plain)
	case driver.KindRetried:
		m.retries.Add(ctx, 1, p.failure[errorType(what.Err)])
	case driver.KindParked:
		m.deadLetters.Add(ctx, 1, p.outcome[deadLetterOutcome(&what, "parked")])
	case driver.KindRedriven:
		m.deadLetters.Add(ctx, 1, p.outcome["redriven"])
	case driver.KindRedriveFailed:
		m.deadLetters.Add(ctx, 1, p.outcome[deadLetterOutcome(&what, "redrive_failed")])
	case driver.KindCopied:
		m.deadLetters.Add(ctx, int64(what.Events), p.outcome["copied"])
	case driver.KindCopyFailed:
		m.deadLetters.Add(ctx, int64(what.Events), p.outcome["copy_failed"])
		m.failures.Add(ctx, 1, p.failure[errorType(what.Err)])
	case driver.KindFailed, driver.KindHookFailed:
		m.failures.Add(ctx, 1, p.failure[errorType(what.Err)])
	}
}

// deadLetterOutcome is the outcome of an event that has failed: deferred, if it is tried again by
// itself.
func deadLetterOutcome(what *driver.Observation, final string) string {
	if what.RetriedIn > 0 {
		return "deferred"
	}
	return final
}

// begin makes the counters of a partition start at 0, so that the increase to their first 1 is
// seen.
func (s *instruments) begin(ctx context.Context, p *partition) {
	s.lost.Add(ctx, 0, p.plain)
	s.repeats.Add(ctx, 0, p.plain)
	s.retries.Add(ctx, 0, p.failure[otherError])
	s.failures.Add(ctx, 0, p.failure[otherError])
	for _, outcome := range commitOutcomes {
		s.commits.Add(ctx, 0, p.outcome[outcome])
	}
	for _, outcome := range deadLetterOutcomes {
		s.deadLetters.Add(ctx, 0, p.outcome[outcome])
	}
}

// countFiltered counts events that a filter left out.
func (s *instruments) countFiltered(ctx context.Context, what *driver.Observation, p *partition) {
	if what.Filtered > 0 {
		s.filtered.Add(ctx, int64(what.Filtered), p.plain)
	}
}

// countPassed counts numbers without an event.
func (s *instruments) countPassed(ctx context.Context, passed *driver.Passed, p *partition) {
	for i, n := range [...]int64{passed.Control, passed.Aborted, passed.Removed} {
		if n > 0 {
			s.passed.Add(ctx, n, p.passed[passReasons[i]])
		}
	}
}

// partition returns a partition's attributes, which are created once.
func (o *Observer) partition(id string) *partition {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partitions[id]
	if p == nil {
		p = newPartition(o, id)
		o.partitions[id] = p
	}
	return p
}
