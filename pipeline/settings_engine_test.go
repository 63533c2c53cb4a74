package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// append appends events with a body of a size.
func (s *settings) append(n, size int) { s.appendTo("0", n, size) }

func (s *settings) appendTo(partition string, n, size int) {
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = strings.Repeat("x", size)
	}
	s.hub.Append(partition, sluicetest.Bodies(bodies...)...)
}

func TestPartitions(t *testing.T) {
	for value, want := range map[string]int{"all": 4, "balanced": 4, "3": 3} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, strings.Replace(plainFile, "partitions: all", "partitions: "+value, 1), 4)
			s.run(ignore, func() { time.Sleep(time.Minute) })
			if at := s.when(ofKind(driver.KindAcquired)); len(at) != want {
				t.Errorf("partitions: %s: %d are acquired, want %d", value, len(at), want)
			}
		})
	}
}

// TestStart: of three events each follows the one before after an hour, the last one after the
// start.
func TestStart(t *testing.T) {
	for start, want := range map[string]string{"earliest": "0 1 2", "latest": "2", "90m ago": "1 2", "sequence 1": "1 2"} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, strings.Replace(plainFile, "source:\n", "source:\n  start: "+start+"\n", 1), 1)
			for range 2 {
				s.append(1, 1)
				time.Sleep(time.Hour)
			}
			var got []string
			s.run(func(_ context.Context, _ *sluicetest.Tx, b sluice.Batch) error {
				for _, e := range b.Events {
					got = append(got, fmt.Sprint(e.Sequence))
				}
				return nil
			}, func() {
				time.Sleep(time.Minute)
				s.append(1, 1)
				time.Sleep(time.Minute)
			})
			if strings.Join(got, " ") != want {
				t.Errorf("start: %s: events %v, want %s", start, got, want)
			}
		})
	}
}

func TestBatch(t *testing.T) {
	for keys, want := range map[string]int{"": 1000, "batch: 30": 30} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, plainFile+keys, 1)
			s.append(1000, 1)
			most, all := 0, 0
			s.run(func(_ context.Context, _ *sluicetest.Tx, b sluice.Batch) error {
				most, all = max(most, len(b.Events)), all+len(b.Events)
				return nil
			}, func() { time.Sleep(time.Minute) })
			if most != want || all != 1000 {
				t.Errorf("%q: %d events in a batch, want %d; %d in all", keys, most, want, all)
			}
		})
	}
}

// TestLease: a lease is renewed as often as the file says, and lasts as long after its owner's
// death.
func TestLease(t *testing.T) {
	for keys, want := range map[string]struct {
		renewed int // in two minutes
		lasts   [2]time.Duration
	}{
		"":                              {12, [2]time.Duration{20 * time.Second, 30 * time.Second}},
		"lease: {for: 90s, renew: 30s}": {4, [2]time.Duration{60 * time.Second, 90 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, plainFile+keys, 1)
			var left time.Duration
			s.run(ignore, func() {
				time.Sleep(2 * time.Minute)
				list, err := s.leases.List(t.Context(), s.parts.Group)
				if err != nil || len(list) != 1 {
					t.Fatal(list, err)
				}
				left = list[0].Remaining
			})
			renewed := len(s.when(ofKind(driver.KindRenewed)))
			if renewed < want.renewed-1 || renewed > want.renewed+1 || left < want.lasts[0] || left > want.lasts[1] {
				t.Errorf("%q: renewed %d times, and it lasts %v more; want %d and between %v", keys, renewed, left, want.renewed, want.lasts)
			}
		})
	}
}

func TestRetry(t *testing.T) {
	for keys, want := range map[string]struct {
		attempts int
		wait     [2]time.Duration // between two
	}{
		"": {6, [2]time.Duration{0, 10 * time.Second}},
		"retry: {attempts: 6, min: 20s, max: 20s, later: none}": {6, [2]time.Duration{10 * time.Second, 30 * time.Second}},
		"retry: {attempts: 3, later: [30s]}":                    {4, [2]time.Duration{0, 10 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, plainFile+keys, 1)
			s.append(1, 1)
			var at []time.Time
			s.run(func(context.Context, *sluicetest.Tx, sluice.Batch) error {
				at = append(at, time.Now())
				return errors.New("not yet")
			}, func() { time.Sleep(20 * time.Minute) })
			if len(at) != want.attempts || at[2].Sub(at[1]) < want.wait[0] || at[2].Sub(at[1]) > want.wait[1] {
				t.Errorf("%q: attempts at %v, want %d, with waits between %v", keys, at, want.attempts, want.wait)
			}
			if at := s.when(ofKind(driver.KindParked)); len(at) != 1 {
				t.Errorf("%q: dead letters after %v", keys, at)
			}
		})
	}
}

