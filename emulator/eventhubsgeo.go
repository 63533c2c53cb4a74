package emulator

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-go/sluice/emulator/internal/eventhubs"
	"github.com/sluice-go/sluice/internal/amqp"
)

// condGeoOffset is the error of an offset that a geo-replicated namespace can't use
// (internal/eh/errors.go of azeventhubs).
const condGeoOffset amqp.Symbol = "com.microsoft:georeplication:invalid-offset"

// replication is the state of a geo-replicated namespace: which replication epoch each event
// was written in. It is in memory: after a restart, the epoch of all events is 1.
type replication struct {
	mu     sync.RWMutex
	epoch  int64
	oldest int64 // the oldest epoch whose offsets are valid
	begins map[*eventhubs.Partition][]int64
	// begins are the first sequence numbers of the epochs from 2 on. A partition without an
	// entry was created in the current epoch, or there was no other.
}

func newReplication() *replication {
	return &replication{epoch: 1, oldest: 1, begins: make(map[*eventhubs.Partition][]int64)}
}

// promote begins a new epoch.
func (r *replication) promote(hubs []*eventhubs.Hub, forced bool) (epoch int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	begins := make(map[*eventhubs.Partition][]int64) // without the partitions of deleted hubs
	for _, h := range hubs {
		for _, id := range h.PartitionIDs() {
			p, _ := h.Partition(id)
			list := r.begins[p]
			if list == nil { // all of it was written in the latest epoch
				list = make([]int64, r.epoch-1, r.epoch)
			}
			begins[p] = append(slices.Clone(list), p.Info().Last+1)
		}
	}
	r.begins = begins
	r.epoch++
	if forced {
		r.oldest = r.epoch
	}
	return r.epoch
}

// epochOf returns the epoch that an event was written in. r.mu is held.
func (r *replication) epochOf(p *eventhubs.Partition, sequence int64) int64 {
	list, ok := r.begins[p]
	if !ok {
		return r.epoch
	}
	after, _ := slices.BinarySearch(list, sequence+1) // as many epochs have begun
	return int64(after) + 1
}

// rename gives events the offsets of a geo-replicated namespace.
func (r *replication) rename(p *eventhubs.Partition, events []eventhubs.Stored) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for i := range events {
		e := &events[i]
		e.Offset = fmt.Sprintf("%d:%s:%d", r.epochOf(p, e.Sequence), e.Offset, e.Sequence)
	}
}

// lastOffset returns the offset in the runtime information of a partition: EPOCH:-1:-1 if it is
// empty (geodr_test.go of azeventhubs).
func (r *replication) lastOffset(p *eventhubs.Partition, info eventhubs.Info) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if info.Empty {
		return fmt.Sprintf("%d:-1:-1", r.epoch)
	}
	return fmt.Sprintf("%d:%s:%d", r.epochOf(p, info.Last), info.LastOffset, info.Last)
}

// resolve returns the position that the log understands for one that a client gave. Offsets of
// the old form, and of epochs that a forced promotion has ended, are refused.
func (r *replication) resolve(p *eventhubs.Partition, start eventhubs.StartPosition) (eventhubs.StartPosition, error) {
	if start.Kind != eventhubs.AtOffset || start.Offset == "-1" || start.Offset == "@latest" {
		return start, nil
	}
	epoch, sequence, err := parseGeoOffset(start.Offset)
	r.mu.RLock()
	defer r.mu.RUnlock()
	empty := sequence == -1 // the offset of an empty partition
	if err != nil || epoch < r.oldest || epoch > r.epoch || !empty && epoch != r.epochOf(p, sequence) {
		return start, amqp.Errorf(condGeoOffset, "The supplied offset '%.100s' is invalid for an event hub that is geo-replicated, in replication epoch %d.",
			start.Offset, r.epoch)
	}
	if empty {
		return eventhubs.StartPosition{Kind: eventhubs.AtOffset, Offset: "-1"}, nil
	}
	return eventhubs.StartPosition{Kind: eventhubs.AtSequence, Sequence: sequence, Inclusive: start.Inclusive}, nil
}

var errGeoOffset = errors.New("not an offset of the form EPOCH:OFFSET:SEQUENCE")

func parseGeoOffset(text string) (epoch, sequence int64, err error) {
	part := strings.Split(text, ":")
	if len(part) != 3 {
		return 0, 0, errGeoOffset
	}
	epoch, err1 := strconv.ParseInt(part[0], 10, 64)
	_, err2 := strconv.ParseInt(part[1], 10, 64)
	sequence, err3 := strconv.ParseInt(part[2], 10, 64)
	if errors.Join(err1, err2, err3) != nil || sequence < -1 {
		return 0, 0, errGeoOffset
	}
	return epoch, sequence, nil
}

// Promote promotes the other region of a geo-replicated namespace, and returns the new
// replication epoch: events from now on have it in their offsets, and all links are detached.
// After a planned promotion (forced is false), offsets of earlier epochs stay valid. After a
// forced one they are refused: what they stand for may not have been replicated. It returns
// an error if the namespace isn't geo-replicated: see [EventHubsAsAzure].
func (s *Server) Promote(forced bool) (epoch int64, err error) {
	if s.azure.geo == nil {
		return 0, errors.New("the namespace isn't geo-replicated: turn on the behaviour geo")
	}
	epoch = s.azure.geo.promote(s.broker.Hubs(), forced)
	s.DetachLinks("", "")
	return epoch, nil
}
