package kafka

import (
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-go/sluice/internal/memory"
)

// wants reports whether the reader has room for what another fetch may return.
func (r *reader) wants() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure != nil || r.atVoid || r.life.Err() != nil || r.buffered > 0 && r.buffered+r.fetchBytes() > r.source.cfg.PrefetchBytes {
		return false
	}
	r.scarce = !r.memory.Room(int64(r.fetchBytes()))
	return r.buffered == 0 || !r.scarce
}

// fetchBytes is how much of the partition one fetch may return; a single batch may be larger. A
// reader asks when it has so much room: fewer requests, for more partitions each, cost the broker
// less.
func (r *reader) fetchBytes() int { return max(1, r.source.cfg.PrefetchBytes/2) }

// ask returns the reader's part of a request. A broker fills up what was asked for with the
// beginning of a batch, which is of no use. So if the batch that was cut off last would not have
// fitted anyway, as much is asked for as the whole batches before it had, with some room for larger
// ones: producers repeat themselves.
func (r *reader) ask() kmsg.FetchRequestTopicPartition {
	p := kmsg.NewFetchRequestTopicPartition()
	r.mu.Lock()
	defer r.mu.Unlock()
	p.Partition, p.CurrentLeaderEpoch, p.FetchOffset = r.partition, r.epoch, r.next
	size := r.fetchBytes()
	if r.scarce {
		size = min(size, memory.ReceivedFloor)
	}
	if r.whole > 0 && r.whole+r.cutOff > size {
		size = min(size, r.whole+size/16)
	}
	p.PartitionMaxBytes = int32(size)
	return p
}

// answer takes what a broker returned for the partition, in a response with so many bytes of record
// batches. If alone, no partition before it in the response had data, so that it had room for at
// least one batch.
func (r *reader) answer(p *kmsg.FetchResponseTopicPartition, response int, alone bool) {
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		r.lost(err)
		return
	}
	r.mu.Lock()
	f := newFetched(p, response, r.next, r.past)
	if alone && f.size == 0 && len(p.RecordBatches) > 0 {
		r.mu.Unlock()
		r.lost(errCutOff)
		return
	}
	r.failing, r.wait = time.Time{}, retryFirst
	r.next, r.past, r.whole, r.cutOff = f.next, f.past, f.size, f.cutOff
	if !r.closed { // else close has given back what was charged
		r.memory.Take(int64(f.size))
		r.chunks = append(r.chunks, f.chunks...)
		r.buffered += f.size
	}
	end := r.source.endIn(p)
	var wait time.Duration
	switch empty := len(p.RecordBatches) == 0; {
	case !empty, end <= r.next:
		r.void = void{}
	case alone:
		r.atVoid, wait = true, r.void.begin(time.Now())
	}
	atVoid := r.atVoid
	r.mu.Unlock()
	switch {
	case atVoid:
		r.source.client.start(func() { r.confirmVoid(end, wait) })
	case f.size > 0:
		r.notify()
	}
}

// errCutOff is the error of an answer that no reader gets on with.
var errCutOff = errors.New("the broker's answer has only part of a record batch")

// chunk is some record batches that one fetch returned for the partition.
type chunk struct {
	data    []byte
	aborted *aborted // of all chunks of the fetch
	void    int64    // if data is empty: the number up to which there is nothing
	past    history  // of void
}

// An event that is held for long keeps its chunk in memory. A chunk shares the response's memory if
// that is small, or if much of it is the partition's. Else it is a copy of about chunkSize bytes,
// or of one batch that is larger.
const (
	chunkSize     = 128 << 10
	shareOfOthers = 8 // how many times a partition's bytes a shared response may have
)

// fetched is what one fetch returned for a partition.
type fetched struct {
	chunks []*chunk
	size   int     // bytes of all
	next   int64   // number to fetch next
	past   history // of the number before it
	cutOff int     // bytes of the batch that was cut off; 0 if none was, or if that is not known
	shared bool    // the chunks share the response's memory
}

// newFetched takes the batches of an answer, in a response with so many bytes. What the broker cut
// off at the end is left out.
func newFetched(p *kmsg.FetchResponseTopicPartition, response int, next int64, past history) fetched {
	f := fetched{next: next, past: past, shared: response <= max(chunkSize, shareOfOthers*len(p.RecordBatches))}
	aborted := newAborted(p.AbortedTransactions)
	data := p.RecordBatches
	for size := 0; ; {
		b, rest, err := nextBatch(data[size:])
		if err == errPartial {
			f.add(data[:size], aborted)
			f.cutOff = lengthOf(data[size:])
			return f
		}
		if b.last >= f.next {
			f.past, f.next = f.past.advance(&b, f.next), b.last+1
		}
		if err != nil { // which decoding reports
			f.add(data, aborted)
			return f
		}
		batch := len(data) - size - len(rest)
		if size += batch; size >= chunkSize && !f.shared {
			f.add(data[:size], aborted)
			data, size = rest, 0
		}
	}
}

func (f *fetched) add(data []byte, aborted *aborted) {
	if len(data) == 0 {
		return
	}
	f.size += len(data)
	if !f.shared {
		data = slices.Clone(data)
	}
	f.chunks = append(f.chunks, &chunk{data: data, aborted: aborted})
}
