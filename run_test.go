package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// closingHub is a log whose source can be closed.
type closingHub struct {
	*sluicetest.Hub
	closed atomic.Int32
}

func (c *closingHub) Close(context.Context) error { c.closed.Add(1); return nil }

// runScene is a consumer of one event, whose handler takes its time.
type runScene struct {
	hub    *closingHub
	leases *enginetest.Ledger
	store  *sluicetest.Store
	begun  chan struct{}
}

// consumer makes a consumer. Its handler is done after a time, or when its context ends unless it
// is deaf.
func (s *runScene) consumer(takes time.Duration, deaf bool) *sluice.Consumer {
	s.hub, s.leases, s.store = &closingHub{Hub: sluicetest.NewHub(enginetest.Group, 1)}, enginetest.NewLedger(), &sluicetest.Store{}
	s.begun = make(chan struct{}, 9)
	s.hub.Append("0", sluicetest.Bodies("a")...)
	handler := sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
		s.begun <- struct{}{}
		ended := ctx.Done()
		if deaf {
			ended = nil
		}
		select {
		case <-time.After(takes):
			return tx.Insert("rows", string(e.Body))
		case <-ended:
			return ctx.Err()
		}
	})
	return enginetest.Must(sluice.New(s.hub, s.leases, sluice.Transactional(s.store, handler), &sluice.Config{Owner: "a"}))
}

// The end of the context finishes what is in progress, within the grace period.
func TestRunStops(t *testing.T) {
	for _, test := range []struct {
		name  string
		takes time.Duration
		deaf  bool
		want  string // of the error
		rows  int
	}{
		{"clean", 20 * time.Second, false, "", 1},
		{"cancelled", time.Hour, false, "topic events, group $Default: stop: context deadline exceeded: not finished within 30s: was cancelled: partition 0: handler has not returned", 0},
		{"deaf", time.Minute, true, "topic events, group $Default: stop: context deadline exceeded: not finished within 30s: does not end: partition 0: handler has not returned", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var slow, idle runScene
				ctx, cancel := context.WithCancel(t.Context())
				ran := make(chan error, 1)
				a, b := slow.consumer(test.takes, test.deaf), idle.consumer(0, false)
				go func() { ran <- sluice.Run(ctx, 30*time.Second, a, b) }()
				<-slow.begun
				cancel()
				err := <-ran
				if text := ""; err != nil && err.Error() != test.want || (err == nil) != (test.want == text) {
					t.Errorf("%v, want %q", err, test.want)
				}
				if test.want != "" && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v is no deadline", err)
				}
				if n := len(slow.store.Rows("rows")); n != test.rows {
					t.Errorf("%d rows, want %d", n, test.rows)
				}
				if n := slow.leases.Holders(t)["a"]; n != 0 && !test.deaf {
					t.Errorf("%d leases are held", n)
				}
				if slow.hub.closed.Load() != 1 || idle.hub.closed.Load() != 1 {
					t.Error("a source is not closed")
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

// refusingHub refuses to describe its topic after a time.
type refusingHub struct {
	*sluicetest.Hub
	why error
}

func (r refusingHub) Describe(context.Context) (sluice.Topic, error) {
	time.Sleep(time.Minute)
	return sluice.Topic{}, r.why
}

type refusal struct{ text string }

func (r *refusal) Error() string        { return r.text }
func (r *refusal) Is(target error) bool { return target == driver.ErrRefused }

// A consumer that fails stops the others, which finish what is in progress.
func TestRunFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow runScene
		refused := func(why string) *sluice.Consumer {
			return enginetest.Must(sluice.New(refusingHub{sluicetest.NewHub(enginetest.Group, 1), &refusal{why}}, enginetest.NewLedger(),
				sluice.Transactional(&sluicetest.Store{}, enginetest.Nothing), nil))
		}
		lost := refused("no such hub")
		err := sluice.Run(t.Context(), time.Hour, slow.consumer(10*time.Minute, false), lost)
		if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "no such hub") || strings.Contains(err.Error(), "stop") {
			t.Errorf("error: %v", err)
		}
		// Those that cannot run again fail whatever the others do.
		err = sluice.Run(t.Context(), time.Hour, lost, lost, lost)
		if err == nil || strings.Count(err.Error(), "has run already") != 3 {
			t.Errorf("error: %v, want those of all three", err)
		}
		if n := len(slow.store.Rows("rows")); n != 1 {
			t.Errorf("%d rows of the consumer that was stopped", n)
		}
		for _, grace := range []time.Duration{0, -1} {
			if err := sluice.Run(t.Context(), grace, slow.consumer(0, false)); err == nil {
				t.Errorf("a grace period of %v is accepted", grace)
			}
		}
		if err := sluice.Run(t.Context(), time.Second, nil); err == nil {
			t.Error("nil is accepted as a consumer")
		}
		if err := sluice.Run(t.Context(), time.Second); fmt.Sprint(err) != "run: no consumer: pass at least one that New made" {
			t.Errorf("without consumers: %v", err)
		}
	})
}

// A second signal ends the grace period.
func TestRunSecondSignal(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM) // for good: a late one must not end the tests
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	var slow runScene
	c := slow.consumer(time.Hour, false)
	ran := make(chan error, 1)
	go func() { ran <- sluice.Run(ctx, time.Hour, c) }()
	<-slow.begun
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for {
		if err := self.Signal(syscall.SIGTERM); err != nil {
			t.Skip("this system sends no signals:", err)
		}
		select {
		case err := <-ran:
			if err == nil || !strings.Contains(err.Error(), "terminated signal received: was cancelled: partition 0: handler has not returned") {
				t.Errorf("error: %v", err)
			}
			return
		default:
			runtime.Gosched()
		}
	}
}
