package limit

import (
	"context"
	"fmt"
	"time"
)

// Share is one partition's part of a rate: index is 0 to partitions-1, and the
// shares of all partitions add up to perSecond.
func Share(perSecond, partitions, index int) int {
	return (index+1)*perSecond/partitions - index*perSecond/partitions
}

// Shares is one process's part of a rate that a cluster keeps without
// coordination: the shares of the partitions that the process owns. A share
// counts only from a second after its partition was taken, and until it is
// given up: so the seconds in which two owners granted, one after the other,
// hold no more than the rate either. Its methods may be called from any
// goroutine.
//
// The shares of partitions that are idle, or that nobody owns, are not used.
type Shares struct {
	limiter    Limiter
	perSecond  int
	partitions int
	owned      map[int]time.Duration // since when each share counts
	next       time.Duration         // when the next one begins to
}

// NewShares makes the shares of a process that owns no partition yet. The rate
// is that of the whole cluster, and at least one per second for each partition.
func NewShares(perSecond, partitions int, clock Clock) (*Shares, error) {
	s := &Shares{partitions: partitions, owned: map[int]time.Duration{}, next: never}
	s.limiter.line.clock = clock
	s.limiter.opened = clock.Elapsed() - time.Second
	if err := s.check(perSecond); err != nil {
		return nil, err
	}
	s.perSecond = perSecond
	return s, nil
}

func (s *Shares) check(perSecond int) error {
	if s.partitions < 1 || perSecond < s.partitions || perSecond > MaxRate {
		return fmt.Errorf("rate limit %d per second for %d partitions: want one for each partition at least, and at most %d", perSecond, s.partitions, MaxRate)
	}
	return nil
}

// Wait is [Limiter.Wait]. While no share counts, it waits for one that does.
func (s *Shares) Wait(ctx context.Context, most int) (n int, err error) {
	return s.limiter.line.wait(ctx, s, max(most, 1))
}

// Own adds the share of a partition, from a second later on.
func (s *Shares) Own(partition int) {
	s.limiter.line.change(func(now time.Duration) {
		if _, ok := s.owned[partition]; !ok {
			s.owned[partition] = now + time.Second
		}
		s.sum(now)
	})
}

// Disown removes the share of a partition, at once: before its lease is given
// back, or as soon as it is lost.
func (s *Shares) Disown(partition int) {
	s.limiter.line.change(func(now time.Duration) {
		delete(s.owned, partition)
		s.sum(now)
	})
}

// SetRate changes the cluster's rate. Until every process has been told, some
// grant by the old rate.
func (s *Shares) SetRate(perSecond int) error {
	if err := s.check(perSecond); err != nil {
		return err
	}
	s.limiter.line.change(func(now time.Duration) {
		s.perSecond = perSecond
		s.sum(now)
	})
	return nil
}

// sum sets the limiter to the shares that count now.
func (s *Shares) sum(now time.Duration) {
	sum := 0
	s.next = now + never
	for partition, since := range s.owned {
		if since <= now {
			sum += Share(s.perSecond, s.partitions, partition)
		} else {
			s.next = min(s.next, since)
		}
	}
	s.limiter.setRate(now, sum)
}

func (s *Shares) take(now time.Duration, want int, waited bool) int {
	if now >= s.next {
		s.sum(now)
	}
	return s.limiter.take(now, want, waited)
}

func (s *Shares) due(now time.Duration, want int) time.Duration {
	return min(s.limiter.due(now, want), s.next)
}
