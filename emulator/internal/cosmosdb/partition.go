package cosmosdb

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/sluice-go/sluice/internal/partitionkey"
)

// partition is a physical partition: the documents whose keys hash into a range.
type partition struct {
	id         string
	bounds     partitionkey.Range
	parents    []string // the ranges that were split to get this one, oldest first
	generation uint64   // in which generation of the container's ranges
	budget     budget

	mu     sync.Mutex
	gone   bool // the partition was split or deleted
	arena  *arena
	index  map[uint64]ref // by hash of key and id; records of the same hash are linked
	order  documentOrder
	unique *uniqueIndex
	bytes  int64 // of the documents as clients sent them
	writes int64
	swept  swept
}

func newPartition(id string, bounds partitionkey.Range, h *arena, unique []uniqueKey) *partition {
	return &partition{id: id, bounds: bounds, arena: h, index: make(map[uint64]ref), unique: newUniqueIndex(unique)}
}

// record is a document in memory: a header of numbers, then its key, its id and its
// body, which is the object without its closing brace and without system properties.
type record []byte

const (
	atNext    = 0  // ref of the next record of the same hash
	atNumber  = 8  // the document's, for _rid
	atVersion = 16 // for _etag
	atTime    = 24 // seconds
	atBody    = 28 // length
	atSize    = 32 // as the client sent it
	atKey     = 36 // length
	atID      = 38 // length
	atValues  = 40
	atTTL     = 42 // seconds, 0: the container's
	recordTop = 46
)

func (r record) next() ref       { return ref(binary.LittleEndian.Uint64(r[atNext:])) }
func (r record) number() uint64  { return binary.LittleEndian.Uint64(r[atNumber:]) }
func (r record) version() uint64 { return binary.LittleEndian.Uint64(r[atVersion:]) }
func (r record) seconds() uint32 { return binary.LittleEndian.Uint32(r[atTime:]) }
func (r record) size() int       { return int(binary.LittleEndian.Uint32(r[atSize:])) }
func (r record) values() int     { return int(binary.LittleEndian.Uint16(r[atValues:])) }
func (r record) ttl() int32      { return int32(binary.LittleEndian.Uint32(r[atTTL:])) }
func (r record) bodyLen() int    { return int(binary.LittleEndian.Uint32(r[atBody:])) }
func (r record) keyLen() int     { return int(binary.LittleEndian.Uint16(r[atKey:])) }
func (r record) idLen() int      { return int(binary.LittleEndian.Uint16(r[atID:])) }
func (r record) key() []byte     { return r[recordTop:][:r.keyLen()] }
func (r record) id() []byte      { return r[recordTop+r.keyLen():][:r.idLen()] }
func (r record) body() []byte    { return r[recordTop+r.keyLen()+r.idLen():][:r.bodyLen()] }
func (r record) length() int     { return recordTop + r.keyLen() + r.idLen() + r.bodyLen() }

func (r record) setNext(n ref) { binary.LittleEndian.PutUint64(r[atNext:], uint64(n)) }

func (r record) fill(d *document, number, version uint64, seconds uint32) {
	binary.LittleEndian.PutUint64(r[atNumber:], number)
	binary.LittleEndian.PutUint64(r[atVersion:], version)
	binary.LittleEndian.PutUint32(r[atTime:], seconds)
	binary.LittleEndian.PutUint32(r[atBody:], uint32(len(d.body)))
	binary.LittleEndian.PutUint32(r[atSize:], uint32(d.size))
	binary.LittleEndian.PutUint16(r[atKey:], uint16(len(d.keyText)))
	binary.LittleEndian.PutUint16(r[atID:], uint16(len(d.id)))
	binary.LittleEndian.PutUint16(r[atValues:], uint16(d.values))
	binary.LittleEndian.PutUint32(r[atTTL:], uint32(d.ttl))
	n := copy(r[recordTop:], d.keyText)
	n += copy(r[recordTop+n:], d.id)
	copy(r[recordTop+n:], d.body)
}

func recordLen(d *document) int { return recordTop + len(d.keyText) + len(d.id) + len(d.body) }

var seed = maphash.MakeSeed()

func hashOf(key, id []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.Write(key)
	_, _ = h.Write(id)
	return h.Sum64()
}

func (p *partition) record(r ref) record { return record(p.arena.bytes(r)) }

// find returns the record with a key and an id. p.mu is held, as for the methods below.
func (p *partition) find(hash uint64, key, id []byte) (ref, record) {
	for r := p.index[hash]; r != 0; {
		rec := p.record(r)
		if bytes.Equal(rec.id(), id) && bytes.Equal(rec.key(), key) {
			return r, rec
		}
		r = rec.next()
	}
	return 0, nil
}

// insert adds a document that doesn't exist.
func (p *partition) insert(hash uint64, d *document, number, version uint64, seconds uint32) (record, error) {
	r, err := p.arena.alloc(recordLen(d))
	if err != nil {
		return nil, err
	}
	rec := p.record(r)
	rec.fill(d, number, version, seconds)
	p.link(hash, r, rec)
	p.order.add(number, r)
	p.unique.add(rec)
	p.bytes += int64(d.size)
	return rec, nil
}

