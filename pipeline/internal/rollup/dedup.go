package rollup

import (
	"time"

	"github.com/sluice-go/sluice/stamp"
)

// pageBits is the number of sequence numbers in a page. It is small, so that sparse
// ids take little memory.
const pageBits = 512

type pageKey struct {
	source, partition string
	n                 int
	page              int64
}

type page struct {
	bits [pageBits / 64]uint64
	last time.Time // the latest enqueued time of its events
}

// size returns about what a page takes in memory with its key.
func (k *pageKey) size() int64 { return int64(pageBytes + len(k.source) + len(k.partition)) }

// dedup is the set of ids that were counted, one bit each where they are dense.
type dedup struct {
	pages map[pageKey]*page
	bytes int64 // about what they take in memory
}

// add adds an id, and reports whether it was new. keep charges what that takes before.
func (s *dedup) add(id stamp.CausationID, enqueued time.Time, keep func(bytes int64) error) (added bool, err error) {
	key := pageKey{id.Source, id.Partition, id.N, id.Sequence / pageBits}
	p := s.pages[key]
	if p == nil {
		if err := keep(key.size()); err != nil {
			return false, err
		}
		p = &page{}
		s.pages[key] = p
		s.bytes += key.size()
	}
	word, bit := id.Sequence%pageBits/64, uint64(1)<<(id.Sequence%64)
	if p.bits[word]&bit != 0 {
		return false, nil
	}
	p.bits[word] |= bit
	if enqueued.After(p.last) {
		p.last = enqueued
	}
	return true, nil
}

// expire removes the pages whose events were all enqueued before a time.
func (s *dedup) expire(before time.Time) {
	for key, p := range s.pages {
		if p.last.Before(before) {
			s.bytes -= key.size()
			delete(s.pages, key)
		}
	}
}
