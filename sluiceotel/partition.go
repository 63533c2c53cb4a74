package sluiceotel

import (
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/internal/partitionstate"
)

// partition holds a partition's attributes, by what they are used for.
type partition struct {
	plain            metric.MeasurementOption
	receive, process metric.MeasurementOption // with the operation's name
	outcome          map[string]metric.MeasurementOption
	failure          map[string]metric.MeasurementOption // by [errorType]
	status           map[driver.DeadLetterStatus]metric.MeasurementOption
	passed           map[string]metric.MeasurementOption // by reason
}

// Outcomes of commits and of dead letters, and why numbers hold no event.
var (
	commitOutcomes     = []string{"committed", "fenced", "unknown"}
	deadLetterOutcomes = []string{"parked", "deferred", "redriven", "redrive_failed", "copied", "copy_failed"}
	passReasons        = []string{"control", "aborted", "removed"}
)

// statuses are all that a dead letter can have.
var statuses = []driver.DeadLetterStatus{driver.StatusDead, driver.StatusRetry, driver.StatusDiscarded}

func newPartition(o *Observer, id string) *partition {
	attributes := o.fixed
	if id != "" {
		attributes = append(slices.Clone(attributes), attribute.String("messaging.destination.partition.id", id))
	}
	p := &partition{outcome: map[string]metric.MeasurementOption{}, failure: map[string]metric.MeasurementOption{}, status: map[driver.DeadLetterStatus]metric.MeasurementOption{}, passed: map[string]metric.MeasurementOption{}}
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(slices.Concat(attributes, more)...))
	}
	p.plain, p.receive, p.process = with(), with(operationKey.String("receive")), with(operationKey.String("process"))
	for _, outcome := range slices.Concat(commitOutcomes, deadLetterOutcomes) {
		p.outcome[outcome] = with(attribute.String("outcome", outcome))
	}
	for _, typ := range errorTypes {
		p.failure[typ] = with(errorKey.String(typ))
	}
	for _, reason := range passReasons {
		p.passed[reason] = with(attribute.String("reason", reason))
	}
	for _, status := range statuses {
		p.status[status] = with(attribute.String("status", string(status)))
	}
	return p
}

// observe exports the gauges of a partition that is or was held, without its lag. Its position is
// exported only while it is held: later another process knows better.
func observe(p *partitionstate.Partition, to metric.Observer, m *instruments, with metric.MeasurementOption) {
	if p.Acquired.IsZero() {
		return
	}
	to.ObserveInt64(m.held, one(p.Held), with)
	to.ObserveInt64(m.stopped, one(p.Held && p.Stopped != nil), with)
	to.ObserveInt64(m.stalled, one(p.Stall.Stalled()), with)
	to.ObserveInt64(m.inFlight, int64(p.InFlight), with)
	if !p.Held {
		return
	}
	to.ObserveInt64(m.epoch, p.Epoch, with)
	if p.Checkpoint.Sequence >= 0 {
		to.ObserveInt64(m.checkpoint, p.Checkpoint.Sequence, with)
	}
}

// lag is how far a partition is behind, and how old the oldest event is that is not done; false if
// this process does not export that. The owner exports it, as the engine knows it, or else as the
// last check from outside saw it. Every process that checks exports that of a partition without an
// owner.
func lag(p *partitionstate.Partition, seen *health.PartitionReport, now time.Time) (events int64, age time.Duration, ok bool) {
	known := p.Held && p.Lag >= 0 && (p.Stopped == nil || seen == nil)
	switch {
	case known:
		events = p.Lag
	case seen != nil && (p.Held || seen.Owner == ""):
		events = seen.Lag
	default:
		return 0, 0, false
	}
	switch {
	case events == 0:
		return 0, 0, true
	case known && !p.Oldest.IsZero():
		age = now.Sub(p.Oldest)
	case seen != nil && !seen.WaitingSince.IsZero():
		age = now.Sub(seen.WaitingSince)
	}
	return events, max(0, age), true
}

func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
