package health_test

import (
	"cmp"
	"context"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/sluicetest"
)

var group = sluice.Group{Namespace: "ns", Topic: "hub", Name: "g"}

// world is a group that a test moves by hand.
type world struct {
	sluicetest.Hub
	now         time.Time
	topic       []string
	bounds      map[string]driver.Bounds
	checkpoints map[string]int64
	owners      map[string]string
	incarnation string // of the checkpoints; "i" if it is empty
	err         error
}

func (w *world) Describe(context.Context) (sluice.Topic, error) {
	return sluice.Topic{Group: group, Incarnation: "i", Partitions: w.topic}, w.err
}

func (w *world) Bounds(_ context.Context, partition string) (driver.Bounds, error) {
	return w.bounds[partition], nil
}

func (w *world) List(context.Context, sluice.Group) (list []driver.LeaseInfo, err error) {
	for p, owner := range w.owners {
		list = append(list, driver.LeaseInfo{Lease: sluice.Lease{Group: group, Partition: p, Owner: owner, Epoch: 1}, Remaining: time.Second})
	}
	return list, nil
}

func (w *world) Acquire(context.Context, sluice.Group, string, string, time.Duration, int64) (sluice.Lease, error) {
	panic("a watcher takes nothing")
}
func (w *world) Renew(context.Context, sluice.Lease, time.Duration) error { panic("nor renews") }
func (w *world) Release(context.Context, sluice.Lease) error              { panic("nor gives back") }
func (w *world) MarkBegan(context.Context, sluice.Lease, string) error    { panic("nor marks") }

func (w *world) Read(context.Context, sluice.Group) (list []sluice.Checkpoint, err error) {
	for p, n := range w.checkpoints {
		list = append(list, sluice.Checkpoint{Group: group, Partition: p, Incarnation: cmp.Or(w.incarnation, "i"), Position: sluice.Position{Sequence: n}})
	}
	return list, nil
}

func bounds(first, last int64) driver.Bounds {
	return driver.Bounds{First: first, Last: sluice.Position{Sequence: last}}
}

func newWorld() (*world, *health.Watcher) {
	w := &world{
		now: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC), topic: []string{"0", "1"},
		bounds:      map[string]driver.Bounds{"0": bounds(0, 99), "1": bounds(0, 99)},
		checkpoints: map[string]int64{"0": 99, "1": 99},
		owners:      map[string]string{"0": "a", "1": "b"},
	}
	return w, health.NewWatcher(w, w, w, &health.WatcherConfig{Now: func() time.Time { return w.now }})
}

// expect looks once and compares kinds, partitions and the beginning of texts.
func expect(t *testing.T, w *health.Watcher, want ...string) {
	t.Helper()
	found, err := w.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	ok := len(found) == len(want)
	for i, f := range found {
		got = append(got, string(f.Kind)+" "+strings.Join(f.Partitions, ",")+": "+f.Text)
		ok = ok && strings.HasPrefix(got[i], want[i])
	}
	if !ok {
		t.Errorf("it warns\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNothingToSay(t *testing.T) {
	w, watcher := newWorld()
	for range 100 {
		expect(t, watcher)
		w.now = w.now.Add(time.Minute)
		w.bounds["0"] = bounds(w.bounds["0"].First+10, w.bounds["0"].Last.Sequence+10)
		w.checkpoints["0"] += 10
	}
}

func TestPartitionsWithoutOwner(t *testing.T) {
	w, watcher := newWorld()
	delete(w.owners, "1")
	expect(t, watcher)
	w.now = w.now.Add(2 * time.Minute)
	expect(t, watcher, "under_capacity 1: Partition 1 has been without an owner for 2 minutes: one process holds 1 of 2 partitions")
	w.owners["~0"] = "a" // a member: shares are balanced
	expect(t, watcher, "unowned 1: Partition 1 has been")
	delete(w.owners, "~0")
	delete(w.owners, "0")
	expect(t, watcher, "unowned 1: Partition 1 has been")
	w.now = w.now.Add(2 * time.Minute)
	expect(t, watcher, "unowned 0,1: Partitions 0, 1 have been without an owner for 4 minutes: check that a consumer is running")
	w.owners["0"], w.owners["1"] = "a", "a"
	expect(t, watcher)
}

func TestCheckpointThatStandsStill(t *testing.T) {
	w, watcher := newWorld()
	expect(t, watcher)
	w.now = w.now.Add(time.Hour) // nothing waits: it may stand
	expect(t, watcher)
	w.bounds["0"] = bounds(0, 149)
	w.now = w.now.Add(4 * time.Minute)
	expect(t, watcher)
	w.now = w.now.Add(time.Minute)
	expect(t, watcher, "stalled 0: Partition 0: the checkpoint has been stuck at 99 for 5 minutes while 50 events wait.")
	w.checkpoints["0"] = 100
	expect(t, watcher)
}

func TestRetentionComesNear(t *testing.T) {
	w, watcher := newWorld()
	w.checkpoints["0"] = 1000
	at := func(minute int, first, checkpoint, last int64) {
		w.now = time.Date(2026, 1, 31, 8, minute, 0, 0, time.UTC)
		w.bounds["0"], w.checkpoints["0"] = bounds(first, last), checkpoint
	}
	at(0, 0, 1000, 5000)
	expect(t, watcher)
	at(10, 100, 1050, 5100) // 50 closer in ten minutes: 951 take 190 minutes
	expect(t, watcher)
	at(20, 300, 1100, 5200) // 200 closer in twenty: 801 take 80
	expect(t, watcher, "expiring 0: Partition 0: at this rate retention passes the checkpoint in 80 minutes")
	at(30, 1150, 1100, 5300)
	expect(t, watcher, "expired 0: Partition 0: retention removed 49 events before they were read, 1101 to 1149:")
	at(31, 1150, 1150, 5300)
	expect(t, watcher, "expiring")
}

// counter counts dead letters, or not.
type counter struct {
	list []driver.DeadLetterCount
	err  error
}

func (c *counter) Count(context.Context, sluice.Group, sluice.DeadLetterFilter) ([]driver.DeadLetterCount, error) {
	return c.list, c.err
}

// TestReports: a report has each partition, with its owner and how many events wait, and the dead
// letters.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newWorld()
		w.topic = []string{"0", "1", "2"}
		delete(w.owners, "1")
		began := time.Now()
		waits := bounds(0, 149)
		waits.LastEnqueued = began.Add(-time.Hour)
		w.bounds["0"], w.bounds["2"] = waits, bounds(10, 19) // 2 has no checkpoint
		dead := &counter{list: []driver.DeadLetterCount{{Partition: "0", Status: sluice.StatusDead, Count: 3}}}
		watcher := health.NewWatcher(w, w, w, &health.WatcherConfig{DeadLetters: dead})
		ctx, cancel := context.WithCancel(t.Context())
		var reports []health.Report
		watcher.Run(ctx, time.Minute, func(r health.Report) {
			reports = append(reports, r)
			switch len(reports) {
			case 1:
				dead.err = context.DeadlineExceeded
				w.bounds["1"] = bounds(0, 100)
			case 2:
				cancel()
			}
		})
		want := []health.PartitionReport{
			{Partition: "0", Owner: "a", Bounds: waits, Lag: 50, WaitingSince: began.Add(-time.Hour)},
			{Partition: "1", Bounds: bounds(0, 99)},
			{Partition: "2", Bounds: bounds(10, 19), Lag: 10, WaitingSince: began},
		}
		if first := reports[0]; !reflect.DeepEqual(first.Partitions, want) || !reflect.DeepEqual(first.DeadLetters, dead.list) || !first.At.Equal(began) {
			t.Errorf("the first report is %+v", first)
		}
		want[1] = health.PartitionReport{Partition: "1", Bounds: bounds(0, 100), Lag: 1, WaitingSince: began}
		if second := reports[1]; !reflect.DeepEqual(second.Partitions, want) || second.DeadLetters != nil || second.DeadLetterErr == nil || second.Err != nil {
			t.Errorf("the second report is %+v", second)
		}
	})
}

