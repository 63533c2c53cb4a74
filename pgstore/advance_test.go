package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/commitproxy"
)

// every way in which a network loses a transaction.
var lost = map[string]commitproxy.Fault{"never arrives": commitproxy.CutBefore, "is not answered": commitproxy.LoseReply, "is late": commitproxy.DeliverLate}

// Whatever becomes of an advance on its way, what a rival's claim returns is
// the last word.
func TestAdvanceLost(t *testing.T) {
	for how, fault := range lost {
		t.Run(how, func(t *testing.T) {
			proxy, s, direct := proxied(t)
			a, b := lease("a", 1), lease("b", 2)
			claim(t, s, a)
			if err := s.Advance(t.Context(), a, "1", positionAt(9), nil); err != nil {
				t.Fatal(err)
			}
			proxy.Next(fault)
			if err := s.Advance(t.Context(), a, "1", positionAt(10), []driver.SequenceRange{{First: 12, Last: 12}}); err == nil || errors.Is(err, driver.ErrFenced) {
				t.Errorf("an advance that %s: got %v, want an error that is not ErrFenced", how, err)
			}
			p := claim(t, direct, b)
			if done := p.Position.Sequence == 10; done != (fault == commitproxy.LoseReply) || done != (len(p.Done) == 1) {
				t.Errorf("claimed %+v after an advance that %s", p, how)
			}
			proxy.Deliver()
			if err := s.Advance(t.Context(), a, "1", positionAt(11), nil); !errors.Is(err, driver.ErrFenced) {
				t.Errorf("an advance after the claim: got %v, want ErrFenced", err)
			}
			expect(t, direct, p.Position)
		})
	}
}

// A park that is lost has stored all letters or none, and may be repeated: at
// once or, while the server still holds what is late, after a while.
func TestParkLost(t *testing.T) {
	for how, fault := range lost {
		t.Run(how, func(t *testing.T) {
			proxy, s, direct := proxied(t)
			var deadLetters []driver.DeadLetter
			for i := range int64(5) {
				deadLetters = append(deadLetters, driver.DeadLetter{
					Group: group, Incarnation: "1", Status: driver.StatusDead, HasBody: true,
					Event: driver.Event{Partition: "0", Sequence: i, Key: fmt.Sprint(i % 2), Body: make([]byte, 3<<20)}, // more than goes at a time
				})
			}
			stored := func() int {
				t.Helper()
				numbers, err := direct.Parked(t.Context(), group, "0", "1", -1)
				if err != nil {
					t.Fatal(err)
				}
				return len(numbers)
			}
			proxy.Next(fault)
			if err := s.Park(t.Context(), deadLetters); err == nil {
				t.Errorf("a park that %s: no error", how)
			}
			want := 0
			if fault == commitproxy.LoseReply {
				want = len(deadLetters)
			}
			if n := stored(); n != want {
				t.Errorf("a park that %s has stored %d of %d letters", how, n, len(deadLetters))
			}
			if fault == commitproxy.DeliverLate {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				err := direct.Park(ctx, deadLetters)
				cancel()
				if err == nil || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a park while one that is late holds the letters: %v, want that it gives up soon", err)
				}
				proxy.Deliver()
				eventually(t, "the late park has ended", func() bool { return stored() == len(deadLetters) })
			}
			eventually(t, "they can be parked again", func() bool { return direct.Park(t.Context(), deadLetters) == nil })
			list, err := direct.List(t.Context(), group, driver.DeadLetterFilter{})
			if err != nil || len(list) != len(deadLetters) {
				t.Errorf("%d letters, %v; want %d", len(list), err, len(deadLetters))
			}
		})
	}
}
