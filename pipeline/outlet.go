package pipeline

import (
	"cmp"
	"context"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// outlet is an open target outside a database.
type outlet interface {
	// delivery returns the delivery of a pipeline with this target only.
	delivery(p *Pipeline, parts *Parts, to telemetry) (sluice.Delivery, error)
	// routedRecords returns the records of an event as those of several targets.
	routedRecords(ctx context.Context, e *sluice.Event) ([]routedRecord, error)
}

// outletOf is an [outlet] whose records are of type R.
type outletOf[R any] struct {
	records func(context.Context, *sluice.Event) ([]R, error)
	sink    driver.Sink[R]
	key     func(R) string // nil: the event's own
	proof   proof          // of records
	// batches is the handler of [sluice.Batches], if the target has one.
	batches func(records func(context.Context, *sluice.Event) ([]R, error)) func(context.Context, sluice.Batch) error
}

// defaultCheckpointEvery is that of sluice.AtLeastOnceConfig.
const defaultCheckpointEvery = 5 * time.Second

func (o *outletOf[R]) delivery(p *Pipeline, parts *Parts, to telemetry) (sluice.Delivery, error) {
	records := tracedRecords(p, parts, to.traces, o.taken(p))
	if p.InBatches() && parts.store != nil {
		every := cmp.Or(p.atLeastOnce.config.CheckpointEvery, defaultCheckpointEvery)
		return sluice.Batches(parts.store, o.batches(decodedRecords(p, records)), &sluice.BatchesConfig{CheckpointEvery: every}), nil
	}
	return atLeastOnce(p, parts, records, o.sink, o.key)
}

// taken makes the records of the events that the pipeline takes.
func (o *outletOf[R]) taken(p *Pipeline) func(context.Context, *sluice.Event) ([]R, error) {
	if !p.routing.selective() {
		return o.made
	}
	return func(ctx context.Context, e *sluice.Event) ([]R, error) {
		if to, err := p.routing.deliveredTo(e); to == leftOut {
			return nil, err
		}
		return o.made(ctx, e)
	}
}

// made makes the records of an event. The errors say whether records of any were made before.
func (o *outletOf[R]) made(ctx context.Context, e *sluice.Event) ([]R, error) {
	records, err := o.records(ctx, e)
	return records, o.proof.record(err)
}

// routedRecord is a record of one of several targets.
type routedRecord struct {
	submit func(ctx context.Context, done func(driver.WriteResult))
	key    string
}

func (o *outletOf[R]) routedRecords(ctx context.Context, e *sluice.Event) ([]routedRecord, error) {
	records, err := o.made(ctx, e)
	if err != nil {
		return nil, err
	}
	list := make([]routedRecord, len(records))
	for i, r := range records {
		list[i] = routedRecord{func(ctx context.Context, done func(driver.WriteResult)) { o.sink.Submit(ctx, r, done) }, e.Key}
		if o.key != nil {
			list[i].key = o.key(r)
		} else if e.EmptyKey {
			list[i].key = "\x00" // a key of its own: an empty one is none here
		}
	}
	return list, nil
}

// routedSink writes each record to its target.
type routedSink struct{}

func (routedSink) Submit(ctx context.Context, r routedRecord, done func(driver.WriteResult)) {
	r.submit(ctx, done)
}

// routedDelivery returns the delivery into the targets of routes. Records with the same key keep
// their order also if they are of different targets.
func (p *Pipeline) routedDelivery(parts *Parts, outlets []outlet, to telemetry) (sluice.Delivery, error) {
	records := func(ctx context.Context, e *sluice.Event) ([]routedRecord, error) {
		i, err := p.routing.deliveredTo(e)
		if i == leftOut {
			return nil, err
		}
		return outlets[i].routedRecords(ctx, e)
	}
	return atLeastOnce(p, parts, tracedRecords(p, parts, to.traces, records), routedSink{}, func(r routedRecord) string { return r.key })
}
