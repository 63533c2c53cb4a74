package sluicetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Sparse makes the topic one whose numbers may be missing, as a topic of Kafka is: of events that
// are appended with Control only the number is taken. Positions have the epoch of the partition's
// leader in place of an offset, and Properties the last value of each header. It must be called
// before the first event is appended.
func (h *Hub) Sparse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sparse = true
	for i, p := range h.logs {
		h.logs[i] = h.newPartition(p.id)
	}
}

// Compact removes events from a sparse topic, as compaction does. It panics if there is no such
// partition.
func (h *Hub) Compact(partition string, numbers ...int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.must(partition)
	for _, n := range numbers {
		if i := n - p.first; i >= 0 && i < int64(len(p.events)) {
			e := p.events[i]
			p.events[i] = &sluice.Event{Partition: e.Partition, Sequence: e.Sequence, Offset: e.Offset, Control: true, Passed: &driver.Passed{Removed: 1}}
		}
	}
}

// Truncate makes a sparse topic lose the numbers from end on, as the unclean election of a leader
// does, and begins the next epoch: the events that are appended then get the lost numbers. Readers
// that have passed end fail. It panics if there is no such partition.
func (h *Hub) Truncate(partition string, end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.must(partition)
	if end <= p.last.Sequence {
		kept := max(end-p.first, 0)
		p.events, p.first = slices.Clone(p.events[:kept]), min(p.first, end)
		p.last = sluice.Position{Sequence: end - 1, Offset: epochText(p.epochOf(end - 1))}
	}
	p.epochs = append(p.epochs, p.last.Sequence+1)
	if slices.ContainsFunc(p.readers, func(r *reader) bool { return r.sequence >= end }) {
		p.detach(fmt.Errorf("partition %s: its leader has changed and has no event %d", p.id, end))
	}
}

const epochPrefix = "leader-epoch "

func epochText(epoch int) string { return epochPrefix + strconv.Itoa(epoch) }

// epochOf returns the epoch that a number was written in.
func (p *partition) epochOf(n int64) int {
	epoch := len(p.epochs) - 1
	for epoch > 0 && p.epochs[epoch] > n {
		epoch--
	}
	return epoch
}

// truncated returns an error if the log has lost the number of a position.
func (p *partition) truncated(after sluice.Position) error {
	text, known := strings.CutPrefix(after.Offset, epochPrefix)
	epoch, err := strconv.Atoi(text)
	if !known || err != nil || epoch+1 >= len(p.epochs) {
		return nil
	}
	if end := slices.Min(p.epochs[epoch+1:]); after.Sequence >= end {
		return &driver.TruncatedError{Partition: p.id, Position: after, End: end}
	}
	return nil
}

// setProperties gives an event the last value of each header as a property.
func setProperties(e *sluice.Event) {
	for _, h := range e.Headers {
		if e.Properties == nil {
			e.Properties = map[string]any{}
		}
		if e.Properties[h.Name] = h.Value; utf8.Valid(h.Value) {
			e.Properties[h.Name] = string(h.Value)
		}
	}
}

// takeSparse returns up to limit of the events after the reader's position, and a marker if only
// numbers without events follow. Some of the other runs of such numbers have a marker too.
func (r *reader) takeSparse(limit int) (events []*sluice.Event) {
	p, bytes := r.log, 0
	held := p.events[r.sequence+1-p.first:]
	for i, e := range held {
		if bytes += e.Size(); len(events) == limit || !fits(bytes, len(events)) {
			break
		}
		last := i == len(held)-1
		r.passed.Add(e.Passed)
		if r.sequence = e.Sequence; !e.Control || last || !held[i+1].Control && e.Sequence%3 == 0 {
			e = clone(e)
			e.Passed = nil
			if passed := r.passed; passed.Total() > 0 {
				e.Passed = &passed
			}
			r.passed = driver.Passed{}
			events = append(events, e)
		}
	}
	return events
}
