package cosmosdb

import (
	"errors"
	"math/bits"
	"sync"
)

// A ref is the place of a block in a heap: its chunk and the offset therein. 0 is none.
type ref uint64

const (
	chunkBits = 26 // 64 MiB
	chunkSize = 1 << chunkBits
	maxChunks = 800 // 50 GiB, what a physical partition holds on Azure
	minBlock  = 64
)

var errFull = errors.New("the partition's memory is full")

// heap gives out blocks of memory that the garbage collector doesn't know of: millions of documents cost it nothing. Blocks that were freed are
// given out again for their size.
type heap struct {
	mu     sync.Mutex
	chunks [maxChunks][]byte // an entry is written before the first ref to it is given out
	used   int               // of chunks
	at     int               // where the last chunk is free
	free   map[int][]ref     // by size
	taken  int64             // bytes
	closed bool
}

// blockSize rounds up, so that a block that was freed fits again: to 64 bytes, and to an eighth where that is more.
func blockSize(n int) int {
	step := minBlock
	if n > 8*minBlock {
		step = 1 << (bits.Len(uint(n-1)) - 4)
	}
	return (n + step - 1) &^ (step - 1)
}

// alloc returns a block of at least n bytes, and how many there are.
func (h *heap) alloc(n int) (ref, error) {
	n = blockSize(n)
	h.mu.Lock()
	defer h.mu.Unlock()
	if list := h.free[n]; len(list) > 0 {
		r := list[len(list)-1]
		h.free[n] = list[:len(list)-1]
		h.taken += int64(n)
		return r, nil
	}
	if h.used == 0 || h.at+n > chunkSize {
		if h.used == maxChunks || h.closed {
			return 0, errFull
		}
		c, err := mapMemory(chunkSize)
		if err != nil {
			return 0, errFull
		}
		h.chunks[h.used] = c
		h.used++
		h.at = minBlock // so that no ref is 0
	}
	r := ref((h.used-1)<<chunkBits | h.at)
	h.at += n
	h.taken += int64(n)
	return r, nil
}

func (h *heap) release(r ref, n int) {
	n = blockSize(n)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.free == nil {
		h.free = make(map[int][]ref)
	}
	h.free[n] = append(h.free[n], r)
	h.taken -= int64(n)
}

// at is the memory from r on. It is for the holder of the lock of the partition that r belongs to.
func (h *heap) bytes(r ref) []byte { return h.chunks[r>>chunkBits][r&(chunkSize-1):] }

func (h *heap) size() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.taken
}

// close gives the memory back. No ref may be used any more.
func (h *heap) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	var errs []error
	for i := range h.used {
		errs = append(errs, unmapMemory(h.chunks[i]))
		h.chunks[i] = nil
	}
	return errors.Join(errs...)
}
