package eventhub

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/tcplink"
)

// A connection for requests that falls silent is replaced when a caller's deadline has passed, not
// after the source's own time limit.
func TestSilentRequests(t *testing.T) {
	b := newBroker(t, nil)
	link := tcplink.NewTest(t, b.Addr())
	s := b.sourceOf(strings.Replace(b.ConnectionString(), b.Addr(), link.Addr(), 1), &Config{Timeout: time.Hour})
	if _, err := s.Bounds(b.now, "0"); err != nil {
		t.Fatal(err)
	}
	link.SwallowNewest(1)
	caller, asked := overdue{b.now, make(chan struct{})}, make(chan error, 1)
	go func() { asked <- second(s.Bounds(caller, "0")) }()
	// A deadline that has passed before the request is under way says nothing about the connection.
	b.eventually("the request waits for its answer", func() bool {
		return slices.ContainsFunc(ours(), func(g string) bool {
			return strings.Contains(g, "[select]:\ngithub.com/sluice-go/sluice/eventhub.requestOnce[")
		})
	})
	close(caller.passed)
	if err := <-asked; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("bounds over a silent connection: %v", err)
	}
	ctx, cancel := context.WithTimeout(b.now, time.Minute)
	defer cancel()
	if _, err := s.Bounds(ctx, "0"); err != nil {
		t.Errorf("bounds after that: %v", err)
	}
}

// overdue is a context whose deadline passes when the test says so.
type overdue struct {
	context.Context
	passed chan struct{}
}

func (o overdue) Done() <-chan struct{} { return o.passed }

func (o overdue) Err() error {
	select {
	case <-o.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
