package kafka

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-go/sluice/driver"
)

// decoder makes events of what was fetched, as many at a time as are wanted.
type decoder struct {
	converter   converter
	chunk       *chunk // nil if Read needs another one
	held        int    // bytes of it
	batch       batch  // that is being decoded
	batchPast   history
	records     []byte        // of it, not yet decoded
	left        int           // how many these are
	last        int64         // the last number of them that was decoded
	decoded     int64         // the last number that was decoded
	counted     int64         // the last number that is an event's, or in passed
	passed      driver.Passed // since the last event or marker
	compacted   bool          // the topic is: records may be missing
	returned    int64         // the last number that Read has returned
	past        history
	offset      string          // text of past
	pending     []*driver.Event // decoded and not yet returned
	bytes       int             // of pending
	space       []byte          // for decompression, used again
	unpacked    int             // bytes of the batch that was decompressed last
	decodeError error
}

// decode decodes the chunk until there are so many events, or so many bytes of them as a Read may
// return. It reports whether the chunk has more.
func (d *decoder) decode(max, limit int) (more bool, err error) {
	if len(d.chunk.data) == 0 && d.left == 0 {
		d.count(d.chunk.void, &d.passed.Removed)
		d.pass(d.chunk.void, d.chunk.past)
		return false, nil
	}
	for len(d.pending) < max && d.bytes < driver.ReadBytes {
		if d.left == 0 {
			if len(d.chunk.data) == 0 {
				return false, nil
			}
			if err := d.begin(limit); err != nil {
				return isGap(err), err
			}
			continue
		}
		switch err := d.decodeRecord(); {
		case isGap(err):
			return true, err
		case err != nil:
			return false, d.undecodable(&d.batch, err)
		}
	}
	return d.left > 0 || len(d.chunk.data) > 0, nil
}

// begin begins with the next batch of the chunk. One without events is passed. After a gapError the
// chunk still has the batch.
func (d *decoder) begin(limit int) error {
	b, rest, err := nextBatch(d.chunk.data)
	if err != nil {
		return d.undecodable(&b, err)
	}
	if b.last <= d.decoded {
		d.chunk.data = rest
		return nil
	}
	if err := d.checkDense(&b); err != nil {
		return err
	}
	d.chunk.data = rest
	past := d.past.advance(&b, d.decoded+1)
	if d.past.first >= 0 && past.epoch >= 0 && past.epoch < d.past.epoch {
		return fmt.Errorf("topic partition %s: event %d is of leader epoch %d, and the one before of %d: reading again from the checkpoint", d.converter.partition, b.first, past.epoch, d.past.epoch)
	}
	if d.chunk.aborted.has(&b) {
		d.countGap(&b)
		d.count(b.last, &d.passed.Aborted)
		d.pass(b.last, past)
		return nil
	}
	data, err := b.records(d.space, limit)
	if err != nil {
		return d.undecodable(&b, err)
	}
	if b.codec != codecNone {
		d.space = data[:0]
		if cap(d.space) > maxSpace {
			d.space = nil
		}
	}
	if d.unpacked = 0; b.codec != codecNone {
		d.unpacked = len(data)
	}
	// A record takes seven bytes at least.
	if b.count > len(data)/7 {
		return d.undecodable(&b, errRecord)
	}
	d.countGap(&b)
	if b.count == 0 {
		d.count(b.last, &d.passed.Removed)
		d.pass(b.last, past)
		return nil
	}
	d.converter.begin(len(data), b.codec == codecNone)
	d.batch, d.batchPast, d.records, d.left, d.last = b, past, data, b.count, b.first-1
	return nil
}

// maxSpace is how large a space for decompression is kept.
const maxSpace = 4 << 20

// pass takes note that a number is the last that was decoded.
func (d *decoder) pass(number int64, past history) {
	d.decoded = number
	if past != d.past {
		d.past, d.offset = past, past.String()
	}
}

