package stream

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/limiter"
)

// Rate is how many records a second may be sent: see sluice.Rate. It is safe for concurrent use.
type Rate struct {
	cluster bool

	mu        sync.Mutex
	perSecond int
	limiter   *limiter.Limiter // made at the first use, with the consumer's clock
	shares    map[string]share // of the partitions that are owned, in a cluster
}

// share is one partition's part of a cluster's rate.
type share struct{ index, total int }

// Init sets the rate of one process, or of all processes of a group together.
func (r *Rate) Init(perSecond int, cluster bool) error {
	if err := checkRate(perSecond); err != nil {
		return err
	}
	r.cluster, r.perSecond = cluster, perSecond
	if cluster {
		r.shares = map[string]share{}
	}
	return nil
}

func checkRate(perSecond int) error {
	if perSecond < 1 || perSecond > 1_000_000 {
		return fmt.Errorf("rate of %d a second: must be from 1 to 1,000,000", perSecond)
	}
	return nil
}

// Set changes the rate while it is in use.
func (r *Rate) Set(perSecond int) error {
	if err := checkRate(perSecond); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.shares {
		if perSecond < s.total {
			return fmt.Errorf("rate of %d a second for %d partitions: must be at least one for each", perSecond, s.total)
		}
	}
	r.perSecond = perSecond
	return r.apply()
}

// join adds the share of a partition that this process owns from now on. of is the
// number of partitions; if there were fewer before, the other shares become smaller.
func (r *Rate) join(partition string, index, of int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.shares {
		of = max(of, s.total)
	}
	if r.perSecond < of {
		return fmt.Errorf("rate of %d a second for %d partitions: must be at least one for each", r.perSecond, of)
	}
	r.shares[partition] = share{index, of}
	for p, s := range r.shares {
		r.shares[p] = share{s.index, of}
	}
	return r.apply()
}

// leave takes a partition's share away.
func (r *Rate) leave(partition string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.shares, partition)
	_ = r.apply() // a sum of shares is a rate, or zero
}

// apply sets the limiter's rate, if the limiter exists. The caller holds mu.
func (r *Rate) apply() error {
	if r.limiter == nil {
		return nil
	}
	return r.limiter.SetRate(r.now())
}

// now returns this process's rate. The caller holds mu.
func (r *Rate) now() int {
	if !r.cluster {
		return r.perSecond
	}
	sum := 0
	for _, s := range r.shares {
		sum += limiter.Share(r.perSecond, s.total, s.index)
	}
	return sum
}

// turn returns in what time each of so many partitions can send a record.
func (r *Rate) turn(partitions int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(partitions) * time.Second / time.Duration(max(1, r.now()))
}

// wait waits until at least one record may be sent, and returns how many may be sent,
// at most `most`.
func (r *Rate) wait(ctx context.Context, clock driver.Clock, most int) (int, error) {
	r.mu.Lock()
	if r.limiter == nil {
		l, err := limiter.New(r.now(), clock)
		if err != nil {
			r.mu.Unlock()
			return 0, fmt.Errorf("rate: %w", err)
		}
		r.limiter = l
	}
	l := r.limiter
	r.mu.Unlock()
	return l.Wait(ctx, most)
}

// Made reports whether the rate was made by Init: the zero value would grant nothing.
func (r *Rate) Made() bool { return r.perSecond > 0 }
