package blobstore_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
)

// silence holds a request back until its context ends.
func silence(r *http.Request) error {
	<-r.Context().Done()
	return r.Context().Err()
}

// A server that falls silent in the middle of a call does not make it outlive its deadline by what
// it would clean up.
func TestSilentInTheMiddle(t *testing.T) {
	for _, c := range []struct {
		name, last string // the last kind of request that is answered
		call       func(ctx context.Context, s *blobstore.Store) error
	}{
		{"Acquire", "acquire", func(ctx context.Context, s *blobstore.Store) error {
			_, err := s.Leases().Acquire(ctx, group, "0", "a", blobstore.MinLease, 0)
			return err
		}},
		{"Park", "put", func(ctx context.Context, s *blobstore.Store) error {
			return s.Park(ctx, []driver.DeadLetter{{
				Group: group, Incarnation: "1", Status: driver.StatusDead, HasBody: true,
				Event: driver.Event{Partition: "0", Sequence: 1, Body: []byte("body")},
			}})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for within := 500 * time.Millisecond; ; within *= 4 { // a busy machine may need longer until the silence
				var armed, silent atomic.Bool
				w := &wire{
					onRequest: func(r *http.Request) error {
						if silent.Load() {
							return silence(r)
						}
						return nil
					},
					onResponse: func(r *http.Request, _ int) error {
						if armed.Load() && kind(r) == c.last {
							silent.Store(true)
						}
						return nil
					},
				}
				s := newPlace(t).openThrough(t, w, -1)
				armed.Store(true)
				ctx, cancel := context.WithTimeout(t.Context(), within)
				began := time.Now()
				err := c.call(ctx, s)
				took := time.Since(began)
				cancel()
				if err != nil && took <= within+2500*time.Millisecond && silent.Load() {
					break
				}
				if err == nil || within > 5*time.Second {
					t.Fatalf("returned %v after %v, want an error soon after %v", err, took, within)
				}
			}
		})
	}
}

// A connection that falls silent costs one try of a request, not the whole time that the engine
// allows for it.
func TestSilentConnection(t *testing.T) {
	parallel(t)
	const allowed = 10 * time.Second // a third of the default lease
	var first atomic.Bool
	var try atomic.Int64
	w := &wire{onRequest: func(r *http.Request) error {
		if first.CompareAndSwap(true, false) {
			if end, ok := r.Context().Deadline(); ok {
				try.Store(int64(time.Until(end)))
			}
			return silence(r)
		}
		return nil
	}}
	p := newPlace(t)
	s, err := blobstore.Open(t.Context(), p.name, &blobstore.Config{ConnectionString: p.connection, Client: transportOf(w)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*allowed) // a busy machine may answer late
	defer cancel()
	first.Store(true)
	if _, err := s.Read(ctx, group); err != nil || first.Load() {
		t.Errorf("read over a connection that fell silent: %v", err)
	}
	if d := time.Duration(try.Load()); d <= 0 || d > allowed/2 {
		t.Errorf("a try may take %v, want at most half of the %v that the engine allows", d, allowed)
	}
}
