package amqp

import "sync/atomic"

// Traffic counts bytes of AMQP that a server received and sent: frames with their headers, without
// the overhead of TLS and WebSockets.
type Traffic struct {
	Received, Sent int64
}

// Traffic returns the bytes of all connections since the start, including closed ones.
func (s *Server) Traffic() Traffic {
	return Traffic{Received: s.received.Load(), Sent: s.sent.Load()}
}

// IncomingStats counts messages received on links. Sizes are those of the encoded message, the
// payloads of its transfer frames together.
type IncomingStats struct {
	Messages int64 // a batch is one message
	Bytes    int64
	Largest  int64 // bytes of one message
	TooLarge int64 // messages rejected because of their size, included in the fields above
}

// Meter counts the messages received on links. The zero value works. Its methods may be called
// concurrently.
type Meter struct {
	messages, bytes, largest, tooLarge atomic.Int64
}

// Read returns the counts so far.
func (m *Meter) Read() IncomingStats {
	return IncomingStats{Messages: m.messages.Load(), Bytes: m.bytes.Load(), Largest: m.largest.Load(), TooLarge: m.tooLarge.Load()}
}

func (m *Meter) count(size int, tooLarge bool) {
	m.messages.Add(1)
	m.bytes.Add(int64(size))
	for {
		if old := m.largest.Load(); int64(size) <= old || m.largest.CompareAndSwap(old, int64(size)) {
			break
		}
	}
	if tooLarge {
		m.tooLarge.Add(1)
	}
}

// CountWith makes a meter count the messages received on the link. Only the [Peer] calls it, while
// it opens the link.
func (l *Incoming) CountWith(m *Meter) { l.meter = m }
