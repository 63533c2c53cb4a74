package blobstore_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
)

// calls are what an owner asks a store for, from a lease taken and a checkpoint
// claimed and at 5.
var calls = map[string]struct {
	do    func(ctx context.Context, s *blobstore.Store, l driver.Lease) error
	check func(t *testing.T, l driver.Lease, p driver.Checkpoint, info driver.LeaseInfo)
}{
	"acquire": {
		func(ctx context.Context, s *blobstore.Store, l driver.Lease) error {
			next, err := s.Leases().Acquire(ctx, group, "0", "a", blobstore.MaxLease, 0)
			if err == nil && next.Epoch <= l.Epoch {
				return errors.New("epoch not raised")
			}
			if err == nil {
				err = s.Leases().Renew(ctx, next, blobstore.MaxLease)
			}
			return err
		},
		func(t *testing.T, l driver.Lease, p driver.Checkpoint, info driver.LeaseInfo) {
			if info.Epoch <= l.Epoch || !info.Live() || info.Owner != "a" {
				t.Errorf("lease is %+v", info)
			}
		},
	},
	"renew": {
		func(ctx context.Context, s *blobstore.Store, l driver.Lease) error {
			return s.Leases().Renew(ctx, l, blobstore.MaxLease)
		},
		func(t *testing.T, l driver.Lease, p driver.Checkpoint, info driver.LeaseInfo) {
			if info.Lease != l || info.Remaining <= blobstore.MinLease {
				t.Errorf("lease is %+v", info)
			}
		},
	},
	"release": {
		func(ctx context.Context, s *blobstore.Store, l driver.Lease) error { return s.Leases().Release(ctx, l) },
		func(t *testing.T, l driver.Lease, p driver.Checkpoint, info driver.LeaseInfo) {
			if info.Lease != l || info.Live() {
				t.Errorf("lease is %+v", info)
			}
		},
	},
	"claim": {
		func(ctx context.Context, s *blobstore.Store, l driver.Lease) error {
			p, err := s.Claim(ctx, l, "incarnation 1")
			if err == nil && (p.Position != positionAt(5) || p.Claims != 1) {
				return errors.New("not what was there")
			}
			return err
		},
		func(t *testing.T, l driver.Lease, p driver.Checkpoint, info driver.LeaseInfo) {
			if p.Position != positionAt(5) || p.Claims != 1 {
				t.Errorf("checkpoint is %+v", p)
			}
		},
	},
	"advance": {
		func(ctx context.Context, s *blobstore.Store, l driver.Lease) error {
			return s.Advance(ctx, l, "incarnation 1", positionAt(7), []driver.SequenceRange{{First: 9, Last: 9}})
		},
		func(t *testing.T, l driver.Lease, p driver.Checkpoint, info driver.LeaseInfo) {
			if p.Position != positionAt(7) || len(p.Done) != 1 || p.Epoch != l.Epoch {
				t.Errorf("checkpoint is %+v", p)
			}
		},
	},
	"leave": {
		func(ctx context.Context, s *blobstore.Store, l driver.Lease) error { return s.Leave(ctx, l) },
		func(t *testing.T, l driver.Lease, p driver.Checkpoint, info driver.LeaseInfo) {
			if p.Claims != 0 || p.Position != positionAt(5) {
				t.Errorf("checkpoint is %+v", p)
			}
		},
	},
	"reset": {
		func(ctx context.Context, s *blobstore.Store, l driver.Lease) error {
			_, err := s.Reset(ctx, group, "0", "incarnation 1", positionAt(2), "set")
			return err
		},
		func(t *testing.T, l driver.Lease, p driver.Checkpoint, info driver.LeaseInfo) {
			if p.Position != positionAt(2) || p.Epoch <= l.Epoch || info.Lease != l || !info.Live() {
				t.Errorf("checkpoint is %+v, lease %+v", p, info)
			}
		},
	},
}

