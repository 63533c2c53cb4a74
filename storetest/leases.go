package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// LeasesConfig says what [TestLeases] has to know about a store.
type LeasesConfig struct {
	// TTL is a lease time that the store can keep and that the tests can wait
	// for, several times. Default: 250 ms.
	TTL time.Duration
	// Long is a lease time that the store can keep and that does not pass
	// during a test; more than 30 s. Default: an hour.
	Long time.Duration
	// ClockBack makes the store's leases what they are after the store's clock was
	// set back. Default: nil, for a store whose clock a test can't set; then these
	// cases do nothing.
	ClockBack func(t testing.TB, store driver.LeaseStore, by time.Duration)
	// Silence makes the server of a store silent. Nil leaves the case out.
	Silence func(t testing.TB, store driver.LeaseStore) (end func())
}

// TestLeases is the conformance suite of [driver.LeaseStore]. Every case asks
// new for an empty store.
func TestLeases(t *testing.T, new func(t testing.TB) driver.LeaseStore, cfg *LeasesConfig) {
	suite.Run(t, leaseChecks, func(t testing.TB) leaseHarness { return newLeaseHarness(new(t), cfg) })
}

func newLeaseHarness(store driver.LeaseStore, cfg *LeasesConfig) leaseHarness {
	h := leaseHarness{LeaseStore: store, ttl: 250 * time.Millisecond, long: time.Hour}
	if cfg != nil {
		h.ttl, h.long = cmp.Or(cfg.TTL, h.ttl), cmp.Or(cfg.Long, h.long)
		h.clockBack = cfg.ClockBack
		h.silence = cfg.Silence
	}
	return h
}

// leaseHarness is the store under test with short forms of its methods.
type leaseHarness struct {
	driver.LeaseStore
	ttl, long time.Duration
	clockBack func(t testing.TB, store driver.LeaseStore, by time.Duration)
	silence   func(t testing.TB, store driver.LeaseStore) (end func())
}

func (h leaseHarness) take(t testing.TB, partition, owner string, ttl time.Duration, above int64) driver.Lease {
	t.Helper()
	l, err := h.Acquire(suite.Context(t), testGroup, partition, owner, ttl, above)
	suite.NoError(t, "acquire for "+owner, err)
	return l
}

func (h leaseHarness) held(t testing.TB, partition, by, from string) {
	t.Helper()
	_, err := h.Acquire(suite.Context(t), testGroup, partition, from, h.long, 0)
	suite.ErrorIs(t, fmt.Sprintf("acquire for %s while %s holds it", from, by), err, driver.ErrHeld)
}

func (h leaseHarness) info(t testing.TB, partition string) driver.LeaseInfo {
	t.Helper()
	list := h.listed(t)
	for _, l := range list {
		if l.Partition == partition {
			return l
		}
	}
	t.Fatalf("list: partition %s is missing in %v", partition, list)
	return driver.LeaseInfo{}
}

func (h leaseHarness) listed(t testing.TB) []driver.LeaseInfo {
	t.Helper()
	list, err := h.List(suite.Context(t), testGroup)
	suite.NoError(t, "list", err)
	return list
}

// expire waits until the newest lease of a partition has run out.
func (h leaseHarness) expire(t testing.TB, partition string) {
	t.Helper()
	suite.Eventually(t, "the lease of partition "+partition+" has expired", func() bool { return !h.info(t, partition).Live() })
}