func TestDeadLetterBodies(t *testing.T) {
	for keys, stored := range map[string]bool{
		"": true, "dead_letters: {body_limit: 1KiB}": true, "dead_letters: {body_limit: 10}": false, "dead_letters: {store_bodies: false}": false,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, plainFile+keys, 1)
			s.append(1, 100)
			s.run(func(context.Context, *sluicetest.Tx, sluice.Batch) error { return driver.Reject(errors.New("refused")) },
				func() { time.Sleep(time.Minute) })
			letters, err := s.store.List(t.Context(), s.parts.Group, sluice.DeadLetterFilter{})
			if err != nil || len(letters) != 1 || letters[0].HasBody != stored {
				t.Errorf("%q: dead letters %+v, %v", keys, letters, err)
			}
		})
	}
}

func TestCheckpointEvery(t *testing.T) {
	for keys, want := range map[string]int{"": 12, "checkpoint_every: 20s": 3} { // in a minute
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, plainTopic+keys, 1)
			s.pour(func(context.Context, *sluice.Event) error { return nil }, func() {
				for range 600 {
					s.append(1, 1)
					time.Sleep(100 * time.Millisecond)
				}
			})
			if at := s.when(ofKind(driver.KindCommitted)); len(at) < want-1 || len(at) > want+2 {
				t.Errorf("%q: checkpoints after %v, want about %d", keys, at, want)
			}
		})
	}
}

func TestRate(t *testing.T) {
	for keys, want := range map[string][2]time.Duration{ // 100 events are written between
		"":                   {0, 2 * time.Second},
		"rate: {events: 10}": {8 * time.Second, 12 * time.Second},
		// The process has one of two partitions, so half of the cluster's rate.
		"rate: {events: 10, cluster: true}": {16 * time.Second, 24 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, strings.Replace(plainTopic, "partitions: all", "partitions: 1", 1)+keys, 2)
			s.appendTo("0", 100, 1)
			s.appendTo("1", 100, 1)
			began := time.Now()
			var mu sync.Mutex
			written, last := 0, time.Duration(0)
			s.pour(func(context.Context, *sluice.Event) error {
				mu.Lock()
				defer mu.Unlock()
				written, last = written+1, time.Since(began)
				return nil
			}, func() { time.Sleep(time.Minute) })
			if written != 100 || last < want[0] || last > want[1] {
				t.Errorf("%q: %d events are written after %v, want it between %v", keys, written, last, want)
			}
		})
	}
}

// TestBacklog counts how many events are in flight, of which each takes a second.
func TestBacklog(t *testing.T) {
	for keys, want := range map[string]int{"": 100, "backlog: {events: 5}": 5, "backlog: {bytes: 16KiB}": 16} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, plainTopic+"order: none\n"+keys, 1)
			s.append(300, 1<<10)
			var mu sync.Mutex
			now, most := 0, 0
			s.pour(func(context.Context, *sluice.Event) error {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				now--
				return nil
			}, func() { time.Sleep(5 * time.Minute) })
			if most > want || most < want/3 {
				t.Errorf("%q: %d events in flight, want %d at most", keys, most, want)
			}
		})
	}
}

// TestBacklogAge has an event that is in flight for ever.
func TestBacklogAge(t *testing.T) {
	for keys, want := range map[string]struct {
		reported [2]time.Duration // it is reported
		ends     bool
	}{
		"":                                {[2]time.Duration{10 * time.Minute, 11 * time.Minute}, false},
		"backlog: {age: 2m}":              {[2]time.Duration{2 * time.Minute, 3 * time.Minute}, false},
		"backlog: {age: 2m, fatal: true}": {[2]time.Duration{2 * time.Minute, 3 * time.Minute}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := inMemory(t, plainTopic+keys, 1)
			s.append(1, 1)
			old := new(driver.BacklogError)
			released := make(chan struct{})
			err := s.fill(func(context.Context, *sluice.Event) error {
				<-released
				return nil
			}, func() {
				time.Sleep(15 * time.Minute)
				close(released)
			})
			at := s.when(func(o driver.Observation) bool { return errors.As(o.Err, &old) })
			if len(at) == 0 || at[0] < want.reported[0] || at[0] > want.reported[1] || errors.As(err, &old) != want.ends {
				t.Errorf("%q: reported after %v, want it between %v; the process ended with %v", keys, at, want.reported, err)
			}
		})
	}
}
