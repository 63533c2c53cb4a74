package replay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// A replay has caught up when it has read to the end, although no event is there, and before the
// first event after it.
func TestSparseReplay(t *testing.T) {
	for name, log := range map[string]string{"the end has no event": "a - b - -", "only such numbers": "- - -", "events": "- a"} {
		t.Run(name, func(t *testing.T) {
			sparse(t, func(s *scene) {
				t := s.T
				s.SendSparse(log)
				r := &recollection{}
				stop := s.remember(s.Hub, r, sluice.Earliest())
				time.Sleep(5 * time.Second)
				before, _ := r.now()
				s.SendSparse("- c -")
				time.Sleep(5 * time.Second)
				memory, told := r.now()
				if want := fmt.Sprintf("caught up with %d", len(before)); len(memory) != len(before)+1 || !slices.Equal(told, []string{want}) {
					t.Errorf("in memory %v, then %v; told %q, want %q", before, memory, told, want)
				}
				if _, events, lag := s.Moved(); events != len(memory) || lag != 0 {
					t.Errorf("%d events observed, with a lag of %d", events, lag)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// sparseEnd is a log whose end is a number without an event when a replay asks for it, and which
// has further events when it is read.
type sparseEnd struct {
	driver.Source
	append func()
}

func (b *sparseEnd) Open(ctx context.Context, partition string, after driver.Position, epoch int64) (driver.Reader, error) {
	if b.append != nil {
		b.append()
		b.append = nil
	}
	return b.Source.Open(ctx, partition, after, epoch)
}

// CaughtUp comes before the events that were sent after the assignment began.
func TestSparseReplayOfALogThatGrows(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("a b - -")
		r := &recollection{}
		stop := s.remember(&sparseEnd{s.Hub, func() { s.SendSparse("- c d") }}, r, sluice.Earliest())
		time.Sleep(5 * time.Second)
		if memory, told := r.now(); !slices.Equal(memory, []int64{0, 1, 5, 6}) || !slices.Equal(told, []string{"caught up with 2"}) {
			t.Errorf("in memory %v, told %q, want CaughtUp after two events", memory, told)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// A replay starts over.
func TestTruncatedReplay(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("a b c")
		r := &recollection{}
		stop := s.remember(s.Hub, r, sluice.Earliest())
		time.Sleep(10 * time.Second)
		s.Hub.Truncate("0", 1)
		s.SendSparse("B")
		time.Sleep(time.Minute)
		memory, told := r.now()
		if !slices.Equal(memory, []int64{0, 1}) || len(told) != 3 || !strings.Contains(told[1], "the log lost events 1 to 2") {
			t.Errorf("in memory %v, told %q", memory, told)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}