var leaseChecks = []suite.Check[leaseHarness]{
	{Name: "Acquire", Run: func(t testing.TB, h leaseHarness) {
		l := h.take(t, "0", "a", h.long, 0)
		if l.Group != testGroup || l.Partition != "0" || l.Owner != "a" || l.Epoch < 1 {
			t.Errorf("got lease %+v of partition 0 for a, want its names and an epoch of at least 1", l)
		}
	}},
	{Name: "Groups", Run: func(t testing.TB, h leaseHarness) {
		lister, is := h.LeaseStore.(driver.GroupLister)
		if !is {
			return
		}
		other := driver.Group{Namespace: strings.ToUpper(testGroup.Namespace), Topic: strings.ToUpper(testGroup.Topic), Name: strings.ToUpper(testGroup.Name)}
		for _, want := range [][]driver.Group{{}, {testGroup}, {testGroup, other}} {
			if len(want) > 0 {
				_, err := h.Acquire(suite.Context(t), want[len(want)-1], "0", "a", h.long, 0)
				suite.NoError(t, "acquire", err)
			}
			all, err := lister.Groups(suite.Context(t), testGroup)
			suite.NoError(t, "list groups", err)
			var got []driver.Group
			for _, g := range all {
				if g.Same(testGroup) && !slices.Contains(got, g) {
					got = append(got, g)
				}
			}
			if len(got) != len(want) || len(got) > 0 && !slices.Contains(got, want[len(want)-1]) {
				t.Errorf("with leases of %v the groups are %v", want, all)
			}
		}
	}},
	{Name: "MarkBegan", Run: func(t testing.TB, h leaseHarness) { checkMark(t, h) }},
	{Name: "Held", Run: func(t testing.TB, h leaseHarness) {
		l := h.take(t, "0", "a", h.long, 0)
		h.held(t, "0", "a", "b")
		suite.NoError(t, "renew after another asked in vain", h.Renew(suite.Context(t), l, h.long))
		if got := h.info(t, "0"); got.Lease != l {
			t.Errorf("asking in vain changed the lease from %+v to %+v", l, got.Lease)
		}
	}},
	{Name: "Above", Run: func(t testing.TB, h leaseHarness) {
		l := h.take(t, "0", "a", h.long, 41)
		if l.Epoch <= 41 {
			t.Errorf("got epoch %d above 41", l.Epoch)
		}
		suite.NoError(t, "release", h.Release(suite.Context(t), l))
		if m := h.take(t, "0", "b", h.long, 7); m.Epoch <= l.Epoch {
			t.Errorf("got epoch %d after %d, asked for above 7: epochs must only rise", m.Epoch, l.Epoch)
		}
		if m := h.take(t, "1", "b", h.long, 1<<40); m.Epoch <= 1<<40 {
			t.Errorf("got epoch %d above %d", m.Epoch, int64(1)<<40)
		}
		if m, err := h.Acquire(suite.Context(t), testGroup, "2", "b", h.long, math.MaxInt64); err == nil {
			t.Errorf("got epoch %d above the highest number", m.Epoch)
		}
	}},
	{Name: "SameOwner", Run: func(t testing.TB, h leaseHarness) {
		old := h.take(t, "0", "a", h.long, 0)
		l := h.take(t, "0", "a", h.long, 0)
		if l.Epoch <= old.Epoch {
			t.Errorf("the same owner acquired again: got epoch %d after %d", l.Epoch, old.Epoch)
		}
		suite.ErrorIs(t, "renew in the old epoch", h.Renew(suite.Context(t), old, h.long), driver.ErrFenced)
		suite.NoError(t, "release in the old epoch", h.Release(suite.Context(t), old))
		h.held(t, "0", "a, in a newer epoch than was released,", "b")
	}},
	{Name: "Release", Run: func(t testing.TB, h leaseHarness) {
		last := int64(0)
		for i := range 5 {
			l := h.take(t, "0", fmt.Sprint("owner", i), h.long, 0)
			if l.Epoch <= last {
				t.Errorf("got epoch %d after %d was released", l.Epoch, last)
			}
			last = l.Epoch
			suite.NoError(t, "release", h.Release(suite.Context(t), l))
			if h.info(t, "0").Live() {
				t.Error("a released lease is live")
			}
			suite.ErrorIs(t, "renew after release", h.Renew(suite.Context(t), l, h.long), driver.ErrFenced)
			suite.NoError(t, "release twice", h.Release(suite.Context(t), l))
		}
	}},
	{Name: "ForeignRelease", Run: func(t testing.TB, h leaseHarness) {
		l := h.take(t, "0", "a", h.long, 0)
		for _, forged := range []driver.Lease{
			{Group: testGroup, Partition: "0", Owner: "b", Epoch: l.Epoch},
			{Group: testGroup, Partition: "0", Owner: "a", Epoch: l.Epoch + 1},
			{Group: testGroup, Partition: "1", Owner: "a", Epoch: l.Epoch},
			{Group: otherGroups[0], Partition: "0", Owner: "a", Epoch: l.Epoch},
		} {
			suite.NoError(t, "release of a lease that is another's", h.Release(suite.Context(t), forged))
			suite.ErrorIs(t, "renewal of a lease that is another's", h.Renew(suite.Context(t), forged, h.long), driver.ErrFenced)
		}
		h.held(t, "0", "a", "b")
		suite.NoError(t, "renew", h.Renew(suite.Context(t), l, h.long))
	}},
	{Name: "Expiry", Run: func(t testing.TB, h leaseHarness) {
		asked := time.Now()
		old := h.take(t, "0", "a", h.ttl, 0)
		var l driver.Lease
		suite.Eventually(t, "b gets the expired lease", func() bool {
			var err error
			l, err = h.Acquire(suite.Context(t), testGroup, "0", "b", h.long, 0)
			if err != nil {
				suite.ErrorIs(t, "acquire for b", err, driver.ErrHeld)
			}
			return err == nil
		})
		// A store may count in milliseconds, and its clock may drift a little.
		if after := time.Since(asked); after < h.ttl-h.ttl/20-time.Millisecond {
			t.Errorf("a lease for %v went to another after %v", h.ttl, after)
		}
		if l.Owner != "b" || l.Epoch <= old.Epoch {
			t.Errorf("after expiry in epoch %d got %+v", old.Epoch, l)
		}
		suite.ErrorIs(t, "renew after another took it", h.Renew(suite.Context(t), old, h.long), driver.ErrFenced)
		suite.NoError(t, "release after another took it", h.Release(suite.Context(t), old))
		h.held(t, "0", "b", "c")
		suite.NoError(t, "renew for b", h.Renew(suite.Context(t), l, h.long))
	}},
	{Name: "RenewExtends", Run: func(t testing.TB, h leaseHarness) {
		l := h.take(t, "0", "a", h.ttl, 0)
		suite.NoError(t, "renew", h.Renew(suite.Context(t), l, h.long))
		h.take(t, "1", "a", h.ttl, 0) // expires later than the first would have
		h.expire(t, "1")
		h.held(t, "0", "a, by renewal,", "b")
	}},
	{Name: "RenewCountsFromNow", Run: func(t testing.TB, h leaseHarness) {
		l := h.take(t, "0", "a", h.long, 0)
		suite.NoError(t, "renew", h.Renew(suite.Context(t), l, h.ttl))
		if got := h.info(t, "0").Remaining; got > h.ttl {
			t.Errorf("renewed for %v, %v remain", h.ttl, got)
		}
		h.expire(t, "0")
		h.take(t, "0", "b", h.long, 0)
	}},
	{Name: "RenewExpired", Run: func(t testing.TB, h leaseHarness) {
		l := h.take(t, "0", "a", h.ttl, 0)
		h.expire(t, "0")
		suite.NoError(t, "renew an expired lease that no other owner took", h.Renew(suite.Context(t), l, h.long))
		h.held(t, "0", "a", "b")
	}},
	{Name: "RenewAll", Run: func(t testing.TB, h leaseHarness) {
		all, is := h.LeaseStore.(driver.LeaseRenewer)
		if !is {
			return
		}
		expired, a, b := h.take(t, "0", "a", h.ttl, 0), h.take(t, "1", "a", h.ttl, 7), h.take(t, "2", "a", h.ttl, 0)
		other, foreign := h.take(t, "3", "a", h.ttl, 0), h.take(t, "4", "b", h.ttl, 0)
		h.expire(t, "4") // and all that were taken before
		suite.NoError(t, "renew several leases, one of which has expired", all.RenewAll(suite.Context(t), []driver.Lease{expired, a, b}, h.long))
		for _, l := range []driver.Lease{expired, a, b} {
			if got := h.info(t, l.Partition); got.Lease != l || got.Remaining > h.long || got.Remaining < h.long-suite.Patience {
				t.Errorf("renewed with others: got %+v, want %+v for %v", got, l, h.long)
			}
		}
		for _, l := range []driver.Lease{other, foreign} {
			if h.info(t, l.Partition).Live() {
				t.Errorf("the lease of partition %s was renewed with those of others", l.Partition)
			}
		}
		newer := h.take(t, "1", "a", h.long, 0)
		if err := all.RenewAll(suite.Context(t), []driver.Lease{b, a}, h.ttl); err == nil {
			t.Error("renewed two leases, one in an epoch that is over: got no error")
		}
		if got := h.info(t, "1"); got.Lease != newer || got.Remaining < h.ttl+time.Second {
			t.Errorf("renewed in an epoch that is over: got %+v, want %+v for %v", got, newer, h.long)
		}
		suite.NoError(t, "renew one of those by itself", h.Renew(suite.Context(t), b, h.long))
		suite.NoError(t, "release", h.Release(suite.Context(t), newer))
		if err := all.RenewAll(suite.Context(t), []driver.Lease{b, newer}, h.long); err == nil || h.info(t, "1").Live() {
			t.Errorf("renewed two leases, one of which was released: got error %v and live %v", err, h.info(t, "1").Live())
		}
		many := []driver.Lease{expired, b}
		for i := range 260 {
			many = append(many, h.take(t, fmt.Sprint("many", i), "a", h.ttl, 0))
		}
		suite.NoError(t, "renew many leases", all.RenewAll(suite.Context(t), many, h.long))
		for _, l := range h.listed(t) {
			if l.Owner == "a" && l.Partition != "1" && l.Partition != "3" && l.Remaining < h.long-suite.Patience {
				t.Fatalf("many leases were renewed, not that of partition %s: %v remain", l.Partition, l.Remaining)
			}
		}
	}},
	{Name: "ClockBack", Run: func(t testing.TB, h leaseHarness) {
		if h.clockBack == nil {
			return
		}
		dead, live := h.take(t, "0", "a", h.ttl, 0), h.take(t, "1", "a", h.long, 0)
		released := h.take(t, "2", "a", h.long, 0)
		suite.NoError(t, "release", h.Release(suite.Context(t), released))
		for day := 1; ; day++ {
			h.clockBack(t, h.LeaseStore, time.Duration(day)*24*time.Hour)
			began := time.Now()
			h.held(t, "0", "a", "b")
			h.held(t, "1", "a", "b")
			got := h.info(t, "0")
			over := !got.Live() && (day == 10 || time.Since(began) < h.ttl)
			if got.Lease != dead || over || got.Remaining > h.ttl {
				t.Errorf("the clock was set back: got %+v, want the lease for %v at most", got, h.ttl)
			}
			if got.Live() || over {
				break
			}
			// Its time has passed on a busy machine: only another day back shows that it was held.
		}
		if got := h.info(t, "1"); got.Lease != live || got.Remaining > h.long || got.Remaining < h.long-suite.Patience {
			t.Errorf("the clock was set back: got %+v, want the lease for about %v", got, h.long)
		}
		if got := h.info(t, "2"); got.Lease != released || got.Live() || got.Renewed.After(h.info(t, "1").Renewed.Add(suite.Patience)) {
			t.Errorf("the clock was set back: got %+v, want a released lease that was not renewed in the future", got)
		}
		suite.NoError(t, "renew", h.Renew(suite.Context(t), live, h.long))
		h.expire(t, "0")
		h.take(t, "0", "b", h.long, 0)
		h.held(t, "1", "a", "b")
	}},
	{Name: "ClockBackAcquire", Run: func(t testing.TB, h leaseHarness) {
		if h.clockBack == nil {
			return
		}
		h.take(t, "0", "a", h.ttl, 0)
		h.clockBack(t, h.LeaseStore, 24*time.Hour)
		suite.Eventually(t, "b gets the lease of an owner that is gone", func() bool {
			_, err := h.Acquire(suite.Context(t), testGroup, "0", "b", h.long, 0)
			if err != nil {
				suite.ErrorIs(t, "acquire for b", err, driver.ErrHeld)
			}
			return err == nil
		})
	}},
	{Name: "NeverLeased", Run: func(t testing.TB, h leaseHarness) {
		l := driver.Lease{Group: testGroup, Partition: "0", Owner: "a", Epoch: 1}
		suite.ErrorIs(t, "renew", h.Renew(suite.Context(t), l, h.long), driver.ErrFenced)
		suite.NoError(t, "release", h.Release(suite.Context(t), l))
		list, err := h.List(suite.Context(t), testGroup)
		suite.NoError(t, "list", err)
		if len(list) != 0 {
			t.Errorf("nothing was leased, listed %v", list)
		}
	}},
	{Name: "ConcurrentOwners", Run: func(t testing.TB, h leaseHarness) {
		for round, first := range []func(partition string){
			func(string) {},
			func(p string) {
				suite.NoError(t, "release", h.Release(suite.Context(t), h.take(t, p, "before", h.long, 0)))
			},
			func(p string) { h.take(t, p, "before", h.ttl, 0); h.expire(t, p) },
		} {
			partition := fmt.Sprint(round)
			first(partition)
			wins := 0
			for err := range race(t, 12, func(i int) error {
				_, err := h.Acquire(suite.Context(t), testGroup, partition, fmt.Sprint("owner", i), h.long, 0)
				return err
			}) {
				if err == nil {
					wins++
				} else {
					suite.ErrorIs(t, "acquire against others", err, driver.ErrHeld)
				}
			}
			if wins != 1 {
				t.Errorf("%d of 12 owners won a lease at once, want 1", wins)
			}
		}
	}},
	{Name: "ConcurrentSameOwner", Run: func(t testing.TB, h leaseHarness) {
		epochs := make(map[int64]bool)
		type result struct {
			lease driver.Lease
			err   error
		}
		for r := range race(t, 8, func(int) result {
			l, err := h.Acquire(suite.Context(t), testGroup, "0", "a", h.long, 0)
			return result{l, err}
		}) {
			suite.NoError(t, "acquire again", r.err)
			if epochs[r.lease.Epoch] {
				t.Errorf("epoch %d was handed out twice", r.lease.Epoch)
			}
			epochs[r.lease.Epoch] = true
		}
	}},
	{Name: "List", Run: func(t testing.TB, h leaseHarness) {
		partitions := []string{"10", "2", "0", "11", "1"}
		leases := make(map[string]driver.Lease)
		for i, p := range partitions {
			leases[p] = h.take(t, p, fmt.Sprint("owner", i), h.long, 0)
		}
		suite.NoError(t, "release", h.Release(suite.Context(t), leases["2"]))
		list, err := h.List(suite.Context(t), testGroup)
		suite.NoError(t, "list", err)
		slices.Sort(partitions)
		if len(list) != len(partitions) {
			t.Fatalf("listed %d of %d partitions: %v", len(list), len(partitions), list)
		}
		for i, l := range list {
			if l.Lease != leases[partitions[i]] {
				t.Errorf("entry %d is %+v, want %+v", i, l.Lease, leases[partitions[i]])
			}
			if live := l.Partition != "2"; l.Live() != live || l.Remaining > h.long || live && l.Remaining < h.long-suite.Patience {
				t.Errorf("partition %s: live %v with %v remaining, leased for %v", l.Partition, l.Live(), l.Remaining, h.long)
			}
			if l.Renewed.IsZero() {
				t.Errorf("partition %s: no time of renewal", l.Partition)
			}
		}
	}},
	{Name: "Renewed", Run: func(t testing.TB, h leaseHarness) {
		l := h.take(t, "0", "a", h.long, 0)
		taken := h.info(t, "0").Renewed
		suite.Eventually(t, "a renewal is seen in the list", func() bool {
			suite.NoError(t, "renew", h.Renew(suite.Context(t), l, h.long))
			now := h.info(t, "0").Renewed
			if now.Before(taken) {
				t.Fatalf("renewed at %v, taken at %v", now, taken)
			}
			return now.After(taken)
		})
	}},
	{Name: "GroupsApart", Run: func(t testing.TB, h leaseHarness) {
		h.take(t, "0", "a", h.long, 99)
		for i, g := range otherGroups {
			owner := fmt.Sprintf("o'wner %d%%", i)
			l, err := h.Acquire(suite.Context(t), g, "0", owner, h.long, 0)
			suite.NoError(t, fmt.Sprintf("acquire in group %v while another group's is held", g), err)
			if l.Epoch > 99 {
				t.Errorf("group %v: got epoch %d, raised by another group", g, l.Epoch)
			}
			list, err := h.List(suite.Context(t), g)
			suite.NoError(t, "list", err)
			if len(list) != 1 || list[0].Lease != l {
				t.Errorf("group %v: listed %v, want its own lease alone", g, list)
			}
			suite.NoError(t, "renew", h.Renew(suite.Context(t), l, h.long))
		}
		h.take(t, "1", "b", h.long, 0)
	}},
	{Name: "Balance", Run: checkBalance},
	silenceOfLeases,
	{Name: "Cancelled", Run: func(t testing.TB, h leaseHarness) {
		ctx, cancel := context.WithCancel(suite.Context(t))
		l := h.take(t, "1", "a", h.long, 0)
		cancel()
		if _, err := h.Acquire(ctx, testGroup, "0", "a", h.long, 0); err == nil || errors.Is(err, driver.ErrHeld) {
			t.Errorf("acquire with a cancelled context: got %v", err)
		}
		if err := h.Renew(ctx, l, h.long); err == nil || errors.Is(err, driver.ErrFenced) {
			t.Errorf("renew with a cancelled context: got %v; the lease is not lost", err)
		}
		h.take(t, "0", "b", h.long, 0)
	}},
}

// race starts n calls at once and returns their results.
func race[T any](t testing.TB, n int, fn func(i int) T) <-chan T {
	start := make(chan struct{})
	results := make(chan T, n)
	var waits []<-chan struct{}
	for i := range n {
		waits = append(waits, suite.Spawn(t, func() struct{} {
			<-start
			results <- fn(i)
			return struct{}{}
		}))
	}
	close(start)
	for _, w := range waits {
		<-w
	}
	close(results)
	return results
}
