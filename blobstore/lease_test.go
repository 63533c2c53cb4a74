package blobstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
)

// Lengths that Azure does not grant are refused before anything is asked for.
func TestLeaseLengths(t *testing.T) {
	p := newPlace(t)
	w := &wire{}
	s := p.openThrough(t, w, 0)
	asked := len(w.log())
	for _, ttl := range []time.Duration{-1, 0, time.Second, 14_999 * time.Millisecond, 61 * time.Second, time.Hour} {
		_, err := s.Leases().Acquire(t.Context(), group, "0", "a", ttl, 0)
		for what, err := range map[string]error{
			"acquire": err, "check": blobstore.CheckLease(ttl),
			"renew": s.Leases().Renew(t.Context(), driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: 1}, ttl),
		} {
			if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "15 s to 60 s") || !strings.Contains(err.Error(), ttl.String()) {
				t.Errorf("%s for %v: %v", what, ttl, err)
			}
		}
	}
	if got := w.log(); len(got) != asked {
		t.Errorf("asked for %q", got[asked:])
	}
	for _, ttl := range []time.Duration{blobstore.MinLease, 15_500 * time.Millisecond, blobstore.MaxLease} {
		if err := blobstore.CheckLease(ttl); err != nil {
			t.Error(err)
		}
		began := time.Now()
		l, err := s.Leases().Acquire(t.Context(), group, "0", "a", ttl, 0)
		if err != nil {
			t.Fatal(err)
		}
		// The server's times are whole seconds.
		if left := leaseInfo(t, s).Remaining; left < ttl-time.Since(began)-2*time.Second || left > ttl+time.Second {
			t.Errorf("of %v, %v are left", ttl, left)
		}
		if err := s.Leases().Renew(t.Context(), l, ttl); err != nil {
			t.Error(err)
		}
	}
}

// Who has a partition is named, and to ask costs one request.
func TestHeldNamesTheOwner(t *testing.T) {
	p := newPlace(t)
	acquire(t, p.open(t), "worker-7")
	w := &wire{}
	s := p.openThrough(t, w, 0)
	asked := len(w.log())
	_, err := s.Leases().Acquire(t.Context(), group, "0", "b", blobstore.MinLease, 0)
	if !errors.Is(err, driver.ErrHeld) || !strings.Contains(err.Error(), "partition 0") || !strings.Contains(err.Error(), "worker-7") {
		t.Errorf("got %v", err)
	}
	if got := w.log()[asked:]; len(got) != 1 {
		t.Errorf("asked for %q", got)
	}
}

// A reset leaves the owner its lease and fences its checkpoint.
func TestResetUnderALiveOwner(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	l := acquire(t, s, "a")
	claim(t, s, l)
	if err := s.Advance(t.Context(), l, "incarnation 1", positionAt(9), nil); err != nil {
		t.Fatal(err)
	}
	epoch, err := p.open(t).Reset(t.Context(), group, "0", "incarnation 1", positionAt(2), "set")
	if err != nil || epoch <= l.Epoch {
		t.Fatalf("reset to epoch %d, %v", epoch, err)
	}
	err = s.Advance(t.Context(), l, "incarnation 1", positionAt(10), nil)
	if f, found := errors.AsType[*driver.FencedError](err); !found || f.Epoch != epoch {
		t.Errorf("advance: %v, want a FencedError that names epoch %d", err, epoch)
	}
	if err := s.Leases().Renew(t.Context(), l, blobstore.MinLease); err != nil {
		t.Errorf("renew: %v", err)
	}
	if p := progress(t, s); p.Position != positionAt(2) {
		t.Errorf("checkpoint is at %v", p.Position)
	}
	next := acquire(t, s, "a")
	if p := claim(t, s, next); next.Epoch <= epoch || p.Position != positionAt(2) {
		t.Errorf("in epoch %d: claimed %+v", next.Epoch, p)
	}
}

// Something other than this package wrote into a blob's metadata.
func TestMetadataOfSomethingElse(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	l := acquire(t, s, "a")
	if err := s.Leases().Release(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	nonsense := "many"
	if _, err := p.client(t).NewBlobClient(blob).SetMetadata(t.Context(), map[string]*string{"leaseepoch": &nonsense}, nil); err != nil {
		t.Fatal(err)
	}
	_, acquired := s.Leases().Acquire(t.Context(), group, "0", "a", blobstore.MinLease, 0)
	_, read := s.Read(t.Context(), group)
	for what, err := range map[string]error{"acquire": acquired, "read": read, "renew": s.Leases().Renew(t.Context(), l, blobstore.MinLease)} {
		if err == nil || errors.Is(err, driver.ErrFenced) || !strings.Contains(err.Error(), blob) || !strings.Contains(err.Error(), "leaseepoch") {
			t.Errorf("%s: %v, want that it names the blob and what is wrong", what, err)
		}
	}
}

// Processes that ask at once: one gets the lease, whether it was never there,
// given back, or has ended; and the epoch is its own.
func TestRivalsAtOnce(t *testing.T) {
	p := newPlace(t)
	const rivals = 6
	var stores []*blobstore.Store
	for range rivals {
		stores = append(stores, p.open(t))
	}
	past := p.client(t)
	last := int64(0)
	for round := range 12 {
		type result struct {
			lease driver.Lease
			err   error
		}
		results := make(chan result)
		begin := make(chan struct{})
		for i, s := range stores {
			go func() {
				<-begin
				l, err := s.Leases().Acquire(t.Context(), group, "0", fmt.Sprint("rival ", i), blobstore.MaxLease, 0)
				results <- result{l, err}
			}()
		}
		close(begin)
		var won []driver.Lease
		for range rivals {
			switch r := <-results; {
			case r.err == nil:
				won = append(won, r.lease)
			case !errors.Is(r.err, driver.ErrHeld):
				t.Errorf("one of %d at once: %v", rivals, r.err)
			}
		}
		if len(won) != 1 || won[0].Epoch <= last {
			t.Fatalf("round %d: %v got the lease, after epoch %d", round, won, last)
		}
		last = won[0].Epoch
		if err := stores[0].Leases().Renew(t.Context(), won[0], blobstore.MaxLease); err != nil {
			t.Error(err)
		}
		if round%2 == 0 {
			if err := stores[1].Leases().Release(t.Context(), won[0]); err != nil {
				t.Fatal(err)
			}
		} else if err := expire(t.Context(), past, blob); err != nil {
			t.Fatal(err)
		}
	}
}
