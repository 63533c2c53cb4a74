package cosmosdb

import (
	"errors"
	"math/bits"
	"sync"
)

// A ref is the address of a block in an arena: the chunk and the offset in it. 0 is
// none.
type ref uint64

const (
	chunkBits = 26 // 64 MiB
	chunkSize = 1 << chunkBits
	maxChunks = 800 // 50 GiB, what a physical partition holds on Azure
	minBlock  = 64
)

var errFull = errors.New("the partition's memory is full")

// arena allocates blocks of memory outside of the Go heap, so that millions of
// documents don't slow down the garbage collector. Freed blocks are reused for the same
// size.
type arena struct {
	mu        sync.Mutex
	chunks    [maxChunks][]byte // an entry is set before the first ref to it exists
	used      int               // of chunks
	offset    int               // offset of the free part of the last chunk
	free      map[int][]ref     // by size
	allocated int64             // bytes
	closed    bool
}

// blockSize rounds a size up, so that freed blocks can be reused: to 64 bytes or an
// eighth, whichever is more.
func blockSize(n int) int {
	step := minBlock
	if n > 8*minBlock {
		step = 1 << (bits.Len(uint(n-1)) - 4)
	}
	return (n + step - 1) &^ (step - 1)
}

// alloc returns a block of at least n bytes.
func (h *arena) alloc(n int) (ref, error) {
	n = blockSize(n)
	h.mu.Lock()
	defer h.mu.Unlock()
	if list := h.free[n]; len(list) > 0 {
		r := list[len(list)-1]
		h.free[n] = list[:len(list)-1]
		h.allocated += int64(n)
		return r, nil
	}
	if h.used == 0 || h.offset+n > chunkSize {
		if h.used == maxChunks || h.closed {
			return 0, errFull
		}
		c, err := mapMemory(chunkSize)
		if err != nil {
			return 0, errFull
		}
		h.chunks[h.used] = c
		h.used++
		h.offset = minBlock // so that no ref is 0
	}
	r := ref((h.used-1)<<chunkBits | h.offset)
	h.offset += n
	h.allocated += int64(n)
	return r, nil
}

func (h *arena) release(r ref, n int) {
	n = blockSize(n)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.free == nil {
		h.free = make(map[int][]ref)
	}
	h.free[n] = append(h.free[n], r)
	h.allocated -= int64(n)
}

// bytes returns the memory from r on. The lock of the partition that r belongs to is
// held.
func (h *arena) bytes(r ref) []byte { return h.chunks[r>>chunkBits][r&(chunkSize-1):] }

func (h *arena) size() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.allocated
}

// close frees the memory. No ref may be used any more.
func (h *arena) close() error {
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
