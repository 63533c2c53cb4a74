package amqp

import (
	"math/bits"
	"sync"
)

// Buffers of messages received come from pools, one for each size of [bufferSizes], so that small
// messages don't occupy large buffers. A buffer that had to grow goes back to the pool below its
// capacity.
var (
	bufferSizes = [...]int{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10}
	buffers     [len(bufferSizes)]sync.Pool
)

// bufferClass is the index of the smallest size of at least n, or of the largest size.
func bufferClass(n int) int {
	return min(max(bits.Len(uint(max(n, 1)-1))-9, 0)/2, len(bufferSizes)-1)
}

// bufferSize is the size of the buffer for a message that begins with n bytes. One of several
// transfers gets a large buffer, unless the connection has many of those, or isn't trusted.
func (c *Conn) bufferSize(more bool, n int) int {
	if largest := bufferSizes[len(bufferSizes)-1]; more && c.trusted.Load() && c.partialBytes+largest <= c.cfg.MaxBuffered/2 {
		return largest
	}
	return n
}

func newBuffer(n int) *[]byte {
	class := bufferClass(n)
	if b, ok := buffers[class].Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, bufferSizes[class])
	return &b
}

func (d *Delivery) free() {
	if d.buf == nil {
		return
	}
	*d.buf = (*d.buf)[:0]
	class := bufferClass(cap(*d.buf))
	if bufferSizes[class] > cap(*d.buf) {
		class--
	}
	buffers[class].Put(d.buf)
	d.buf, d.Payload = nil, nil
}