// decodeRecord makes an event of the next record, unless it is a marker, or before the position.
func (d *decoder) decodeRecord() error {
	r, rest, err := d.batch.nextRecord(d.records)
	if err != nil {
		return err
	}
	if r.number <= d.last {
		return errRecord
	}
	if err := d.checkRecord(r.number); err != nil {
		return err
	}
	left := d.left
	d.records, d.last, d.left = rest, r.number, d.left-1
	passed := &d.passed.Removed
	switch {
	case d.batch.control:
		d.chunk.aborted.marker(&d.batch, &r)
		passed = &d.passed.Control
	case r.number > d.decoded:
		e, ok := d.converter.event(&r, d.batch.appendTime, left)
		if !ok {
			return errRecord
		}
		d.count(r.number-1, passed)
		d.counted = r.number
		d.pass(r.number, d.batchPast)
		e.Offset, e.Passed = d.offset, d.takePassed()
		d.pending = append(d.pending, e)
		d.bytes += e.Size()
	}
	if d.left == 0 {
		d.count(d.batch.last, passed)
		d.pass(d.batch.last, d.batchPast)
	}
	return nil
}

// checkDense returns a gapError if records are missing before a batch, or all of it, and nothing
// explains that. A broker may take numbers for the beginning of a transaction.
func (d *decoder) checkDense(b *batch) error {
	switch {
	case d.compacted:
	case b.count == 0:
		return &gapError{d.decoded + 1, b.last}
	case b.first > d.decoded+1 && !b.transactional && !b.control:
		return &gapError{d.decoded + 1, b.first - 1}
	}
	return nil
}

// checkRecord returns a gapError if records of the batch are missing before the one with a number,
// or after the last one.
func (d *decoder) checkRecord(number int64) error {
	if d.compacted || d.batch.control {
		return nil
	}
	if first := max(d.last, d.decoded) + 1; number > first {
		return &gapError{first, number - 1}
	}
	if d.left == 1 && number < d.batch.last {
		return &gapError{max(number, d.decoded) + 1, d.batch.last}
	}
	return nil
}

// countGap counts the numbers before a batch that were passed.
func (d *decoder) countGap(b *batch) {
	if b.transactional || b.control {
		d.count(b.first-1, &d.passed.Control)
	}
	d.count(b.first-1, &d.passed.Removed)
}

// count counts the numbers up to one that are not accounted for.
func (d *decoder) count(upTo int64, passed *int64) {
	if upTo > d.counted {
		*passed += upTo - d.counted
		d.counted = upTo
	}
}

// takePassed returns what was passed since the last event or marker, nil if nothing was.
func (d *decoder) takePassed() *driver.Passed {
	if d.passed == (driver.Passed{}) {
		return nil
	}
	passed := d.passed
	d.passed = driver.Passed{}
	return &passed
}

// isGap reports whether an error is a gapError.
func isGap(err error) bool {
	_, is := errors.AsType[*gapError](err)
	return is
}

// undecodable returns the error of a batch. It names the batch's last number, after which an
// operator can continue.
func (d *decoder) undecodable(b *batch, err error) error {
	last := max(b.last, d.decoded+1)
	return &driver.UndecodableError{Partition: d.converter.partition, Sequence: last, Reason: fmt.Sprintf("the batch of %d to %d: %v", b.first, last, err)}
}

// pop removes up to max events, of several at most [driver.ReadBytes].
func (d *decoder) pop(max int) []*driver.Event {
	n, bytes := 0, 0
	for n < min(max, len(d.pending)) {
		size := d.pending[n].Size()
		if n > 0 && bytes+size > driver.ReadBytes {
			break
		}
		bytes += size
		n++
	}
	if n == 0 {
		return nil
	}
	// A copy: what stays must not keep the returned events in memory.
	events := append(make([]*driver.Event, 0, n+1), d.pending[:n]...)
	d.pending = slices.Delete(d.pending, 0, n)
	d.bytes -= bytes
	d.returned = events[n-1].Sequence
	return events
}

// marker returns a marker of the last number that was decoded, if that is after the last event and
// all that was fetched is decoded.
func (d *decoder) marker() *driver.Event {
	if len(d.pending) > 0 || d.chunk != nil || d.decoded <= d.returned || d.counted != d.decoded {
		return nil
	}
	d.returned = d.decoded
	return &driver.Event{Partition: d.converter.partition, Sequence: d.decoded, Offset: d.offset, Control: true, Passed: d.takePassed()}
}
