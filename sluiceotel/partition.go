package sluiceotel

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-go/sluice"
)

// partition is what is known of a partition.
type partition struct {
	plain            metric.MeasurementOption
	receive, process metric.MeasurementOption // with the operation's name
	outcome          map[string]metric.MeasurementOption

	mu sync.Mutex
	at standing
	// fetched are batches that are not done, oldest first: the last event's
	// number and time.
	fetched   []fetched
	newest    time.Time // when the last event that was done was enqueued
	streaming bool      // what is done is told as it is written, not by checkpoint
}

type fetched struct {
	last     int64
	enqueued time.Time
}

// maxFetched bounds what is remembered of a partition. Of more batches the
// oldest count.
const maxFetched = 1024

// standing is where a partition is.
type standing struct {
	known                   bool // it is owned, or was
	held, stopped, inFlight int64
	epoch, checkpoint, lag  int64
	age                     float64 // seconds
}

func newPartition(o *Observer, id string) *partition {
	attributes := o.fixed
	if id != "" {
		attributes = append(slices.Clone(attributes), attribute.String("messaging.destination.partition.id", id))
	}
	p := &partition{outcome: map[string]metric.MeasurementOption{}, at: standing{lag: -1, checkpoint: driver.Unset.Sequence}}
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(slices.Concat(attributes, more)...))
	}
	p.plain, p.receive, p.process = with(), with(operationKey.String("receive")), with(operationKey.String("process"))
	for _, outcome := range []string{"committed", "fenced", "unknown", "parked", "redriven", "redrive_failed"} {
		p.outcome[outcome] = with(attribute.String("outcome", outcome))
	}
	return p
}

// note takes in where the partition is.
func (p *partition) note(o *sluice.Observation) {
	if o.Partition == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch o.Kind {
	case sluice.KindAcquired:
		p.at = standing{known: true, held: 1, epoch: o.Epoch, lag: -1, checkpoint: driver.Unset.Sequence}
		p.fetched, p.newest = p.fetched[:0], time.Time{}
	case sluice.KindLost, sluice.KindReleased:
		p.at.held, p.at.stopped, p.at.inFlight, p.at.lag = 0, 0, 0, -1
		p.fetched, p.newest = p.fetched[:0], time.Time{}
	case sluice.KindStopped:
		p.at.stopped = 1
	case sluice.KindOpened:
		p.at.stopped = 0
		p.fetched = p.fetched[:0] // what was read and not done is read again
	case sluice.KindClaimed:
		p.at.checkpoint = o.To.Sequence
	case sluice.KindFetched:
		if len(p.fetched) < maxFetched {
			p.fetched = append(p.fetched, fetched{o.To.Sequence, o.Enqueued})
		}
		if p.at.lag < 0 {
			p.at.lag = o.Lag + int64(o.Events)
		}
	case sluice.KindCommitted:
		p.at.checkpoint = o.To.Sequence
		if !p.streaming {
			p.done(o)
		}
	case sluice.KindWritten:
		p.streaming = true
		p.at.inFlight = int64(o.InFlight)
		p.done(o)
	}
}

// done forgets the batches whose events are all done.
func (p *partition) done(o *sluice.Observation) {
	if o.Lag >= 0 {
		p.at.lag = o.Lag
	}
	n := 0
	for n < len(p.fetched) && p.fetched[n].last <= o.To.Sequence {
		p.newest = p.fetched[n].enqueued
		n++
	}
	p.fetched = append(p.fetched[:0], p.fetched[n:]...)
}

func (p *partition) standing(now time.Time) standing {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.at
	oldest := p.newest // done, but others may wait in the log
	if len(p.fetched) > 0 {
		oldest = p.fetched[0].enqueued
	}
	if s.lag > 0 && !oldest.IsZero() {
		s.age = max(0, now.Sub(oldest).Seconds())
	}
	return s
}

// tell tells where a partition is, but only while it is held how far: later
// another process knows better.
func (s standing) tell(to metric.Observer, m *meters, with metric.MeasurementOption) {
	if !s.known {
		return
	}
	to.ObserveInt64(m.held, s.held, with)
	to.ObserveInt64(m.stopped, s.stopped, with)
	to.ObserveInt64(m.inFlight, s.inFlight, with)
	if s.held == 0 {
		return
	}
	to.ObserveInt64(m.epoch, s.epoch, with)
	if s.checkpoint >= 0 {
		to.ObserveInt64(m.checkpoint, s.checkpoint, with)
	}
	if s.lag >= 0 {
		to.ObserveInt64(m.lag, s.lag, with)
		to.ObserveFloat64(m.age, s.age, with)
	}
}