func (p *partition) link(hash uint64, r ref, rec record) {
	rec.setNext(p.index[hash])
	p.index[hash] = r
}

func (p *partition) unlink(hash uint64, r ref) {
	next := p.record(r).next()
	if first := p.index[hash]; first == r {
		if next == 0 {
			delete(p.index, hash)
		} else {
			p.index[hash] = next
		}
		return
	}
	for at := p.index[hash]; at != 0; {
		rec := p.record(at)
		if rec.next() == r {
			rec.setNext(next)
			return
		}
		at = rec.next()
	}
}

// replace replaces the document at r by one with the same id and key.
func (p *partition) replace(hash uint64, r ref, d *document, version uint64, seconds uint32) (record, error) {
	old := p.record(r)
	number, length, size := old.number(), old.length(), old.size()
	if blockSize(length) != blockSize(recordLen(d)) {
		fresh, err := p.arena.alloc(recordLen(d))
		if err != nil {
			return nil, err
		}
		p.unique.remove(old)
		p.unlink(hash, r)
		p.arena.release(r, length)
		p.link(hash, fresh, p.record(fresh))
		p.order.set(number, fresh)
		r = fresh
	} else {
		p.unique.remove(old)
	}
	rec := p.record(r)
	rec.fill(d, number, version, seconds)
	p.unique.add(rec)
	p.bytes += int64(d.size - size)
	return rec, nil
}

// remove deletes the document at r.
func (p *partition) remove(hash uint64, r ref) {
	rec := p.record(r)
	p.bytes -= int64(rec.size())
	p.unique.remove(rec)
	p.order.drop(rec.number())
	p.unlink(hash, r)
	p.arena.release(r, rec.length())
}

// documentOrder holds a partition's documents in the order of creation, which is that
// of their numbers. Deleted ones leave holes until there are too many.
type documentOrder struct {
	chunks [][]place
	live   int
	holes  int
}

type place struct {
	number uint64
	ref    ref // 0: deleted
}

const placesPerChunk = 4096

func (o *documentOrder) add(number uint64, r ref) {
	if n := len(o.chunks); n == 0 || len(o.chunks[n-1]) == placesPerChunk {
		size := placesPerChunk
		if n == 0 {
			size = 16 // most containers in tests are small
		}
		o.chunks = append(o.chunks, make([]place, 0, size))
	}
	last := &o.chunks[len(o.chunks)-1]
	*last = append(*last, place{number, r})
	o.live++
}

// seek returns the position of the first document with that number or a higher one.
func (o *documentOrder) seek(number uint64) (chunk, i int) {
	chunk = search(len(o.chunks), func(i int) bool { c := o.chunks[i]; return c[len(c)-1].number >= number })
	if chunk == len(o.chunks) {
		return chunk, 0
	}
	c := o.chunks[chunk]
	return chunk, search(len(c), func(i int) bool { return c[i].number >= number })
}

// find returns the document with that number, 0 if there is none.
func (o *documentOrder) find(number uint64) ref {
	if c, i := o.seek(number); c < len(o.chunks) && o.chunks[c][i].number == number {
		return o.chunks[c][i].ref
	}
	return 0
}

// search is sort.Search, but can be inlined, because every upsert calls it.
func search(n int, f func(int) bool) int {
	i, j := 0, n
	for i < j {
		if h := int(uint(i+j) >> 1); !f(h) {
			i = h + 1
		} else {
			j = h
		}
	}
	return i
}

func (o *documentOrder) set(number uint64, r ref) {
	c, i := o.seek(number)
	o.chunks[c][i].ref = r
}

func (o *documentOrder) drop(number uint64) {
	o.set(number, 0)
	o.live--
	if o.holes++; o.holes <= placesPerChunk || o.holes <= o.live {
		return
	}
	var dense documentOrder
	for _, c := range o.chunks {
		for _, pl := range c {
			if pl.ref != 0 {
				dense.add(pl.number, pl.ref)
			}
		}
	}
	*o = dense
}

// restore adds a deleted document again: in its hole, or where that was.
func (o *documentOrder) restore(number uint64, r ref) {
	o.live++
	c, i := o.seek(number)
	if c < len(o.chunks) && o.chunks[c][i].number == number {
		o.chunks[c][i].ref = r
		o.holes--
		return
	}
	if c == len(o.chunks) {
		o.live--
		o.add(number, r)
		return
	}
	o.chunks[c] = slices.Insert(o.chunks[c], i, place{number, r})
}

// each calls f with the documents whose numbers are above after, until f returns false.
func (o *documentOrder) each(after uint64, f func(ref) bool) {
	c, i := o.seek(after + 1)
	for ; c < len(o.chunks); c, i = c+1, 0 {
		for _, pl := range o.chunks[c][i:] {
			if pl.ref != 0 && !f(pl.ref) {
				return
			}
		}
	}
}
