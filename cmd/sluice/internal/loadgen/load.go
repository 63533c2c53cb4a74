// Package loadgen makes documents for load tests, and limits the rate at which they are sent.
package loadgen

import (
	"cmp"
	"context"
	"fmt"
	"iter"
)

// LoadConfig configures a [Load]. The zero value is ready to use.
type LoadConfig struct {
	// Replicas is the number of parts of the load, which are sent at the same time. Default: 1.
	Replicas int
	// Rate limits how many documents are yielded per second, in all parts together. Default: no
	// limit.
	Rate float64
}

// MaxCount is the largest number of documents in a load.
const MaxCount = 100_000_000_000

// Load is a number of documents. All documents of a key are in the same part, in the order of
// their numbers.
type Load struct {
	docs     *Documents
	count    int64
	replicas int
	pace     *Pacer
}

// NewLoad makes a load of the first count of docs.
func NewLoad(docs *Documents, count int64, cfg *LoadConfig) (*Load, error) {
	var c LoadConfig
	if cfg != nil {
		c = *cfg
	}
	pace, err := NewPacer(c.Rate)
	l := &Load{docs: docs, count: count, replicas: cmp.Or(c.Replicas, 1), pace: pace}
	switch {
	case err != nil:
		return nil, err
	case count < 1 || count > MaxCount:
		return nil, fmt.Errorf("%d documents: must be 1 to %d", count, int64(MaxCount))
	case l.replicas < 1:
		return nil, fmt.Errorf("%d replicas: must be positive", l.replicas)
	}
	return l, nil
}

// Document is one document of a [Load].
type Document struct {
	ID, Key string
	Body    []byte
}

// chunk is how much memory is allocated for documents at a time, in bytes.
const chunk = 256 << 10

// Part yields the documents of one part, until ctx ends. Parts are numbered from 0.
func (l *Load) Part(ctx context.Context, replica int) iter.Seq[Document] {
	return func(yield func(Document) bool) {
		keys, size := l.docs.cfg.Keys, l.docs.cfg.Size
		var room []byte
		for round := int64(0); round < l.count; round += keys {
			for k := int64(replica); k < keys && round+k < l.count; k += int64(l.replicas) {
				if l.pace.Wait(ctx) != nil {
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
