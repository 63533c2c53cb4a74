package sluiceotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/internal/partitionstate"
)

// watchedFor is how long the result of a check is exported after it, if later checks fail.
const watchedFor = 5 * time.Minute

// Watch exports what a check of the consumer group from outside found, as [health.Watcher.Run]
// reports it: warnings, the number of dead letters, and the lag of partitions that nobody owns, or
// whose owner, this process, cannot read. It is exported until the next check that succeeds, or the
// next count, for at most five minutes. A count that fails is one of sluice.failures. Exporting
// asks nothing of the log or the stores.
func (o *Observer) Watch(r health.Report) {
	if r.Err != nil {
		return
	}
	if r.DeadLetterErr != nil {
		o.instruments.failures.Add(context.Background(), 1, o.partition("").failure[errorType(r.DeadLetterErr)])
	}
	for i := range r.Partitions {
		p := &r.Partitions[i]
		if !p.Unknown {
			o.state.SetBounds(p.Partition, p.Bounds, r.At)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watched = &r
	if r.DeadLetters != nil {
		o.counted = &r
	}
}

// lastWatched is the last check, and the last one that counted the dead letters; each nil if there
// is none that is recent.
func (o *Observer) lastWatched(now time.Time) (watched, counted *health.Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	recent := func(r *health.Report) *health.Report {
		if r == nil || now.Sub(r.At) > watchedFor {
			return nil
		}
		return r
	}
	return recent(o.watched), recent(o.counted)
}

// gauges exports the state of the partitions.
func (o *Observer) gauges(_ context.Context, to metric.Observer) error {
	now := o.now()
	states := o.state.State().Partitions
	seen := map[string]*health.PartitionReport{}
	watched, counted := o.lastWatched(now)
	if r := watched; r != nil {
		for i := range r.Partitions {
			p := &r.Partitions[i]
			if !p.Unknown {
				seen[p.Partition] = p
			}
			if _, known := states[p.Partition]; !known {
				states[p.Partition] = partitionstate.Partition{}
			}
		}
		o.warningGauges(to, r)
	}
	if counted != nil {
		o.deadLetterGauges(to, counted)
	}
	for id, p := range states {
		with := o.partition(id).plain
		observe(&p, to, &o.instruments, with)
		if events, age, ok := lag(&p, seen[id], now); ok {
			to.ObserveInt64(o.instruments.lag, events, with)
			to.ObserveFloat64(o.instruments.age, age.Seconds(), with)
		}
	}
	return nil
}

// warningGauges exports the warnings of a check.
func (o *Observer) warningGauges(to metric.Observer, r *health.Report) {
	warnings := map[health.WarningKind]int{}
	for _, w := range r.Warnings {
		warnings[w.Kind] += len(w.Partitions)
	}
	for _, kind := range health.WarningKinds {
		to.ObserveInt64(o.instruments.warnings, int64(warnings[kind]), o.warning[kind])
	}
}

// deadLetterGauges exports the dead letters of a check.
func (o *Observer) deadLetterGauges(to metric.Observer, r *health.Report) {
	stored := map[string]map[string]int{}
	for _, p := range r.Partitions {
		stored[p.Partition] = map[string]int{}
	}
	for _, c := range r.DeadLetters {
		if stored[c.Partition] == nil { // a partition that the topic no longer has
			stored[c.Partition] = map[string]int{}
		}
		stored[c.Partition][string(c.Status)] += c.Count
	}
	for id, counts := range stored {
		p := o.partition(id)
		for _, status := range statuses {
			to.ObserveInt64(o.instruments.stored, int64(counts[string(status)]), p.status[status])
		}
	}
}

// warningOptions are the attributes of each kind of warning.
func warningOptions(fixed []attribute.KeyValue) map[health.WarningKind]metric.MeasurementOption {
	all := map[health.WarningKind]metric.MeasurementOption{}
	for _, kind := range health.WarningKinds {
		all[kind] = metric.WithAttributeSet(attribute.NewSet(append(fixed[:len(fixed):len(fixed)], attribute.String("kind", string(kind)))...))
	}
	return all
}
