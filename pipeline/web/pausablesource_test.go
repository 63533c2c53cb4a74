package web_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pipeline/web"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/storetest"
)

func harness(h *sluicetest.Hub) storetest.SourceHarness {
	return storetest.SourceHarness{
		Connect: func(testing.TB) driver.Source { return web.NewPausableSource(h) },
		Append: func(_ context.Context, partition string, events ...*sluice.Event) error {
			h.Append(partition, events...)
			return nil
		},
		Trim: func(_ context.Context, partition string, before int64) error {
			h.Trim(partition, before)
			return nil
		},
		Recreate: func(context.Context) error {
			h.Recreate()
			return nil
		},
	}
}

func TestAPauseLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := sluicetest.NewHub(group, 1)
		gate := web.NewPausableSource(hub)
		r, err := gate.Open(t.Context(), "0", driver.Origin, 1)
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan string)
		next := func(ctx context.Context, limit int) {
			so, err := r.Read(ctx, limit)
			if err != nil {
				read <- err.Error()
				return
			}
			text := ""
			for _, e := range so {
				text += string(e.Body)
			}
			read <- text
		}
		quiet := func() {
			t.Helper()
			synctest.Wait()
			select {
			case text := <-read:
				t.Fatalf("paused, it has read %q", text)
			default:
			}
		}
		// Paused while it waits: what comes is kept.
		ctx, stop := context.WithCancel(t.Context())
		go next(ctx, 10)
		synctest.Wait()
		gate.Pause("0")
		gate.Pause("0")
		hub.Append("0", events("a", "b", "c")...)
		quiet()
		stop()
		if text := <-read; text != context.Canceled.Error() {
			t.Errorf("cancelled, it says %q", text)
		}
		if p := gate.Paused(); len(p) != 1 || p[0] != "0" {
			t.Errorf("paused are %v", p)
		}
		// Another read takes over, in smaller pieces.
		go next(t.Context(), 2)
		quiet()
		gate.Resume("0")
		gate.Resume("0")
		if text := <-read; text != "ab" {
			t.Errorf("resumed, it reads %q", text)
		}
		go next(t.Context(), 2)
		if text := <-read; text != "c" {
			t.Errorf("then %q", text)
		}
		hub.Append("0", events("d")...)
		go next(t.Context(), 2)
		if text := <-read; text != "d" {
			t.Errorf("then %q", text)
		}
		// A pause does not hold up the end.
		gate.Pause("0")
		go next(t.Context(), 1)
		quiet()
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if text := <-read; text == "" {
			t.Error("closed, it says nothing")
		}
	})
}

// TestAPausedPartitionIsKept: the lease stays, and another consumer does not
// take it.
func TestAPausedPartitionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, leases, store := sluicetest.NewHub(group, 1), new(sluicetest.Leases), new(sluicetest.Store)
		gate := web.NewPausableSource(hub)
		var counts [2]atomic.Int64
		handled := func() [2]int64 { return [2]int64{counts[0].Load(), counts[1].Load()} }
		var ended [2]chan error
		var consumers [2]*sluice.Consumer
		for i, source := range []driver.Source{gate, hub} {
			handler := sluice.Each(func(context.Context, *sluicetest.Tx, *sluice.Event) error { counts[i].Add(1); return nil })
			c, err := sluice.New(source, leases, sluice.Transactional(store, handler), nil)
			if err != nil {
				t.Fatal(err)
			}
			consumers[i], ended[i] = c, make(chan error, 1)
			go func() { ended[i] <- c.Run(context.WithoutCancel(t.Context())) }()
			time.Sleep(10 * time.Second) // the first takes it
		}
		gate.Pause("0")
		hub.Append("0", events("a", "b")...)
		time.Sleep(10 * time.Minute)
		if n := handled(); n != [2]int64{} {
			t.Errorf("paused, they have handled %v", n)
		}
		gate.Resume("0")
		time.Sleep(time.Second)
		if n := handled(); n != [2]int64{2, 0} {
			t.Errorf("resumed, they have handled %v", n)
		}
		for i, c := range consumers {
			if err := errors.Join(c.Stop(t.Context()), <-ended[i]); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestAPauseIsNotSilence: a reader that is paused is not replaced as one that is silent.
func TestAPauseIsNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := sluicetest.NewHub(group, 1)
		gate := web.NewPausableSource(hub)
		var failed, handled atomic.Int64
		handler := func(_ context.Context, _ *sluicetest.Tx, b sluice.Batch) error {
			handled.Add(int64(len(b.Events)))
			return nil
		}
		c, err := sluice.New(gate, new(sluicetest.Leases), sluice.Transactional(new(sluicetest.Store), handler), &sluice.Config{
			Observer: driver.ObserverFunc(func(o driver.Observation) {
				if o.Kind == driver.KindFailed || o.Kind == driver.KindStalled {
					failed.Add(1)
				}
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(5 * time.Second)
		gate.Pause("0")
		hub.Append("0", sluicetest.Bodies("one", "two")...)
		time.Sleep(5 * time.Minute)
		gate.Resume("0")
		time.Sleep(time.Second)
		if failed.Load() != 0 || handled.Load() != 2 {
			t.Errorf("%d failures and %d events handled, want 0 and 2", failed.Load(), handled.Load())
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		<-ran
	})
}
