package kafkasender

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-go/sluice/sender"
)

// recordBatch is a batch as the log stores it: a header of batchHeader bytes and the records
// (https://kafka.apache.org/documentation/#recordbatch). What the header has is written before the
// batch is sent.
type recordBatch struct {
	transport *Transport
	partition *partition
	limits    limits
	headers   headers // of the message that is added

	encoded     []byte // not compressed
	count       int    // records
	size        int    // len(encoded), also after that is gone
	first, last int64  // when the first and the latest message were added, in ms

	sent *sentBatch // nil until it is sent
}

// sentBatch is what belongs to a batch from the first time it is sent.
type sentBatch struct {
	encoded []byte // compressed, if that makes it smaller
	codec   kgo.CompressionCodecType
	number  batchNumber
	ready   bool // the header has the number
	unknown bool // it may be stored: an answer was lost
}

const (
	// batchHeader is the length of a batch's header in bytes, and checked is where the part begins
	// that the checksum covers.
	batchHeader = 61
	checked     = 21
	// beforeLength is how many bytes the length in the header does not count.
	beforeLength = 12
	checksumAt   = 17
)

func (t *Transport) newBatch(p *partition, l limits) *recordBatch {
	b := &recordBatch{transport: t, partition: p, limits: l, size: batchHeader}
	if spare, ok := t.buffers.Get().(*[]byte); ok {
		b.encoded = *spare
	}
	b.encoded = append(b.encoded[:0], make([]byte, batchHeader)...)
	return b
}

func (b *recordBatch) Len() int   { return b.count }
func (b *recordBatch) Bytes() int { return b.size }

// Add implements [sender.Batch].
func (b *recordBatch) Add(m *sender.Message) error {
	if err := m.CheckServiceBusOnly(); err != nil {
		return err
	}
	if err := b.headers.set(m); err != nil {
		return err
	}
	now, limit := time.Now().UnixMilli(), b.limits.batch
	if b.count == 0 {
		b.first, b.last, limit = now, now, b.limits.message
	}
	r := record{delta: now - b.first, offset: int32(b.count), headers: &b.headers, m: m}
	length := r.length()
	size := b.size + kbin.VarintLen(int32(min(length, math.MaxInt32))) + length
	if size > limit || b.count == b.transport.cfg.MaxMessages {
		return sender.ErrTooLarge
	}
	b.encoded = r.append(b.encoded, length)
	b.count++
	b.size, b.last = size, max(b.last, now)
	return nil
}

// Size implements [sender.Sizer].
func (b *recordBatch) Size(m *sender.Message) (int, error) {
	if err := b.headers.set(m); err != nil {
		return 0, err
	}
	r := record{headers: &b.headers, m: m}
	n := r.length()
	return batchHeader + kbin.VarintLen(int32(min(n, math.MaxInt32))) + n, nil
}

// record is a message as the log stores it.
type record struct {
	delta   int64 // when it was added, in ms from the batch's first message
	offset  int32 // in the batch
	headers *headers
	m       *sender.Message
}

// key returns the length of the key, -1 if there is none.
func (r *record) key() int {
	if r.m.Key == "" && !r.m.EmptyKey {
		return -1
	}
	return len(r.m.Key)
}

// value returns the length of the value, -1 if it is null.
func (r *record) value() int {
	if r.m.Body == nil {
		return -1
	}
	return len(r.m.Body)
}

// length is how many bytes the record has after its length.
func (r *record) length() int {
	n := 1 + kbin.VarlongLen(r.delta) + kbin.VarintLen(r.offset)
	for _, part := range [...]int{r.key(), r.value()} {
		n += kbin.VarintLen(int32(min(part, math.MaxInt32))) + max(part, 0)
	}
	return n + kbin.VarintLen(int32(r.headers.count)) + len(r.headers.encoded)
}

func (r *record) append(dst []byte, length int) []byte {
	dst = kbin.AppendVarint(dst, int32(length))
	dst = append(dst, 0) // no attributes
	dst = kbin.AppendVarlong(dst, r.delta)
	dst = kbin.AppendVarint(dst, r.offset)
	dst = append(kbin.AppendVarint(dst, int32(r.key())), r.m.Key...)
	dst = append(kbin.AppendVarint(dst, int32(r.value())), r.m.Body...)
	dst = kbin.AppendVarint(dst, int32(r.headers.count))
	return append(dst, r.headers.encoded...)
}

// seal makes the batch ready to be sent: it compresses it, if that makes it smaller.
func (b *recordBatch) seal() *sentBatch {
	if b.sent != nil {
		return b.sent
	}
	b.sent = &sentBatch{encoded: b.encoded, codec: kgo.CodecNone}
	if t := b.transport; t.compressor != nil && !t.plain.Load() {
		var memory bytes.Buffer
		small, codec := t.compressor.Compress(&memory, b.encoded[batchHeader:])
		if codec > kgo.CodecNone && len(small) < len(b.encoded)-batchHeader {
			b.sent.encoded = append(make([]byte, batchHeader, batchHeader+len(small)), small...)
			b.sent.codec = codec
		}
	}
	return b.sent
}

// uncompress makes the batch ready to be sent without compression.
func (b *recordBatch) uncompress() {
	b.sent.encoded, b.sent.codec, b.sent.ready = b.encoded, kgo.CodecNone, false
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// setNumber gives the batch another number. A request that was abandoned may still read the memory
// of a batch whose outcome is unknown.
func (s *sentBatch) setNumber(n batchNumber) {
	if s.unknown {
		s.encoded = bytes.Clone(s.encoded)
	}
	s.number, s.ready = n, false
}

// withHeader returns the batch with its header.
func (b *recordBatch) withHeader() []byte {
	s := b.sent
	if s.ready {
		return s.encoded
	}
	s.ready = true
	header := kmsg.RecordBatch{
		Length: int32(len(s.encoded) - beforeLength), PartitionLeaderEpoch: -1, Magic: 2,
		Attributes: int16(s.codec), LastOffsetDelta: int32(b.count - 1), NumRecords: int32(b.count),
		FirstTimestamp: b.first, MaxTimestamp: b.last,
		ProducerID: s.number.producer, ProducerEpoch: s.number.epoch, FirstSequence: s.number.sequence,
	}
	header.AppendTo(s.encoded[:0])
	binary.BigEndian.PutUint32(s.encoded[checksumAt:], crc32.Checksum(s.encoded[checked:], castagnoli))
	return s.encoded
}

// recycle gives the batch's memory to later batches. The batch was accepted.
func (b *recordBatch) recycle() {
	if spare := b.encoded; !b.sent.unknown {
		b.transport.buffers.Put(&spare)
	}
	b.encoded, b.sent.encoded = nil, nil
}
