package eventhubs

import (
	"fmt"
	"strings"
	"sync"
)

// maxPlainReaders is Azure's limit of readers without an epoch per consumer
// group and partition.
const maxPlainReaders = 5

// readers are the links that read one partition. They are remembered no longer
// than they are attached: as on Azure, an epoch counts only against links that
// are live.
type readers struct {
	mu     sync.Mutex
	groups map[string][]*reader // by lower-case consumer group; plain readers, or one with an epoch
}

type reader struct {
	name   string
	epoch  *int64
	stolen func(by string, newEpoch int64)
}

// readerScope is what readers compete for; it names itself in errors.
type readerScope struct{ hub, group, partition string }

func (p readerScope) String() string {
	return fmt.Sprintf("partition %s of %s, consumer group %s", p.partition, p.hub, p.group)
}

// attach admits r, returning the readers that it evicts. It refuses with an
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

// detach forgets r; it does nothing if r was evicted or has left already.
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
