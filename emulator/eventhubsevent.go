package emulator

import (
	"slices"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/eventhubs"
	"github.com/sluice-go/sluice/internal/amqp"
)

// formatBatch is the message format of a batch: an envelope whose data sections are the
// encoded events.
const formatBatch = 0x80013700

// The annotations of an event that the broker sets. Those that a producer sends under
// these names are removed, except the key.
const (
	annSequence  = "x-opt-sequence-number"
	annOffset    = "x-opt-offset"
	annEnqueued  = "x-opt-enqueued-time"
	annKey       = "x-opt-partition-key"
	annPublisher = "x-opt-publisher"
)

// reserved reports whether the broker sets the annotation.
func reserved(name string) bool {
	switch name {
	case annSequence, annOffset, annEnqueued, annKey, annPublisher:
		return true
	}
	return false
}

// splitter splits deliveries into events.
type splitter struct {
	arena []byte // holds events that were encoded again
	key   string // of the last delivery: of the envelope, if it is a batch
}

// split appends the events of a delivery to dst. The events hold parts of the
// delivery's payload or of the arena.
func (s *splitter) split(d amqp.Delivery, dst []eventhubs.Message) ([]eventhubs.Message, error) {
	if d.Format != formatBatch {
		m, err := s.event(d.Payload)
		s.key = m.Key
		return append(dst, m), err
	}
	key, n := "", len(dst)
	for b := d.Payload; len(b) > 0; {
		sec, rest, err := amqp.NextSection(b)
		if err != nil {
			return dst, err
		}
		b = rest
		switch sec.Code {
		case amqp.SectionMessageAnnotations:
			key = keyOf(sec)
		case amqp.SectionData:
			data := sec.Data()
			if len(data) == 0 {
				return dst, amqp.Errorf(amqp.CondDecode, "the batch holds an event without any section")
			}
			m, err := s.event(data)
			if err != nil {
				return dst, err
			}
			dst = append(dst, m)
		}
	}
	if len(dst) == n {
		return dst, amqp.Errorf(amqp.CondInvalidField, "the batch holds no events")
	}
	for i := n; i < len(dst); i++ {
		if dst[i].Key == "" {
			dst[i].Key = key
		}
	}
	s.key = key
	return dst, nil
}

func keyOf(sec amqp.Section) (key string) {
	sec.Pairs(func(p amqp.RawPair) bool {
		if p.Key == annKey {
			key, _ = amqp.DecodeText(p.Value)
		}
		return p.Key != annKey
	})
	return key
}

// event checks an encoded message, and removes what isn't stored: the header, and the
// annotations that the broker sets. The producer's delivery annotations, as on Azure, and its
// other annotations stay, as the first sections.
func (s *splitter) event(b []byte) (eventhubs.Message, error) {
	var m eventhubs.Message
	var delivery, annotations amqp.Section
	whole := b
	err := eachSection(b, func(sec amqp.Section, rest []byte) error {
		switch sec.Code {
		case amqp.SectionHeader:
			b = rest
		case amqp.SectionDeliveryAnnotations:
			delivery, b = sec, rest
		case amqp.SectionMessageAnnotations:
			annotations, b = sec, rest
		}
		return nil
	})
	switch {
	case err == errMisplaced:
		if b, err = inOrder(whole); err != nil {
			return m, err
		}
		return s.event(b)
	case err != nil:
		return m, err
	}
	m.Payload = b
	if annotations.Raw == nil && delivery.Raw == nil {
		return m, nil
	}
	if annotations.Raw != nil {
		m.Key = keyOf(annotations)
	}
	n, size := 0, 0
	own := func(f func(amqp.RawPair)) {
		annotations.Pairs(func(p amqp.RawPair) bool {
			if !reserved(p.Key) {
				f(p)
			}
			return true
		})
	}
	own(func(p amqp.RawPair) { n++; size += len(p.Raw) })
	if n == 0 && delivery.Raw == nil {
		return m, nil
	}
	start := len(s.arena)
	if delivery.Raw != nil { // not as it is: its descriptor may have another form
		s.arena = append(amqp.AppendSection(s.arena, amqp.SectionDeliveryAnnotations), delivery.Value...)
	}
	if n > 0 {
		s.arena = amqp.AppendMapHeader(amqp.AppendSection(s.arena, amqp.SectionMessageAnnotations), n, size)
	}
	own(func(p amqp.RawPair) { s.arena = append(s.arena, p.Raw...) })
	s.arena = append(s.arena, b...)
	m.Payload = s.arena[start:len(s.arena):len(s.arena)]
	return m, nil
}

