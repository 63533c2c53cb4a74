package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// batch is a record batch: a header and records, which may be compressed. Its layout is that of
// message format 2, which every Kafka since 0.11 writes
// (https://kafka.apache.org/documentation/#recordbatch).
type batch struct {
	first, last   int64 // numbers
	epoch         int32 // of the leader who wrote it; -1 if unknown
	codec         int8
	transactional bool
	control       bool
	appendTime    bool // the log's time counts, which is newest for all records
	base, newest  int64
	producer      int64
	count         int
	checked       []byte // what the checksum covers
	checksum      uint32
	payload       []byte
}

const (
	batchPrefix = 12 // number and length
	batchHeader = 61
)

// errPartial means that the data ends within a batch: a broker cuts off what exceeds a limit.
var errPartial = errors.New("the data ends within a batch")

// lengthOf returns the length of the batch that data begins with, 0 if its length is not in data.
func lengthOf(data []byte) int {
	if len(data) < batchPrefix {
		return 0
	}
	return batchPrefix + max(0, int(int32(binary.BigEndian.Uint32(data[8:]))))
}

// nextBatch returns the first batch of data and what follows it. If its format is an earlier one,
// only the batch's numbers are known, and the error says so.
func nextBatch(data []byte) (b batch, rest []byte, err error) {
	if len(data) < batchPrefix+5 {
		return batch{}, nil, errPartial
	}
	b.first = int64(binary.BigEndian.Uint64(data))
	b.last = b.first
	b.epoch = -1
	length := int64(int32(binary.BigEndian.Uint32(data[8:])))
	switch {
	case length < 5:
		return b, nil, fmt.Errorf("a length of %d bytes", length)
	case batchPrefix+length > int64(len(data)):
		return batch{}, nil, errPartial
	}
	rest = data[batchPrefix+length:]
	data = data[:batchPrefix+length]
	if magic := data[16]; magic != 2 {
		return b, rest, fmt.Errorf("message format %d, which Kafka before 0.11 wrote", magic)
	}
	if len(data) < batchHeader {
		return b, nil, fmt.Errorf("a length of %d bytes", length)
	}
	attributes := binary.BigEndian.Uint16(data[21:])
	delta := int32(binary.BigEndian.Uint32(data[23:]))
	count := int32(binary.BigEndian.Uint32(data[57:]))
	b.last = b.first + int64(delta)
	b.epoch = int32(binary.BigEndian.Uint32(data[12:]))
	b.codec = int8(attributes & 7)
	b.appendTime = attributes&8 != 0
	b.transactional = attributes&16 != 0
	b.control = attributes&32 != 0
	b.base = int64(binary.BigEndian.Uint64(data[27:]))
	b.newest = int64(binary.BigEndian.Uint64(data[35:]))
	b.producer = int64(binary.BigEndian.Uint64(data[43:]))
	b.count = int(count)
	b.checksum = binary.BigEndian.Uint32(data[17:])
	b.checked = data[21:]
	b.payload = data[batchHeader:]
	if b.first < 0 || delta < 0 || b.last < b.first || count < 0 {
		return b, nil, fmt.Errorf("first number %d, last %d more, %d records", b.first, delta, count)
	}
	return b, rest, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// records checks a batch and returns its records, decompressed into the space of into if they were
// compressed.
func (b *batch) records(into []byte, limit int) ([]byte, error) {
	if crc32.Checksum(b.checked, castagnoli) != b.checksum {
		return nil, errors.New("its checksum is wrong")
	}
	if b.codec == codecNone {
		return b.payload, nil
	}
	out, err := decompress(into[:0], b.payload, b.codec, limit)
	switch {
	case errors.Is(err, errTooLarge):
		return nil, fmt.Errorf("it decompresses to more than %d bytes, see SourceConfig.MaxBatchBytes", limit)
	case err != nil:
		return nil, fmt.Errorf("it cannot be decompressed: %w", err)
	}
	return out, nil
}

// record is one record of a batch, as it is in memory that is used again.
type record struct {
	number       int64
	timestamp    int64
	key, value   []byte // nil if null
	headers      []byte
	headersCount int
}

var errRecord = errors.New("a record does not fit its length")

// nextRecord returns the first record of data and what follows it.
func (b *batch) nextRecord(data []byte) (r record, rest []byte, err error) {
	length, data, ok := varint(data)
	if !ok || length < 0 || length > int64(len(data)) || length < 1 {
		return r, nil, errRecord
	}
	data, rest = data[:length], data[length:]
	data = data[1:] // attributes, which are unused
	timestamp, data, ok1 := varint(data)
	delta, data, ok2 := varint(data)
	var ok3, ok4, ok5 bool
	r.key, data, ok3 = bytesOf(data)
	r.value, data, ok4 = bytesOf(data)
	var count int64
	count, r.headers, ok5 = varint(data)
	if !(ok1 && ok2 && ok3 && ok4 && ok5) || delta < 0 || delta > b.last-b.first || count < 0 || count > int64(len(r.headers)) {
		return r, nil, errRecord
	}
	r.number = b.first + delta
	r.timestamp = b.base + timestamp
	if b.appendTime {
		r.timestamp = b.newest
	}
	r.headersCount = int(count)
	return r, rest, nil
}

// varint returns the integer that data begins with, and what follows it.
func varint(data []byte) (int64, []byte, bool) {
	v, n := binary.Varint(data)
	if n <= 0 {
		return 0, nil, false
	}
	return v, data[n:], true
}

// bytesOf returns the bytes that data begins with, after their length, and what follows them. A
// length of -1 is null.
func bytesOf(data []byte) (text, rest []byte, ok bool) {
	length, data, ok := varint(data)
	switch {
	case !ok || length < -1 || length > int64(len(data)):
		return nil, nil, false
	case length == -1:
		return nil, data, true
	}
	return data[:length:length], data[length:], true
}

// aborted finds the batches of aborted transactions among those of one fetch.
type aborted struct {
	transactions []kmsg.FetchResponseTopicPartitionAbortedTransaction // by first number; not yet begun
	producers    map[int64]bool                                       // with an aborted transaction at this place
}

func newAborted(list []kmsg.FetchResponseTopicPartitionAbortedTransaction) *aborted {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return int(max(-1, min(1, a.FirstOffset-b.FirstOffset)))
	})
	return &aborted{transactions: list}
}

// has reports whether a batch is part of an aborted transaction. It must be called for every batch
// in order, with the markers, of which the records are given too.
func (a *aborted) has(b *batch) bool {
	for len(a.transactions) > 0 && a.transactions[0].FirstOffset <= b.last {
		if a.producers == nil {
			a.producers = map[int64]bool{}
		}
		a.producers[a.transactions[0].ProducerID] = true
		a.transactions = a.transactions[1:]
	}
	return b.transactional && !b.control && a.producers[b.producer]
}

// marker takes note of the marker that ends a transaction.
func (a *aborted) marker(b *batch, r *record) {
	if len(r.key) >= 4 && binary.BigEndian.Uint16(r.key[2:]) == markerAbort {
		delete(a.producers, b.producer)
	}
}

// markerAbort is the type of the control record that aborts a transaction.
const markerAbort = 0
