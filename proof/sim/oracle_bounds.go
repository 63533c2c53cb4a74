package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/stamp"
)

// load is what a process has of one partition at a time.
type load struct {
	handed   int64              // the highest event that the handler has seen, or that the checkpoint is past
	inFlight map[submission]int // records that the sink has
	bytes    map[submission]int // of their events
}

// submission is an event, or the redrive of its dead letter: after a topic was recreated, both
// may have the same sequence number and be in flight.
type submission struct {
	sequence int64
	redrive  bool
}

func (p *process) loadOf(partition string) *load {
	l := p.loads[partition]
	if l == nil {
		l = &load{handed: -1, inFlight: map[submission]int{}, bytes: map[submission]int{}}
		p.loads[partition] = l
	}
	return l
}

// opened notes where a reader begins.
func (p *process) opened(partition string, after int64) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.loadOf(partition).handed = after
	p.w.laneOf(p.topic(), partition).silence = nil
}

// past notes the checkpoint that a process read. After a failover that lost an operator's
// command, this checkpoint can be far above the reader: events up to it never reach the
// handler. The lock is held.
func (p *process) past(partition string, checkpoint int64) {
	l := p.loadOf(partition)
	l.handed = max(l.handed, checkpoint)
}

// fetched checks how far a reader is ahead of the handler: a batch, and less than two in the
// buffer.
func (r *reader) fetched(events []*sluice.Event) {
	if r.stream != nil && r.stream.Batches == nil || r.w.cfg.Chain != nil || len(events) == 0 {
		return
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	ahead := r.w.eventsIn(eventID{r.w.group.Topic, r.partition, 0, r.w.life}, r.loadOf(r.partition).handed, events[len(events)-1].Sequence)
	if most := int64(3 * r.maxBatch); ahead > most {
		r.w.stale = append(r.w.stale, fmt.Sprintf("partition %s: %d events were read that the handler has not seen, more than %d", r.partition, ahead, most))
	}
}

// handed checks the size of a batch.
func (p *process) handed(b sluice.Batch) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if len(b.Events) > p.maxBatch {
		p.w.stale = append(p.w.stale, fmt.Sprintf("partition %s: a batch of %d events, more than %d", b.Partition, len(b.Events), p.maxBatch))
	}
	if l := p.loadOf(b.Partition); !b.Redriven {
		l.handed = max(l.handed, b.Events[len(b.Events)-1].Sequence)
	}
}

// submitted checks how many events of a partition, and how many records in any second, the
// sink has been given. It returns what to call when the record is finished.
func (p *process) submitted(ctx context.Context, e *sluice.Event) (finished func()) {
	at := p.Elapsed()
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	s := p.stream
	l := p.loadOf(e.Partition)
	of := submission{e.Sequence, p.redriving(ctx, e)}
	l.inFlight[of]++
	share := int(p.wants)
	if share <= 0 {
		share = w.gone.fewest // those of the topic when it was described
	}
	if most := max(1, s.Events/share) + redrivesAtOnce; len(l.inFlight) > most {
		w.stale = append(w.stale, fmt.Sprintf("partition %s: %d events in flight, more than %d", e.Partition, len(l.inFlight), most))
	}
	if !of.redrive {
		l.bytes[of] = len(e.Body) + len(padding(e))
	}
	sum, largest := 0, 0
	for _, n := range l.bytes {
		sum, largest = sum+n, max(largest, n)
	}
	if most := int(s.Bytes)/share + largest; s.Bytes > 0 && sum > most {
		w.stale = append(w.stale, fmt.Sprintf("partition %s: %d bytes in flight, more than %d", e.Partition, sum, most))
	}
	if s.Rate > 0 {
		p.submissions = append(p.submissions, at)
		if n := len(p.submissions) - s.Rate - 1; n >= 0 && at-p.submissions[n] < time.Second-time.Microsecond {
			w.stale = append(w.stale, fmt.Sprintf("%s: %d records within %v, more than %d a second", p.name, s.Rate+1, at-p.submissions[n], s.Rate))
		}
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if l.inFlight[of]--; l.inFlight[of] <= 0 {
			delete(l.inFlight, of)
			delete(l.bytes, of)
		}
	}
}

// padding is what makes an event large.
func padding(e *sluice.Event) string {
	text, _ := e.Properties["padding"].(string)
	return text
}

// redriving reports whether an event is a dead letter on redrive, which is beside the bounds.
func (p *process) redriving(ctx context.Context, e *sluice.Event) bool {
	stamp, _ := stamp.Of(ctx, e, 0)
	return stamp.Redrive
}

// redrivesAtOnce is how many dead letters may be redriven beside the events in flight.
const redrivesAtOnce = 100
