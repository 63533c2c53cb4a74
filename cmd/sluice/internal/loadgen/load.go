package loadgen

import (
	"cmp"
	"context"
	"fmt"
	"iter"
)

// LoadConfig holds what has a default. The zero value is ready to use.
type LoadConfig struct {
	// Replicas is how many parts the load has, to be sent at the same time.
	// Default: 1.
	Replicas int
	// Rate is how many documents are drawn a second, in all parts together.
	// Default: as fast as they are taken.
	Rate float64
}

// MaxCount is how many documents a load may have.
const MaxCount = 100_000_000_000

// Load is a number of documents. A key's documents are in one of its parts, in
// the order of their numbers.
type Load struct {
	docs     *Documents
	count    int64
	replicas int
	pace     *pace
}

// NewLoad makes a load of the first count of docs.
func NewLoad(docs *Documents, count int64, cfg *LoadConfig) (*Load, error) {
	var c LoadConfig
	if cfg != nil {
		c = *cfg
	}
	l := &Load{docs: docs, count: count, replicas: cmp.Or(c.Replicas, 1), pace: newPace(c.Rate)}
	switch {
	case count < 1 || count > MaxCount:
		return nil, fmt.Errorf("%d documents: must be 1 to %d", count, int64(MaxCount))
	case l.replicas < 1:
		return nil, fmt.Errorf("%d replicas: must be positive", l.replicas)
	}
	return l, checkRate(c.Rate)
}

// Document is one of [Documents].
type Document struct {
	ID, Key string
	Body    []byte
}

// chunk is how much memory documents are given at a time.
const chunk = 256 << 10

// Part yields the documents of a part, numbered from 0, until ctx ends.
func (l *Load) Part(ctx context.Context, replica int) iter.Seq[Document] {
	return func(yield func(Document) bool) {
		keys, size := l.docs.cfg.Keys, l.docs.cfg.Size
		var room []byte
		for round := int64(0); round < l.count; round += keys {
			for k := int64(replica); k < keys && round+k < l.count; k += int64(l.replicas) {
				if l.pace.wait(ctx) != nil {
					return
				}
				if cap(room)-len(room) < size {
					room = make([]byte, 0, max(chunk, size))
				}
				n, from := round+k, len(room)
				room = l.docs.Append(room, n)
				if !yield(Document{ID: l.docs.ID(n), Key: l.docs.Key(n), Body: room[from:len(room):len(room)]}) {
					return
				}
			}
		}
	}
}
