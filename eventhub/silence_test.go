package eventhub

import (
	"context"
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
	bounds := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(b.now, within)
		defer cancel()
		_, err := s.Bounds(ctx, "0")
		return err
	}
	if err := bounds(100 * time.Millisecond); err == nil {
		t.Error("bounds over a silent connection: no error")
	}
	if err := bounds(10 * time.Second); err != nil {
		t.Errorf("bounds after that: %v", err)
	}
}
