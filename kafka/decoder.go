package kafka

import (
	"fmt"

	"github.com/sluice-go/sluice/driver"
)

// decoder makes events of what was fetched, a batch at a time.
type decoder struct {
	converter   converter
	chunk       *chunk // nil if Read needs another one
	held        int    // bytes of it
	at          int64  // the last number that was decoded
	returned    int64  // the last number that Read has returned
	past        history
	offset      string          // text of past
	pending     []*driver.Event // decoded and not yet returned
	bytes       int             // of pending
	space       []byte          // for decompression, used again
	decodeError error
}

// decode decodes the next batch of the chunk, and reports whether there are more.
func (d *decoder) decode(limit int) (more bool, err error) {
	if len(d.chunk.data) == 0 {
		d.pass(d.chunk.void, d.chunk.past)
		return false, nil
	}
	b, rest, err := nextBatch(d.chunk.data)
	if err != nil {
		return false, d.undecodable(&b, err)
	}
	d.chunk.data = rest
	if b.last <= d.at {
		return len(rest) > 0, nil
	}
	past := d.past.advance(&b, d.at+1)
	if d.past.from >= 0 && past.epoch >= 0 && past.epoch < d.past.epoch {
		return false, fmt.Errorf("topic partition %s: event %d is of leader epoch %d, and the one before of %d: reading again from the checkpoint", d.converter.partition, b.first, past.epoch, d.past.epoch)
	}
	from := d.at
	d.pass(b.last, past)
	if d.chunk.aborted.has(&b) {
		return len(rest) > 0, nil
	}
	if err := d.decodeRecords(&b, from, limit); err != nil {
		d.at = from
		return false, d.undecodable(&b, err)
	}
	return len(rest) > 0, nil
}

// pass takes note that a number is the last that was decoded.
func (d *decoder) pass(number int64, past history) {
	d.at = number
	if past != d.past {
		d.past, d.offset = past, past.String()
	}
}

// decodeRecords makes events of a batch's records after a number.
func (d *decoder) decodeRecords(b *batch, after int64, limit int) error {
	data, err := b.records(d.space, limit)
	if err != nil {
		return err
	}
	if b.codec != codecNone {
		d.space = data[:0]
		if cap(d.space) > maxSpace {
			d.space = nil
		}
	}
	// A record takes seven bytes at least.
	if b.count > len(data)/7 {
		return errRecord
	}
	d.converter.begin(len(data), b.codec == codecNone)
	began, bytes := len(d.pending), d.bytes
	last := after
	for i := range b.count {
		var r record
		if r, data, err = b.nextRecord(data); err != nil {
			break
		}
		switch {
		case b.control:
			d.chunk.aborted.marker(b, &r)
			continue
		case r.number <= after:
			d.converter.left -= len(r.value)
			continue
		case r.number <= last:
			err = errRecord
		}
		if err != nil {
			break
		}
		last = r.number
		e, ok := d.converter.event(&r, b.appendTime, d.offset, b.count-i)
		if !ok {
			err = errRecord
			break
		}
		d.pending = append(d.pending, e)
		d.bytes += e.Size()
	}
	if err != nil {
		d.pending, d.bytes = d.pending[:began], bytes
	}
	return err
}

// maxSpace is how large a space for decompression is kept.
const maxSpace = 4 << 20

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
	clear(d.pending[:n])
	d.pending = d.pending[n:]
	d.bytes -= bytes
	d.returned = events[n-1].Sequence
	return events
}
