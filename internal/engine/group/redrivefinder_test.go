package group_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// findingStore finds redrives as find does for a time, and counts the requests.
type findingStore struct {
	*sluicetest.Store
	find func(ctx context.Context) error
	end  time.Time

	mu                   sync.Mutex
	requests, open, most int
	looks                int // at one partition
}

func (s *findingStore) Due(ctx context.Context, group sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error) {
	s.mu.Lock()
	s.looks++
	s.mu.Unlock()
	return s.Store.Due(ctx, group, partition, limit)
}

func (s *findingStore) DuePartitions(ctx context.Context, group sluice.Group, partitions []string) ([]string, error) {
	s.mu.Lock()
	s.requests++
	s.open++
	s.most = max(s.most, s.open)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	}()
	if time.Now().Before(s.end) {
		if err := s.find(ctx); err != nil {
			return nil, err
		}
	}
	return s.Store.DuePartitions(ctx, group, partitions)
}

// TestRedrivesAreFoundTogether: one request at a time asks for all partitions of a process,
// whatever becomes of it, and a request that fails is reported once.
func TestRedrivesAreFoundTogether(t *testing.T) {
	const partitions = 20
	for name, try := range map[string]struct {
		find                        func(ctx context.Context) error
		leastRequests, mostRequests int // in a minute
		leastReported, mostReported int // failures
	}{
		"answered":           {func(context.Context) error { return nil }, 58, 62, 0, 0},
		"failed":             {func(context.Context) error { return errors.New("no") }, 58, 62, 58, 62},
		"ends its goroutine": {func(context.Context) error { runtime.Goexit(); return nil }, 58, 62, 58, 62},
		"slow":               {func(context.Context) error { time.Sleep(2 * time.Second); return nil }, 18, 22, 0, 0},
		// Each partition waits for a third of the lease, and its own error says so.
		"silent":                      {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 2, 7, 2 * partitions, 7 * partitions},
		"silent, ignores its context": {func(context.Context) error { time.Sleep(time.Minute); return nil }, 1, 2, 2 * partitions, 7 * partitions},
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, partitions, func(s *scene) {
				s.LeaveDeadLetters(sluice.Config{})
				store := &findingStore{Store: s.Store, find: try.find, end: time.Now().Add(time.Minute)}
				before := s.Count(driver.KindFailed)
				c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Transactional(store, enginetest.InsertRedriven), &sluice.Config{Owner: "a", AssignBurst: partitions, Observer: s}))
				ran := make(chan error, 1)
				go func() { ran <- c.Run(s.T.Context()) }()
				time.Sleep(time.Minute)
				store.mu.Lock()
				requests, most := store.requests, store.most
				store.mu.Unlock()
				if requests < try.leastRequests || requests > try.mostRequests || most != 1 {
					s.T.Errorf("%d requests in a minute, %d at once; want %d to %d, one at a time", requests, most, try.leastRequests, try.mostRequests)
				}
				if reported := s.Count(driver.KindFailed) - before; reported < try.leastReported || reported > try.mostReported {
					s.T.Errorf("%d failures were reported, want %d to %d: %v", reported, try.leastReported, try.mostReported, s.Observations(driver.KindFailed))
				}
				s.RedriveAll()
				time.Sleep(31 * time.Second)
				if left := len(s.Letters()); left != 0 {
					s.T.Errorf("%d dead letters are left 31 s after the store answers", left)
				}
				if err := c.Stop(s.T.Context()); err != nil || <-ran != nil {
					s.T.Error(err)
				}
			})
		})
	}
}

// redrives makes a dead letter in each of n partitions, and marks it for redrive.
func (s *scene) redrives(n int) {
	for p := range n {
		s.Send(strconv.Itoa(p), "reject")
	}
	_, end := s.Consume("before", enginetest.InsertRedriven, sluice.Config{})
	time.Sleep(time.Minute)
	end()
	s.RedriveAll()
}

// TestNoPartitionLooksAfterFailure: where the request for all partitions fails, none of them asks
// the store by itself, whichever began the request, and also if its redrives are in progress.
func TestNoPartitionLooksAfterFailure(t *testing.T) {
	stage(t, 5, func(s *scene) {
		s.redrives(5)
		began := time.Now()
		store := &findingStore{Store: s.Store, end: began.Add(time.Hour), find: func(context.Context) error {
			if time.Since(began) < 5*time.Second {
				return nil
			}
			return errors.New("no")
		}}
		slow := enginetest.Must(sluice.Workers(5, func(context.Context, *sluice.Event) error { time.Sleep(time.Minute); return nil }))
		s.RunWhile(sluice.AtLeastOnce(store, sluice.EventAsRecord, slow, nil), sluice.Config{AssignBurst: 5}, func() {
			looks := func() int {
				store.mu.Lock()
				defer store.mu.Unlock()
				return store.looks
			}
			time.Sleep(10*time.Second + 500*time.Millisecond)
			before := looks()
			time.Sleep(30 * time.Second)
			if n := looks() - before; before == 0 || n > 0 {
				s.T.Errorf("%d looks at single partitions while the store answers, and %d in 30 s in which it does not: want some, none", before, n)
			}
			time.Sleep(time.Minute)
		})
		if left := len(s.Letters()); left != 0 {
			s.T.Errorf("%d of 5 dead letters are left", left)
		}
	})
}

// TestRedrivesOfPartitionsAcquiredLater: a partition that is acquired after the store was asked
// does not wait until it is asked again.
func TestRedrivesOfPartitionsAcquiredLater(t *testing.T) {
	stage(t, 10, func(s *scene) {
		s.redrives(10)
		_, end := s.Consume("a", enginetest.InsertRedriven, sluice.Config{RedriveEvery: time.Hour})
		time.Sleep(time.Minute)
		if left := len(s.Letters()); left != 0 {
			s.T.Errorf("%d of 10 dead letters are left a minute after the start", left)
		}
		end()
	})
}
