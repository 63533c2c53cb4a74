package sluicetest

import (
	"sync"
	"testing"

	"github.com/sluice-go/sluice/storetest"
)

// silentServer answers no request of a broken driver while it is silent, whatever the deadline is.
type silentServer struct {
	mu     sync.Mutex
	silent chan struct{} // closed at the end of the silence; nil while it answers
}

var _ storetest.Silence = new(silentServer).begin

func (s *silentServer) begin(testing.TB) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = make(chan struct{})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.silent)
		s.silent = nil
	}
}

// isSilent reports whether the server is silent.
func (s *silentServer) isSilent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent != nil
}

// await waits for the end of the silence.
func (s *silentServer) await() {
	s.mu.Lock()
	silent := s.silent
	s.mu.Unlock()
	if silent != nil {
		<-silent
	}
}