func leaseInfo(t *testing.T, s *blobstore.Store) driver.LeaseInfo {
	t.Helper()
	list, err := s.Leases().List(t.Context(), group)
	if err != nil || len(list) != 1 {
		t.Fatalf("listed %+v, %v", list, err)
	}
	return list[0]
}

// Each request of each call is lost once, on its way there or on its way back;
// the SDK sends it again. The outcome is as if it had not been.
func TestLostRequests(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			for lost := 1; ; lost++ {
				struck := 0
				for _, back := range []bool{false, true} {
					p := newPlace(t)
					s := p.open(t)
					l := acquire(t, s, "a")
					claim(t, s, l)
					if err := s.Advance(t.Context(), l, "incarnation 1", positionAt(5), nil); err != nil {
						t.Fatal(err)
					}
					n := 0
					strike := func() error {
						if n++; n == lost {
							struck++
							return errCut
						}
						return nil
					}
					w := &wire{}
					behind := p.openThrough(t, w, 1)
					if back {
						w.onResponse = func(*http.Request, int) error { return strike() }
					} else {
						w.onRequest = func(*http.Request) error { return strike() }
					}
					if err := call.do(t.Context(), behind, l); err != nil {
						t.Errorf("request %d lost, reply %v: %v", lost, back, err)
					}
					call.check(t, l, progress(t, s), leaseInfo(t, s))
				}
				if struck == 0 {
					t.Logf("%d requests", lost-1)
					return
				}
			}
		})
	}
}

// Every write that an owner ever sent is sent again once another has taken the
// partition: the server refuses each, and nothing changes.
func TestRequestsDeliveredLate(t *testing.T) {
	p := newPlace(t)
	past := p.client(t)
	var mu sync.Mutex
	var sent []*http.Request
	w := &wire{onResponse: func(r *http.Request, _ int) error {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, r.Clone(context.Background()))
		}
		return nil
	}}
	s := p.openThrough(t, w, 0)
	sent = nil // the container's making
	first := acquire(t, s, "a")
	claim(t, s, first)
	if err := s.Advance(t.Context(), first, "incarnation 1", positionAt(5), nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"claim", "renew", "advance", "leave", "acquire"} {
		if err := calls[name].do(t.Context(), s, first); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if err := expire(t.Context(), past, blob); err != nil {
		t.Fatal(err)
	}
	rival := p.open(t)
	b, err := rival.Leases().Acquire(t.Context(), group, "0", "b", blobstore.MaxLease, 0)
	if err != nil {
		t.Fatal(err)
	}
	claim(t, rival, b)
	if err := rival.Advance(t.Context(), b, "incarnation 1", positionAt(8), nil); err != nil {
		t.Fatal(err)
	}
	checkpoint, info := progress(t, rival), leaseInfo(t, rival)
	for i, r := range sent {
		r.Body, r.ContentLength = http.NoBody, 0
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		t.Logf("%-10s %d", kind(r), resp.StatusCode)
		if resp.StatusCode != http.StatusPreconditionFailed && resp.StatusCode != http.StatusConflict {
			t.Errorf("request %d, %s, was sent again late: %d, want 412 or 409", i, kind(r), resp.StatusCode)
		}
	}
	if len(sent) < 10 {
		t.Errorf("%d requests were sent again", len(sent))
	}
	again, infoAgain := progress(t, rival), leaseInfo(t, rival)
	if again.Position != checkpoint.Position || again.Owner != "b" || infoAgain.Lease != b || !infoAgain.Live() || infoAgain.Renewed != info.Renewed {
		t.Errorf("the checkpoint was %+v, is %+v; the lease is %+v", checkpoint, again, infoAgain)
	}
}

