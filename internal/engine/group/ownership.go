package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
)

// mayTake returns the partitions of the topic that the consumer may hold: with an ordinal, every
// nth in the order of their numbers, which is the same in each process.
func (c *Member) mayTake(topic driver.Topic) []string {
	if c.cfg.Replicas == 0 {
		return topic.Partitions
	}
	ordered := slices.SortedFunc(slices.Values(topic.Partitions), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	var list []string
	for i, p := range ordered {
		if i%c.cfg.Replicas == c.cfg.Ordinal {
			list = append(list, p)
		}
	}
	return list
}

// Assignments is sluice.Consumer.Assignments.
func (c *Member) Assignments() []driver.Assignment {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]driver.Assignment, 0, len(c.held))
	for _, p := range slices.Sorted(maps.Keys(c.held)) {
		a := c.held[p]
		done, lag := a.Lag.State()
		list = append(list, driver.Assignment{Lease: a.Lease, Done: done, Lag: lag})
	}
	return list
}

// caughtUpEvery is how often CaughtUp looks whether the partitions have got on.
const caughtUpEvery = 100 * time.Millisecond

// CaughtUp is sluice.Consumer.CaughtUp.
func (c *Member) CaughtUp(ctx context.Context) error {
	var topic driver.Topic
	ends := map[string]int64{} // by partition; the last event that the log held
	err := c.ask(ctx, "describe topic", func(ctx context.Context) (err error) {
		topic, err = c.describeTopic(ctx)
		return err
	})
	for err == nil {
		held := c.Assignments()
		waits := len(held) < c.least(topic)
		for _, a := range held {
			p := a.Lease.Partition
			end, known := ends[p]
			if !known {
				err = c.ask(ctx, "ask for the end of partition "+p, func(ctx context.Context) error {
					bounds, err := c.source.Bounds(ctx, p)
					end = bounds.Last.Sequence
					return err
				})
				if err != nil {
					break
				}
				ends[p] = end
			}
			waits = waits || a.Done < end
		}
		if err == nil && !waits {
			return nil
		}
		select {
		case <-c.done:
			return fmt.Errorf("wait until caught up: %w", driver.ErrStopped)
		default:
		}
		if err == nil {
			err = c.cfg.Clock.Sleep(ctx, caughtUpEvery)
		}
	}
	if !c.running.Load() {
		return fmt.Errorf("wait until caught up: nothing has called Run: %w", err)
	}
	return fmt.Errorf("wait until caught up: %w", err)
}

// least returns how many partitions the consumer must hold before it can have caught up: as many as
// are configured; where they are balanced, one.
func (c *Member) least(topic driver.Topic) int {
	all := len(c.mayTake(topic))
	switch {
	case c.cfg.Partitions < 0:
		return min(1, all)
	case c.cfg.Partitions > 0:
		return min(c.cfg.Partitions, all)
	}
	return all
}

// ask calls the source, again and again while it fails, until ctx or the consumer ends or the
// source refuses.
func (c *Member) ask(ctx context.Context, what string, call func(ctx context.Context) error) error {
	wait := c.cfg.Backoff(nil)
	for {
		asking, cancel := context.WithTimeout(ctx, c.cfg.LeaseFor/3)
		err := engine.CallDriver(func() error { return call(asking) })
		cancel()
		if err == nil || errors.Is(err, driver.ErrRefused) {
			return err
		}
		ended := c.cfg.Clock.Sleep(ctx, wait.Next())
		select {
		case <-c.done:
			ended = cmp.Or(ended, driver.ErrStopped)
		default:
		}
		if ended != nil {
			return fmt.Errorf("%w: %s: %w", ended, what, err)
		}
	}
}