// slow counts dead letters for a while.
type slow struct {
	takes time.Duration
	times []time.Duration // when it was asked
	began time.Time
}

func (s *slow) Count(ctx context.Context, _ sluice.Group, _ sluice.DeadLetterFilter) ([]driver.DeadLetterCount, error) {
	s.times = append(s.times, time.Since(s.began))
	select {
	case <-time.After(s.takes):
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestSlowCount: a store that counts slowly is asked less often, and warnings come at their time.
func TestSlowCount(t *testing.T) {
	for takes, want := range map[time.Duration][]time.Duration{
		0:               {0, 30 * time.Second, time.Minute, 90 * time.Second, 2 * time.Minute},
		5 * time.Second: {0, 2 * time.Minute},
		time.Hour:       {0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := newWorld()
			s := &slow{takes: takes, began: time.Now()}
			watcher := health.NewWatcher(w, w, w, &health.WatcherConfig{DeadLetters: s})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute+20*time.Second)
			defer cancel()
			checks := 0
			watcher.Run(ctx, 30*time.Second, func(r health.Report) { checks++ })
			if !reflect.DeepEqual(s.times, want) || checks != 5 {
				t.Errorf("a count of %v: asked at %v in %d checks, want %v in 5", takes, s.times, checks, want)
			}
		})
	}
}

func TestHubThatGrew(t *testing.T) {
	w, watcher := newWorld()
	expect(t, watcher)
	w.topic = []string{"0", "1", "2"}
	w.bounds["2"], w.owners["2"] = bounds(0, -1), "a"
	expect(t, watcher, "partitions_added 2: There are 3 partitions, and there were 2")
}

func TestRunTellsWhatBeganAndEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newWorld()
		watcher := health.NewWatcher(w, w, w, nil)
		delete(w.owners, "1")
		ctx, cancel := context.WithCancel(t.Context())
		var log []string
		looks := 0
		watcher.Run(ctx, time.Minute, func(l health.Report) {
			looks++
			for _, b := range l.Began {
				log = append(log, "began "+string(b.Kind))
			}
			for _, e := range l.Ended {
				log = append(log, "ended "+string(e.Kind))
			}
			switch looks {
			case 4:
				w.err = context.DeadlineExceeded
			case 5:
				if l.Err == nil || len(l.Warnings) != 1 {
					t.Errorf("unable to see it says %+v", l)
				}
				w.err = nil
				w.owners["1"] = "b"
			case 7:
				cancel()
			}
		})
		if got := strings.Join(log, ", "); got != "began under_capacity, ended under_capacity" {
			t.Errorf("it reported %s", got)
		}
	})
}