// The encoded names of the broker's annotations.
var (
	symSequence = amqp.AppendSymbol(nil, annSequence)
	symOffset   = amqp.AppendSymbol(nil, annOffset)
	symEnqueued = amqp.AppendSymbol(nil, annEnqueued)
	symKey      = amqp.AppendSymbol(nil, annKey)
)

// The delivery annotations about the end of the partition.
const (
	metricSequence  = "last_enqueued_sequence_number"
	metricOffset    = "last_enqueued_offset"
	metricEnqueued  = "last_enqueued_time_utc"
	metricRetrieved = "runtime_info_retrieval_time_utc"
	metricPairs     = 4
)

// appendMetrics appends the pairs of the delivery annotations about the end of the partition,
// for receivers that ask for them.
func appendMetrics(b []byte, info eventhubs.Info, now time.Time) []byte {
	b = amqp.AppendLong(amqp.AppendSymbol(b, metricSequence), info.Last)
	b = amqp.AppendString(amqp.AppendSymbol(b, metricOffset), info.LastOffset)
	b = amqp.AppendTimestamp(amqp.AppendSymbol(b, metricEnqueued), info.LastEnqueued)
	return amqp.AppendTimestamp(amqp.AppendSymbol(b, metricRetrieved), now)
}

// appendDelivery appends the delivery annotations of an event, the broker's metrics before the
// producer's, and returns what follows the producer's.
func appendDelivery(b, payload, metrics []byte) (to, rest []byte) {
	var own amqp.Section
	rest = payload
	// The first section, if there are any, with a one-byte descriptor: see [splitter.event].
	if len(rest) > 2 && rest[2] == amqp.SectionDeliveryAnnotations {
		if sec, after, err := amqp.NextSection(rest); err == nil {
			own, rest = sec, after
		}
	}
	switch {
	case len(metrics) == 0:
		return append(b, own.Raw...), rest
	case own.Raw == nil:
		b = amqp.AppendMapHeader(amqp.AppendSection(b, amqp.SectionDeliveryAnnotations), metricPairs, len(metrics))
		return append(b, metrics...), rest
	}
	n, pairs := metricPairs, slices.Clone(metrics)
	own.Pairs(func(p amqp.RawPair) bool {
		switch p.Key {
		case metricSequence, metricOffset, metricEnqueued, metricRetrieved: // a map has a key once
		default:
			pairs = append(pairs, p.Raw...)
			n++
		}
		return true
	})
	b = amqp.AppendMapHeader(amqp.AppendSection(b, amqp.SectionDeliveryAnnotations), n, len(pairs))
	return append(b, pairs...), rest
}

// appendEvent appends a stored event in the form for receivers: with the broker's
// annotations before the producer's.
func appendEvent(b []byte, e *eventhubs.Stored, metrics []byte) []byte {
	b, rest := appendDelivery(b, e.Payload, metrics)
	var scratch [192]byte
	a, n := scratch[:0], 3
	a = amqp.AppendLong(append(a, symSequence...), e.Sequence)
	a = amqp.AppendString(append(a, symOffset...), e.Offset)
	a = amqp.AppendTimestamp(append(a, symEnqueued...), e.Enqueued)
	if e.Key != "" {
		a = amqp.AppendString(append(a, symKey...), e.Key)
		n++
	}
	// The annotations, if any, are the next section, with a one-byte descriptor.
	if len(rest) > 2 && rest[2] == amqp.SectionMessageAnnotations {
		if sec, after, err := amqp.NextSection(rest); err == nil {
			sec.Pairs(func(p amqp.RawPair) bool {
				a = append(a, p.Raw...)
				n++
				return true
			})
			rest = after
		}
	}
	b = amqp.AppendMapHeader(amqp.AppendSection(b, amqp.SectionMessageAnnotations), n, len(a))
	b = append(b, a...)
	return append(b, rest...)
}
