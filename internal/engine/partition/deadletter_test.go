package partition_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// The texts of an event count against the limit of a dead letter. What is over it is read
// from the log at a redrive.
func TestDeadLetterBoundsTexts(t *testing.T) {
	stage(t, 1, func(s *scene) {
		long := strings.Repeat("é", 512<<10)
		s.Hub.Append("0",
			&sluice.Event{MessageID: long, Body: []byte("bad")}, &sluice.Event{CorrelationID: long, Body: []byte("bad")},
			&sluice.Event{ContentType: long, Body: []byte("bad")}, &sluice.Event{MessageID: strings.Repeat("i", 5<<10), Body: []byte("bad")},
			&sluice.Event{MessageID: "m", Key: "k", Body: []byte("bad")})
		mended, whole := false, 0
		_, end := s.Consume("a", sluice.Each(func(_ context.Context, _ *sluicetest.Tx, e *sluice.Event) error {
			if !mended {
				return driver.Reject(errors.New("no"))
			}
			if len(e.MessageID)+len(e.CorrelationID)+len(e.ContentType) >= 5<<10 {
				whole++
			}
			return nil
		}), sluice.Config{})
		time.Sleep(time.Minute)
		list := s.Letters()
		if len(list) != 5 {
			t.Fatalf("%d dead letters, want 5", len(list))
		}
		for _, l := range list {
			if n := len(l.Event.MessageID) + len(l.Event.CorrelationID) + len(l.Event.ContentType); n > 5<<10 {
				t.Errorf("dead letter %d holds texts of %d bytes", l.ID, n)
			}
			if small := l.Event.MessageID == "m"; l.HasBody != small {
				t.Errorf("dead letter %d has its body: %v, want %v", l.ID, l.HasBody, small)
			}
		}
		mended = true
		s.RedriveAll()
		time.Sleep(time.Minute)
		end()
		if n := len(s.Letters()); n > 0 || whole != 4 {
			t.Errorf("%d dead letters are left, and %d were redriven with their texts, want 0 and 4", n, whole)
		}
	})
}