// A failed Acquire gives back what it took, so that nobody has to wait for the
// end of a lease that nobody has.
func TestAcquireThatFailsLetsGo(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	if err := s.Leases().Release(t.Context(), acquire(t, s, "a")); err != nil {
		t.Fatal(err)
	}
	w := &wire{}
	broken := p.openThrough(t, w, 0)
	w.onRequest = func(r *http.Request) error {
		if kind(r) == "metadata" {
			return errCut
		}
		return nil
	}
	if _, err := broken.Leases().Acquire(t.Context(), group, "0", "b", blobstore.MaxLease, 0); err == nil || errors.Is(err, driver.ErrHeld) {
		t.Fatalf("acquired although nothing could be written: %v", err)
	}
	if l := acquire(t, s, "c"); l.Epoch != 2 {
		t.Errorf("the next lease has epoch %d, want 2", l.Epoch)
	}
}

// A lease that something else has on the blob keeps out who would acquire or
// claim, and an operator gets past it.
func TestForeignLease(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	if err := s.Leases().Release(t.Context(), acquire(t, s, "a")); err != nil {
		t.Fatal(err)
	}
	foreign, err := lease.NewBlobClient(p.client(t).NewBlobClient(blob), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := foreign.AcquireLease(t.Context(), -1, nil); err != nil {
		t.Fatal(err)
	}
	_, err = s.Leases().Acquire(t.Context(), group, "0", "b", blobstore.MinLease, 0)
	if !errors.Is(err, driver.ErrHeld) {
		t.Errorf("acquired a blob that is leased by something else: %v", err)
	}
	if _, err := s.Claim(t.Context(), driver.Lease{Group: group, Partition: "0", Owner: "b", Epoch: 5}, "1"); err == nil {
		t.Error("claimed a blob that is leased by something else")
	}
	epoch, err := s.Reset(t.Context(), group, "0", "1", positionAt(3), "set")
	if err != nil || epoch != 1 || progress(t, s).Position != positionAt(3) {
		t.Errorf("reset: epoch %d, %v", epoch, err)
	}
	if l := acquire(t, s, "b"); l.Epoch <= epoch {
		t.Errorf("acquired in epoch %d after the reset in %d", l.Epoch, epoch)
	}
}

// A lease that has ended, and that nobody took: the checkpoint stays where it
// is until the lease is renewed.
func TestAdvanceBehindExpiry(t *testing.T) {
	p := newPlace(t)
	w := &wire{}
	s := p.openThrough(t, w, 0)
	l := acquire(t, s, "a")
	claim(t, s, l)
	if err := expire(t.Context(), p.client(t), blob); err != nil {
		t.Fatal(err)
	}
	if err := s.Advance(t.Context(), l, "incarnation 1", positionAt(1), nil); !errors.Is(err, driver.ErrFenced) {
		t.Errorf("advance after the lease's end: %v", err)
	}
	if got := strings.Join(w.log(), ", "); !strings.Contains(got, "metadata 412") {
		t.Errorf("the server answered %s, want 412 to the write", got)
	}
	if err := s.Leases().Renew(t.Context(), l, blobstore.MinLease); err != nil {
		t.Fatal(err)
	}
	if err := s.Advance(t.Context(), l, "incarnation 1", positionAt(1), nil); err != nil {
		t.Errorf("advance after the renewal: %v", err)
	}
}

// A blob that was deleted is not there any more for its owner; the next one
// begins anew.
func TestBlobDeleted(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	l := acquire(t, s, "a")
	claim(t, s, l)
	past := p.client(t)
	if err := expire(t.Context(), past, blob); err != nil {
		t.Fatal(err)
	}
	if _, err := past.NewBlobClient(blob).Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Leases().Renew(t.Context(), l, blobstore.MinLease); !errors.Is(err, driver.ErrFenced) {
		t.Errorf("renew: %v", err)
	}
	if err := s.Advance(t.Context(), l, "incarnation 1", positionAt(1), nil); !errors.Is(err, driver.ErrFenced) {
		t.Errorf("advance: %v", err)
	}
	next, err := s.Leases().Acquire(t.Context(), group, "0", "b", blobstore.MinLease, l.Epoch)
	if err != nil || next.Epoch <= l.Epoch {
		t.Errorf("acquired %+v, %v", next, err)
	}
}
