package sqlstore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// Who writes without a break makes one after each turn; who does not, does not.
func TestTurnsTaken(t *testing.T) {
	for _, c := range []struct {
		name               string
		transaction, pause time.Duration
		breaks             time.Duration
	}{
		{"short, without a break", 10 * time.Millisecond, 0, 4 * interval},
		{"long, without a break", time.Second, 0, 99 * interval},
		{"short, with breaks", 10 * time.Millisecond, interval, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var turns turns
			began := time.Now()
			for i := range 100 {
				if i > 0 {
					clock.Sleep(t.Context(), c.pause)
				}
				if err := turns.take(t.Context()); err != nil {
					t.Fatal(err)
				}
				clock.Sleep(t.Context(), c.transaction)
				turns.end()
			}
			if got := time.Since(began) - 100*c.transaction - 99*c.pause; got != c.breaks {
				t.Errorf("%s: breaks of %v, want %v", c.name, got, c.breaks)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			turns.began = time.Now().Add(-turn)
			turns.end()
			if err := turns.take(ctx); err == nil {
				t.Errorf("%s: a break with a cancelled context: no error", c.name)
			}
		})
	}
}

// One process that writes without a break does not keep another one out.
func TestTurns(t *testing.T) {
	need.RealTime(t)
	busy, other := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	first := make(chan struct{})
	go func() {
		l := leaseOf("busy", "a", 1)
		p, err := busy.Claim(ctx, l, "i")
		for n := int64(0); err == nil; n++ {
			next := positionAt(n)
			err = busy.Commit(ctx, driver.Step{Lease: l, From: p.Position, To: next}, func(ctx context.Context, tx *Tx) error {
				return tx.Insert(ctx, "effects", []string{"key", "part"}, rowsOf(fmt.Sprint(n), 2000, 100))
			})
			if p.Position = next; n == 0 {
				close(first)
			}
		}
		stopped <- err
	}()
	<-first
	began := time.Now()
	const claims = 5
	for i := range claims {
		if _, err := other.Claim(ctx, leaseOf("other", "b", int64(i+1)), "i"); err != nil {
			t.Errorf("claim beside a process that writes without a break: %v", err)
		}
	}
	if took := time.Since(began); took > claims*10*turn {
		t.Errorf("%d claims beside a process that writes without a break took %v", claims, took)
	}
	cancel()
	if err := <-stopped; ctx.Err() == nil {
		t.Errorf("the busy one stopped: %v", err)
	}
}
