package eventhubs

import (
	"fmt"
	"strings"
	"sync"
)

// maxPlainReaders is Azure's limit of readers without an epoch per consumer
// group and partition.
const maxPlainReaders = 5

// readers are the links that read one partition. As on Azure, an epoch is compared
// with attached readers only: a detached reader's epoch is forgotten.
type readers struct {
	mu     sync.Mutex
	groups map[string][]*reader // by lower-case consumer group; plain readers, or one with an epoch
}

type reader struct {
	name   string
	epoch  *int64
	stolen func(by string, newEpoch int64)
}

// readerScope is what readers compete for.
type readerScope struct{ hub, group, partition string }

func (p readerScope) String() string {
	return fmt.Sprintf("partition %s of %s, consumer group %s", p.partition, p.hub, p.group)
}

// attach adds r and returns the readers that it evicts, or refuses it with an
// [*EpochError] or a [*ReaderLimitError].
func (rs *readers) attach(at readerScope, r *reader) (evicted []*reader, err error) {
	group := strings.ToLower(at.group)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	attached := rs.groups[group]
	if len(attached) > 0 && attached[0].epoch != nil {
		held := *attached[0].epoch
		if r.epoch == nil || *r.epoch < held {
			return nil, &EpochError{scope: at, Held: held, Holder: attached[0].name, Epoch: r.epoch}
		}
	}
	if r.epoch == nil {
		if len(attached) >= maxPlainReaders {
			limit := &ReaderLimitError{scope: at, Limit: maxPlainReaders}
			for _, other := range attached {
				limit.Holders = append(limit.Holders, other.name)
			}
			return nil, limit
		}
		attached = append(attached, r)
	} else {
		evicted, attached = attached, []*reader{r}
	}
	if rs.groups == nil {
		rs.groups = make(map[string][]*reader)
	}
	rs.groups[group] = attached
	return evicted, nil
}

// detach removes r; it does nothing if r was evicted or detached before.
func (rs *readers) detach(group string, r *reader) {
	group = strings.ToLower(group)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	left := make([]*reader, 0, len(rs.groups[group]))
	for _, other := range rs.groups[group] {
		if other != r {
			left = append(left, other)
		}
	}
	if len(left) == 0 {
		delete(rs.groups, group)
		return
	}
	rs.groups[group] = left
}
