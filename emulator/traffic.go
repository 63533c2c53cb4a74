package emulator

import (
	"strings"
	"sync"

	"github.com/sluice-go/sluice/internal/amqp"
)

// Traffic counts the bytes of AMQP on all connections since the server's start, closed
// connections included: frames with their headers, without TLS and WebSocket overhead.
type Traffic struct {
	Received int64 // from clients
	Sent     int64 // to clients
}

// IncomingStats count the messages that clients sent to an event hub, queue or topic
// since the server's start. Bytes are those of the encoded messages, which is about
// the size that a client library computes for its batches.
type IncomingStats struct {
	Messages int64 // a batch is one message
	Bytes    int64
	Largest  int64 // bytes of the largest message
	TooLarge int64 // messages that were rejected for their size; they count above, too
}

// meterSet counts incoming messages by entity, whose names are in lower case.
type meterSet struct {
	mu     sync.Mutex
	meters map[string]*amqp.Meter
}

// meter returns the meter of an entity.
func (s *meterSet) meter(entity string) *amqp.Meter {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.ToLower(entity)
	m := s.meters[key]
	if m == nil {
		if s.meters == nil {
			s.meters = make(map[string]*amqp.Meter)
		}
		m = new(amqp.Meter)
		s.meters[key] = m
	}
	return m
}

// read returns the counts of an entity. It creates no meter.
func (s *meterSet) read(entity string) IncomingStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.meters[strings.ToLower(entity)]; m != nil {
		return IncomingStats(m.Read())
	}
	return IncomingStats{}
}

// Traffic returns the bytes received from and sent to clients since the start.
func (f *namespace) Traffic() Traffic { return Traffic(f.amqp.Traffic()) }

// IncomingStats returns the counts of an event hub, queue or topic since the start,
// rejected messages included. The name is case-insensitive; for an unknown one all
// counts are zero.
func (f *namespace) IncomingStats(entity string) IncomingStats { return f.meters.read(entity) }
