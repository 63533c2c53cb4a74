package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// emptier removes the records of fetch responses on their way from the broker, as a broker returns
// them that is short of memory: without an error, and with the right offsets.
type emptier struct {
	mu      sync.Mutex
	left    int // how many more responses with records are emptied; negative: all
	emptied int
}

// take reports whether a response is to be emptied.
func (e *emptier) take() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left == 0 {
		return false
	}
	e.left--
	e.emptied++
	return true
}

func (e *emptier) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.emptied
}

func (e *emptier) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &emptyingConn{Conn: conn, emptier: e, fetches: map[int32]int16{}}, nil
}

// emptyingConn is a connection whose fetch responses an emptier changes. It expects that each Write
// has whole requests.
type emptyingConn struct {
	net.Conn
	emptier *emptier
	ready   bytes.Buffer // of a response, to be read

	mu      sync.Mutex
	fetches map[int32]int16 // versions of the fetch requests without a response, by correlation id
}

func (c *emptyingConn) Write(b []byte) (int, error) {
	for rest := b; len(rest) >= 12; rest = rest[4+binary.BigEndian.Uint32(rest):] {
		if binary.BigEndian.Uint16(rest[4:]) == uint16(kmsg.Fetch) {
			c.mu.Lock()
			c.fetches[int32(binary.BigEndian.Uint32(rest[8:]))] = int16(binary.BigEndian.Uint16(rest[6:]))
			c.mu.Unlock()
		}
	}
	return c.Conn.Write(b)
}

func (c *emptyingConn) Read(b []byte) (int, error) {
	if c.ready.Len() == 0 {
		size := make([]byte, 4)
		if _, err := io.ReadFull(c.Conn, size); err != nil {
			return 0, err
		}
		frame := make([]byte, binary.BigEndian.Uint32(size))
		if _, err := io.ReadFull(c.Conn, frame); err != nil {
			return 0, err
		}
		frame = c.change(frame)
		c.ready.Write(binary.BigEndian.AppendUint32(nil, uint32(len(frame))))
		c.ready.Write(frame)
	}
	return c.ready.Read(b)
}

// change returns a response, without records if the emptier takes it.
func (c *emptyingConn) change(frame []byte) []byte {
	correlation := int32(binary.BigEndian.Uint32(frame))
	c.mu.Lock()
	version, fetch := c.fetches[correlation]
	delete(c.fetches, correlation)
	c.mu.Unlock()
	if !fetch {
		return frame
	}
	header := 4
	if version >= 12 { // a flexible version has tags
		header = 5
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = version
	if resp.ReadFrom(frame[header:]) != nil {
		return frame
	}
	records := false
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			records = records || len(resp.Topics[i].Partitions[j].RecordBatches) > 0
		}
	}
	if !records || !c.emptier.take() {
		return frame
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			resp.Topics[i].Partitions[j].RecordBatches = []byte{}
		}
	}
	return resp.AppendTo(frame[:header:header])
}
