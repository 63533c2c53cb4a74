package hub

import (
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
	epoch  *int64
	stolen func(newEpoch int64)
}

// attach admits r to the group, returning the readers that it evicts. It
// refuses with an [EpochError] or a [ReaderLimitError] that lack the names.
func (rs *readers) attach(group string, r *reader) (evicted []*reader, err error) {
	group = strings.ToLower(group)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	attached := rs.groups[group]
	if len(attached) > 0 && attached[0].epoch != nil {
		held := *attached[0].epoch
		if r.epoch == nil || *r.epoch < held {
			return nil, &EpochError{Held: held, Epoch: r.epoch}
		}
	}
	if r.epoch == nil {
		if len(attached) >= maxPlainReaders {
			return nil, &ReaderLimitError{Limit: maxPlainReaders}
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
