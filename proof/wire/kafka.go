package wire

import (
	"bufio"
	"encoding/binary"
	"math/rand/v2"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaProtocol is Kafka's, on one connection: frames of four bytes of length, in which the client
// gives each request a number that its answer has too.
type kafkaProtocol struct {
	mu    sync.Mutex
	asked map[int32]request
	stale *kmsg.FetchResponse // an earlier answer
}

// request is what decides how an answer is read.
type request struct{ key, version int16 }

func (*kafkaProtocol) next(r *bufio.Reader) ([]byte, error) { return sized(r, 4) }

// asks implements [protocol]. A connection lies once it is used for events or offsets.
func (k *kafkaProtocol) asks(frame []byte) (lie, spare bool) {
	if len(frame) < 12 {
		return false, false
	}
	q := request{int16(binary.BigEndian.Uint16(frame[4:])), int16(binary.BigEndian.Uint16(frame[6:]))}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked[int32(binary.BigEndian.Uint32(frame[8:]))] = q
	return q.key == kmsg.Fetch.Int16() || q.key == kmsg.ListOffsets.Int16(), false
}

// empty implements [protocol]: there is no answer without content.
func (*kafkaProtocol) empty([]byte) []byte { return nil }

// split implements [protocol]: an answer is one frame.
func (*kafkaProtocol) split([]byte, float64) [][]byte { return nil }

// forge implements [protocol].
func (k *kafkaProtocol) forge(frame []byte, r *rand.Rand) []byte {
	if len(frame) < 9 {
		return nil
	}
	k.mu.Lock()
	q, known := k.asked[int32(binary.BigEndian.Uint32(frame[4:]))]
	k.mu.Unlock()
	if !known {
		return nil
	}
	answer := kmsg.ResponseForKey(q.key)
	answer.SetVersion(q.version)
	head := 8
	if answer.IsFlexible() {
		head++ // tags of the header: none
	}
	if q.key == kmsg.ApiVersions.Int16() || answer.ReadFrom(frame[head:]) != nil {
		return nil
	}
	switch answer := answer.(type) {
	case *kmsg.FetchResponse:
		if k.forgeFetch(answer, r) == nil {
			return nil
		}
	case *kmsg.ListOffsetsResponse:
		forgeOffsets(answer, r)
	case *kmsg.MetadataResponse:
		forgeMetadata(answer, r)
	default:
		return nil
	}
	forged := answer.AppendTo(append([]byte(nil), frame[:head]...))
	binary.BigEndian.PutUint32(forged, uint32(len(forged)-4))
	return forged
}

// forgeFetch makes an answer empty, or out of date, cuts its events short, leaves the first ones
// out, or has it refuse.
func (k *kafkaProtocol) forgeFetch(f *kmsg.FetchResponse, r *rand.Rand) *kmsg.FetchResponse {
	stale := k.stale
	held := false
	for i := range f.Topics {
		for j := range f.Topics[i].Partitions {
			held = held || len(f.Topics[i].Partitions[j].RecordBatches) > 0
		}
	}
	if held {
		earlier := *f
		earlier.Topics = append([]kmsg.FetchResponseTopic(nil), f.Topics...)
		for i := range earlier.Topics {
			earlier.Topics[i].Partitions = append([]kmsg.FetchResponseTopicPartition(nil), f.Topics[i].Partitions...)
		}
		k.stale = &earlier
	}
	kind := r.IntN(6)
	if kind == 0 && stale != nil {
		f.Topics = stale.Topics
		return f
	}
	refusals := []*kerr.Error{kerr.NotLeaderForPartition, kerr.OffsetOutOfRange, kerr.KafkaStorageError, kerr.UnknownTopicOrPartition, kerr.FencedLeaderEpoch, kerr.UnknownServerError}
	for i := range f.Topics {
		for j := range f.Topics[i].Partitions {
			p := &f.Topics[i].Partitions[j]
			switch kind {
			case 1:
				p.RecordBatches = p.RecordBatches[:r.IntN(len(p.RecordBatches)+1)]
			case 2: // the first batches are left out
				p.RecordBatches = p.RecordBatches[firstBatches(p.RecordBatches, r):]
			case 3: // the ends are true
				p.RecordBatches = nil
			case 4:
				p.RecordBatches, p.ErrorCode = nil, refusals[r.IntN(len(refusals))].Code
			default:
				p.RecordBatches = nil
				p.HighWatermark = r.Int64N(max(p.HighWatermark, 0) + 1)
				p.LastStableOffset = p.HighWatermark
			}
		}
	}
	return f
}

// firstBatches returns the size of some batches at the beginning: a batch has its own size without
// the first twelve bytes.
func firstBatches(batches []byte, r *rand.Rand) (size int) {
	for len(batches)-size > 12 && r.IntN(3) > 0 {
		size += 12 + int(binary.BigEndian.Uint32(batches[size+8:]))
	}
	return min(size, len(batches))
}

// forgeOffsets has a partition end earlier, or be empty, or not be there.
func forgeOffsets(l *kmsg.ListOffsetsResponse, r *rand.Rand) {
	for i := range l.Topics {
		for j := range l.Topics[i].Partitions {
			switch p := &l.Topics[i].Partitions[j]; r.IntN(3) {
			case 0:
				p.Offset = r.Int64N(max(p.Offset, 0) + 1)
			case 1:
				p.Offset = -1
			default:
				p.ErrorCode = kerr.UnknownTopicOrPartition.Code
			}
		}
	}
}

// forgeMetadata leaves topics out, or their leaders.
func forgeMetadata(m *kmsg.MetadataResponse, r *rand.Rand) {
	if r.IntN(2) == 0 {
		m.Topics = nil
		return
	}
	for i := range m.Topics {
		for j := range m.Topics[i].Partitions {
			m.Topics[i].Partitions[j].Leader, m.Topics[i].Partitions[j].ErrorCode = -1, kerr.LeaderNotAvailable.Code
		}
	}
}
