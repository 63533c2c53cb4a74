package kafka

import (
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
	records     []byte // of it, not yet decoded
	left        int    // how many these are
	last        int64  // the last number of them that was decoded
	at          int64  // the last number that was decoded
	returned    int64  // the last number that Read has returned
	past        history
	offset      string          // text of past
	pending     []*driver.Event // decoded and not yet returned
	bytes       int             // of pending
	space       []byte          // for decompression, used again
	decodeError error
}

// decode decodes the chunk until there are so many events, or so many bytes of them as a Read may
// return. It reports whether the chunk has more.
func (d *decoder) decode(max, limit int) (more bool, err error) {
	if len(d.chunk.data) == 0 && d.left == 0 {
		d.pass(d.chunk.void, d.chunk.past)
		return false, nil
	}
	for len(d.pending) < max && d.bytes < driver.ReadBytes {
		if d.left == 0 {
			if len(d.chunk.data) == 0 {
				return false, nil
			}
			if err := d.begin(limit); err != nil {
				return false, err
			}
			continue
		}
		if err := d.decodeRecord(); err != nil {
			return false, d.undecodable(&d.batch, err)
		}
		if d.left--; d.left == 0 {
			d.pass(d.batch.last, d.batchPast)
		}
	}
	return d.left > 0 || len(d.chunk.data) > 0, nil
}

// begin begins with the next batch of the chunk. One without events is passed.
func (d *decoder) begin(limit int) error {
	b, rest, err := nextBatch(d.chunk.data)
	if err != nil {
		return d.undecodable(&b, err)
	}
	d.chunk.data = rest
	if b.last <= d.at {
		return nil
	}
	past := d.past.advance(&b, d.at+1)
	if d.past.from >= 0 && past.epoch >= 0 && past.epoch < d.past.epoch {
		return fmt.Errorf("topic partition %s: event %d is of leader epoch %d, and the one before of %d: reading again from the checkpoint", d.converter.partition, b.first, past.epoch, d.past.epoch)
	}
	if d.chunk.aborted.has(&b) {
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
	// A record takes seven bytes at least.
	if b.count > len(data)/7 {
		return d.undecodable(&b, errRecord)
	}
	if b.count == 0 {
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
	d.at = number
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
	d.records = rest
	switch {
	case d.batch.control:
		d.chunk.aborted.marker(&d.batch, &r)
		return nil
	case r.number <= d.last:
		return errRecord
	}
	d.last = r.number
	if r.number <= d.at {
		return nil
	}
	e, ok := d.converter.event(&r, d.batch.appendTime, d.left)
	if !ok {
		return errRecord
	}
	d.pass(r.number, d.batchPast)
	e.Offset = d.offset
	d.pending = append(d.pending, e)
	d.bytes += e.Size()
	return nil
}

// undecodable returns the error of a batch. It names the batch's last number, after which an operator
// can continue.
func (d *decoder) undecodable(b *batch, err error) error {
	last := max(b.last, d.at+1)
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

// marker returns a marker of the last number that was decoded, if that is after the last event and all
// that was fetched is decoded.
func (d *decoder) marker() *driver.Event {
	if len(d.pending) > 0 || d.chunk != nil || d.at <= d.returned {
		return nil
	}
	d.returned = d.at
	return &driver.Event{Partition: d.converter.partition, Sequence: d.at, Offset: d.offset, Control: true}
}
