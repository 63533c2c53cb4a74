package emulator

import (
	"strings"
	"sync"

	"github.com/sluice-go/sluice/internal/amqp"
)

// linkSet holds the links of all connections, so that they can be detached.
type linkSet struct {
	mu    sync.Mutex
	links map[*amqp.Link]node
}

// add adds a link until forget is called.
func (s *linkSet) add(l *amqp.Link, n node) (forget func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.links == nil {
		s.links = make(map[*amqp.Link]node)
	}
	s.links[l] = n
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.links, l)
	}
}

func (s *linkSet) detach(entity, partition string) int {
	var found []*amqp.Link
	s.mu.Lock()
	for l, n := range s.links {
		if n.special == "" && (entity == "" || strings.EqualFold(n.entity, entity)) && (partition == "" || n.partition == partition) {
			found = append(found, l)
		}
	}
	s.mu.Unlock()
	detached := 0
	for _, l := range found {
		if l.Detach(forcedDetach(l)) {
			detached++
		}
	}
	return detached
}
