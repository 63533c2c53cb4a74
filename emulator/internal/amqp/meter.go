package amqp

import "sync/atomic"

// Traffic is what a server's clients have sent it and were sent, in bytes of AMQP: frames with their headers, without what TLS and WebSockets add.
type Traffic struct {
	Received, Sent int64
}

// Traffic counts all connections since the start, closed ones included.
func (s *Server) Traffic() Traffic {
	return Traffic{Received: s.received.Load(), Sent: s.sent.Load()}
}

// IncomingStats are the messages that came over links, as the client encoded them: what their transfer frames carry, put together.
type IncomingStats struct {
	Messages int64 // a batch is one message
	Bytes    int64
	Largest  int64 // bytes of one message
	TooLarge int64 // messages refused for their size, counted above as well
}

// Meter counts what arrives on links. The zero value works. Its methods may be called concurrently.
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

// CountWith has a meter count what arrives on the link from now on. It is for the [Peer], before it has opened the link.
func (l *Incoming) CountWith(m *Meter) { l.meter = m }
