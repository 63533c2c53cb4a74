package autoscaletest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

func sampleLease(owner string, d time.Duration) autoscale.Lease {
	return autoscale.Lease{Owner: owner, File: "/etc/Größe.yaml", Host: "h", Duration: d}
}

// leased takes a lease, and returns the owner that holds it instead.
func leased(t testing.TB, s autoscale.Store, resource, owner string, d time.Duration) string {
	t.Helper()
	held, err := s.TakeLease(suite.Context(t), resource, sampleLease(owner, d))
	suite.NoError(t, "take lease", err)
	if held == nil {
		return ""
	}
	equal(t, "lease", *held, sampleLease(held.Owner, held.Duration))
	return held.Owner
}

func leaseExcludes(t testing.TB, s autoscale.Store) {
	const long = suite.Patience
	for _, step := range []struct{ resource, owner, want string }{
		{"r", "a", ""}, {"r", "b", "a"}, {"r", "a", ""}, {"R", "b", ""}, {"r", "b", "a"},
	} {
		if got := leased(t, s, step.resource, step.owner, long); got != step.want {
			t.Errorf("%s takes the lease of %s: %q holds it, want %q", step.owner, step.resource, got, step.want)
		}
	}
	suite.NoError(t, "release by another", s.ReleaseLease(suite.Context(t), "r", "b"))
	if got := leased(t, s, "r", "b", long); got != "a" {
		t.Errorf("after b has released what a holds, the owner is %q", got)
	}
	suite.NoError(t, "release", s.ReleaseLease(suite.Context(t), "r", "a"))
	suite.NoError(t, "release again", s.ReleaseLease(suite.Context(t), "r", "a"))
	if got := leased(t, s, "r", "b", long); got != "" {
		t.Errorf("a lease that was released is still %q's", got)
	}
	if got := leased(t, s, "R", "a", long); got != "b" {
		t.Errorf("the lease of another resource is %q's", got)
	}
}

func leaseExpires(t testing.TB, s autoscale.Store) {
	const short = 3 * time.Second // Azure has the time in whole seconds
	if got := leased(t, s, "r", "a", short); got != "" {
		t.Fatalf("a new lease is %q's", got)
	}
	began := time.Now()
	for time.Since(began) < short+short/2 {
		<-time.After(short / 6)
		last := time.Now()
		if got := leased(t, s, "r", "a", short); got != "" {
			t.Fatalf("a lease that is renewed is %q's", got)
		}
		if got := leased(t, s, "r", "b", short); got == "" {
			if time.Since(last) < short/2 {
				t.Fatal("a lease that is renewed is taken by another")
			}
			return // the machine stood still for so long that it had expired
		}
	}
	for end := time.Now().Add(suite.Patience); leased(t, s, "r", "b", short) != ""; {
		if time.Now().After(end) {
			t.Fatal("a lease that is not renewed does not expire")
		}
		<-time.After(short / 6)
	}
}

func leaseRace(t testing.TB, s autoscale.Store) {
	var taken atomic.Int64
	var taking sync.WaitGroup
	for i := range 5 {
		taking.Go(func() {
			held, err := s.TakeLease(suite.Context(t), "r", sampleLease(fmt.Sprint(i), suite.Patience))
			if err != nil {
				t.Errorf("take lease: %v", err)
			} else if held == nil {
				taken.Add(1)
			}
		})
	}
	taking.Wait()
	if n := taken.Load(); n != 1 {
		t.Errorf("%d of 5 have got the lease", n)
	}
}
