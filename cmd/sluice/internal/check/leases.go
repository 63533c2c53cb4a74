package check

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// leaseTable are the checks that every lease store has.
var leaseTable = []check[*leaseChecks]{
	{"lease.one", "Of several processes that want a lease at the same time exactly one gets it.", 0, (*leaseChecks).checkOne},
	{"lease.epoch", "Each owner of a lease has a higher epoch than all before it: the fence compares epochs.", 0, (*leaseChecks).checkEpoch},
	{"lease.expiry", "A lease that is not renewed is free when it has expired and not before, by the server's clock.", 2 * time.Minute, (*leaseChecks).checkExpiry},
	{"lease.renew", "A lease that is renewed is not given to another, and its former owner cannot renew a lease that another has.", 2 * time.Minute, (*leaseChecks).checkRenew},
}

// leased binds them to a store, which is there when the first of them runs.
func leased(store func() *leaseChecks) []Check {
	list := make([]Check, len(leaseTable))
	for i, c := range leaseTable {
		list[i] = Check{c.name, c.assumes, c.bound, func(ctx context.Context) Finding { return c.run(store(), ctx) }}
	}
	return list
}

// leaseChecks is a lease store that is checked.
type leaseChecks struct {
	store     driver.LeaseStore
	group     driver.Group
	leaseFor  time.Duration
	partition func() string
}

func (c *leaseChecks) acquire(ctx context.Context, partition, owner string) (driver.Lease, error) {
	return c.store.Acquire(ctx, c.group, partition, owner, c.leaseFor, 0)
}

func (c *leaseChecks) checkOne(ctx context.Context) Finding {
	const rivals, rounds = 4, 3
	for done := 0; done < rounds; {
		partition, began := c.partition(), time.Now()
		leases, errs := make([]driver.Lease, rivals), make([]error, rivals)
		var running sync.WaitGroup
		for i := range rivals {
			running.Go(func() { leases[i], errs[i] = c.acquire(ctx, partition, fmt.Sprint("rival", i)) })
		}
		running.Wait()
		lasted := c.lasts(began)
		var won []driver.Lease
		for i, err := range errs {
			switch {
			case err == nil:
				won = append(won, leases[i])
			case !errors.Is(err, driver.ErrHeld):
				return failed("acquiring a lease", err)
			}
		}
		switch {
		case len(won) == 0:
			return differed("of %d processes that wanted a free lease none got it", rivals)
		case len(won) > 1 && lasted:
			return differed("%s and %s hold the same lease, with epochs %d and %d", won[0].Owner, won[1].Owner, won[0].Epoch, won[1].Epoch)
		case len(won) > 1:
			continue // one may have got it after that of another had expired
		}
		if err := c.store.Release(ctx, won[0]); err != nil {
			return failed("releasing a lease", err)
		}
		done++
	}
	return held("in %d rounds of %d processes one got the lease", rounds, rivals)
}

func (c *leaseChecks) checkEpoch(ctx context.Context) Finding {
	partition := c.partition()
	var last int64
	for i := range 3 {
		lease, err := c.acquire(ctx, partition, fmt.Sprint("owner", i))
		if err != nil {
			return failed("acquiring a lease", err)
		}
		if lease.Epoch <= last {
			return differed("the epoch of a new lease is %d, after %d", lease.Epoch, last)
		}
		last = lease.Epoch
		if err := c.store.Release(ctx, lease); err != nil {
			return failed("releasing a lease", err)
		}
		if err := c.store.Renew(ctx, lease, c.leaseFor); !errors.Is(err, driver.ErrFenced) {
			if err != nil {
				return failed("renewing a released lease", err)
			}
			return differed("a lease that was released could be renewed")
		}
	}
	return held("epochs rise, up to %d after three owners", last)
}

// early is by how much a lease may expire before its time: servers count in whole seconds.
const early = time.Second

// lasts reports whether a lease that was acquired or renewed since a time has not expired. What was
// seen of one that may have shows nothing: the requests took too long.
func (c *leaseChecks) lasts(since time.Time) bool { return time.Since(since) < c.leaseFor-early }

// late is by how much it may expire after its time.
const late = 5 * time.Second

func (c *leaseChecks) checkExpiry(ctx context.Context) Finding {
	partition := c.partition()
	began := time.Now()
	first, err := c.acquire(ctx, partition, "first")
	if err != nil {
		return failed("acquiring a lease", err)
	}
	granted := time.Now()
	for {
		asked := time.Now()
		second, err := c.acquire(ctx, partition, "second")
		switch {
		case err == nil && c.lasts(began):
			return differed("a lease of %v was given to another owner after %v", c.leaseFor, time.Since(began).Round(time.Millisecond))
		case err == nil && second.Epoch <= first.Epoch:
			return differed("the epoch of the next owner is %d, after %d", second.Epoch, first.Epoch)
		case err == nil:
			return held("a lease of %v was free after %v", c.leaseFor, time.Since(began).Round(100*time.Millisecond))
		case !errors.Is(err, driver.ErrHeld):
			return failed("acquiring a lease", err)
		case asked.Sub(granted) > c.leaseFor+late:
			return differed("a lease of %v that nobody renews is still held after %v", c.leaseFor, asked.Sub(granted).Round(time.Millisecond))
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return failed("waiting", err)
		}
	}
}

func (c *leaseChecks) checkRenew(ctx context.Context) Finding {
	for {
		if finding := c.renewed(ctx, c.partition()); finding.State != "" {
			return finding
		}
	}
}

// renewed gives no verdict if the lease may have expired between two requests.
func (c *leaseChecks) renewed(ctx context.Context, partition string) Finding {
	last := time.Now() // when the lease was asked for
	first, err := c.acquire(ctx, partition, "first")
	if err != nil {
		return failed("acquiring a lease", err)
	}
	for range 3 { // past the time of the lease
		if err := pause(ctx, c.leaseFor/2); err != nil {
			return failed("waiting", err)
		}
		renewing := time.Now()
		err := c.store.Renew(ctx, first, c.leaseFor)
		switch {
		case errors.Is(err, driver.ErrFenced) && time.Since(last) >= c.leaseFor:
			return Finding{}
		case err != nil:
			return failed("renewing a lease in time", err)
		}
		last = renewing
		other, err := c.acquire(ctx, partition, "second")
		switch {
		case err == nil && c.lasts(last):
			return differed("a lease that its owner renews was given to another, with epoch %d", other.Epoch)
		case err == nil:
			return Finding{}
		case !errors.Is(err, driver.ErrHeld):
			return failed("acquiring a lease", err)
		}
	}
	if err := c.store.Release(ctx, first); err != nil {
		return failed("releasing a lease", err)
	}
	if _, err := c.acquire(ctx, partition, "second"); err != nil {
		return differed("a lease that was released cannot be acquired: %s", oneLine(err))
	}
	switch err := c.store.Renew(ctx, first, c.leaseFor); {
	case err == nil:
		return differed("the former owner could renew a lease that another has")
	case !errors.Is(err, driver.ErrFenced):
		return failed("renewing for the former owner", err)
	}
	return held("a renewed lease stays, and its former owner cannot renew it")
}
