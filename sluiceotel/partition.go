package sluiceotel

import (
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-go/sluice/internal/partitionstate"
)

// partition holds a partition's attributes, by what they are used for.
type partition struct {
	plain            metric.MeasurementOption
	receive, process metric.MeasurementOption // with the operation's name
	outcome          map[string]metric.MeasurementOption
}

func newPartition(o *Observer, id string) *partition {
	attributes := o.fixed
	if id != "" {
		attributes = append(slices.Clone(attributes), attribute.String("messaging.destination.partition.id", id))
	}
	p := &partition{outcome: map[string]metric.MeasurementOption{}}
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(slices.Concat(attributes, more)...))
	}
	p.plain, p.receive, p.process = with(), with(operationKey.String("receive")), with(operationKey.String("process"))
	for _, outcome := range []string{"committed", "fenced", "unknown", "parked", "redriven", "redrive_failed", "copied", "copy_failed"} {
		p.outcome[outcome] = with(attribute.String("outcome", outcome))
	}
	return p
}

// observe exports the gauges of a partition that is or was held. Its position and
// lag are exported only while it is held: later another process knows better.
func observe(p *partitionstate.Partition, to metric.Observer, m *instruments, with metric.MeasurementOption, now time.Time) {
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
	if p.Lag < 0 {
		return
	}
	to.ObserveInt64(m.lag, p.Lag, with)
	age := 0.0
	if p.Lag > 0 && !p.Oldest.IsZero() {
		age = max(0, now.Sub(p.Oldest).Seconds())
	}
	to.ObserveFloat64(m.age, age, with)
}

func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
