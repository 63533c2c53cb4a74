package emulator

import (
	"strings"
	"sync"

	"github.com/sluice-go/sluice/emulator/internal/amqp"
)

// Wire is what clients have sent a server and were sent over all connections since its start, in bytes of AMQP: frames with their headers,
// without what TLS and WebSockets add.
type Wire = amqp.Traffic

// Arrivals are the messages and batches that arrived for an event hub, a queue or a topic, as the client encoded them: what a client's
// batch says of its own size is about this.
type Arrivals = amqp.IncomingStats

// meterSet is what has arrived, by entity in lower case.
type meterSet struct {
	mu     sync.Mutex
	meters map[string]*amqp.Meter
}

// of is the meter of an entity.
func (s *meterSet) of(entity string) *amqp.Meter {
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

// read is what has arrived for an entity. To ask makes no entry.
func (s *meterSet) read(entity string) Arrivals {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.meters[strings.ToLower(entity)]; m != nil {
		return m.Read()
	}
	return Arrivals{}
}

// Wire returns the bytes that clients have sent and were sent.
func (f *front) Wire() Wire { return f.amqp.Traffic() }

// Arrivals returns what has arrived since the start for an event hub, a queue or a topic, also what was refused.
func (f *front) Arrivals(entity string) Arrivals { return f.meters.read(entity) }
