package health_test

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
)

// limitedSource is a topic of 100 partitions whose log limits how often it is asked. Each has one
// event.
type limitedSource struct {
	driver.Source
	bounds, described atomic.Int64
	incarnation       string
	asked             func(partition string) // unless it is nil
}

func (s *limitedSource) BoundsPerSecond() float64 { return 8 }

func (s *limitedSource) Describe(context.Context) (sluice.Topic, error) {
	s.described.Add(1)
	topic := sluice.Topic{Group: group, Incarnation: cmp.Or(s.incarnation, "i")}
	for i := range 100 {
		topic.Partitions = append(topic.Partitions, strconv.Itoa(i))
	}
	return topic, nil
}

func (s *limitedSource) Bounds(_ context.Context, partition string) (driver.Bounds, error) {
	s.bounds.Add(1)
	if s.asked != nil {
		s.asked(partition)
	}
	return driver.Bounds{}, nil
}

// TestSharedSource: a watcher takes what the consumer has asked, and asks for other partitions at
// its process's part of the pace.
func TestSharedSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newWorld()
		w.owners = map[string]string{"0": "a", "1": "b", "2": "c", "3": "d"} // so a quarter of 1 a second
		log := &limitedSource{}
		shared := health.NewSharedSource(log)
		watcher := health.NewWatcher(shared, w, w, nil)
		var last health.Report
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour+time.Second)
		defer cancel()
		seen := map[string]bool{}
		reports := int64(0) // 121, or 122: Run draws the time of the second at random
		watcher.Run(ctx, 30*time.Second, func(r health.Report) {
			last = r
			reports++
			for _, p := range r.Partitions {
				if !p.Unknown {
					seen[p.Partition] = true
				}
			}
			for i := range 20 { // the consumer's own
				if _, err := shared.Bounds(ctx, strconv.Itoa(i)); err != nil {
					t.Error(err)
				}
			}
		})
		if others := log.bounds.Load() - 20*reports; others > 910 || others < 800 {
			t.Errorf("asked for %d bounds in an hour, want 15 a minute", others)
		}
		if len(seen) != 100 {
			t.Errorf("saw %d partitions in an hour, want each of 100", len(seen))
		}
		unknown := 0
		for i, p := range last.Partitions {
			if p.Unknown {
				unknown++
			}
			if i < 20 && p.Unknown || p.Owner != w.owners[p.Partition] {
				t.Errorf("reported %+v", p)
			}
		}
		if len(last.Partitions) != 100 || unknown > 0 {
			t.Errorf("%d partitions, %d of them unknown: want 100, each asked for in the last 10 minutes", len(last.Partitions), unknown)
		}
		if n := log.described.Load(); n < 11 || n > 13 {
			t.Errorf("described the topic %d times in an hour, want once in 5 minutes", n)
		}
	})
}

// TestSharedSourceRecreated: what was known of a topic counts no more after it was deleted and
// created again.
func TestSharedSourceRecreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newWorld()
		w.checkpoints = map[string]int64{"0": 5}
		log := &fullSource{limitedSource: &limitedSource{incarnation: "before"}, first: 1000}
		shared := health.NewSharedSource(log)
		if _, err := shared.Describe(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if _, err := shared.Bounds(t.Context(), strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
		log.incarnation, log.first = "i", 0
		if _, err := shared.Describe(t.Context()); err != nil { // as a consumer does
			t.Fatal(err)
		}
		found, err := health.NewWatcher(shared, w, w, nil).Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if f.Kind == health.WarningExpired {
				t.Errorf("warned of events of the topic that was deleted: %+v", f)
			}
		}
	})
}

// TestUnknownPartition: a partition whose bounds are asked for seldom is not taken for stalled
// because its bounds were not known for long, nor for well because they are not known now.
func TestUnknownPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newWorld()
		w.owners = map[string]string{}
		for i := range 100 { // more processes than may ask within an hour
			w.owners[strconv.Itoa(i)] = "p" + strconv.Itoa(i)
		}
		w.checkpoints = map[string]int64{"99": 9}
		log := &lastSource{limitedSource: &limitedSource{}, last: 9}
		shared := health.NewSharedSource(log)
		watcher := health.NewWatcher(shared, w, w, &health.WatcherConfig{Now: time.Now})
		stalled := func(when string, want bool) {
			t.Helper()
			found, err := watcher.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := slices.ContainsFunc(found, func(f health.Warning) bool {
				return f.Kind == health.WarningStalled && slices.Equal(f.Partitions, []string{"99"})
			})
			if got != want {
				t.Errorf("%s: stalled: %v, want %v; %v", when, got, want, found)
			}
		}
		rest := func(d time.Duration) {
			t.Helper()
			for range d / (30 * time.Second) {
				time.Sleep(30 * time.Second)
				if _, err := watcher.Check(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		ask := func() {
			t.Helper()
			if _, err := shared.Bounds(t.Context(), "99"); err != nil {
				t.Fatal(err)
			}
		}
		stalled("the bounds are not known yet", false)
		ask()
		stalled("no event waits", false)
		rest(30 * time.Minute)
		stalled("the bounds are not known any more", false)
		rest(30 * time.Minute)
		log.last = 10
		ask()
		stalled("an event has just come", false)
		rest(6 * time.Minute)
		ask()
		stalled("it has waited for six minutes", true)
		rest(30 * time.Minute)
		stalled("and waits, as far as is known", true)
		w.checkpoints["99"] = 10
		stalled("the checkpoint has moved", false)
		log.last = 10_000
		ask()
		stalled("10,000 events wait", false)
		rest(20 * time.Minute)
		w.checkpoints["99"] = 5000
		rest(time.Minute)
		w.checkpoints["99"] = 10_000 // all are done while the bounds are not known
		rest(time.Hour)
		log.last++
		ask()
		stalled("another event has just come", false)
		w.checkpoints["99"], log.first = 1, 5
		ask()
		expired := func() bool {
			found, err := watcher.Check(t.Context())
			return err == nil && slices.ContainsFunc(found, func(f health.Warning) bool { return f.Kind == health.WarningExpired })
		}
		if !expired() {
			t.Error("no warning that retention has passed the checkpoint")
		}
		log.incarnation, w.incarnation = "another", "another"
		if _, err := shared.Describe(t.Context()); err != nil { // as a consumer does
			t.Fatal(err)
		}
		if expired() {
			t.Error("warned of events of the topic that was deleted")
		}
	})
}

// lastSource is a limitedSource whose partitions hold events up to last.
type lastSource struct {
	*limitedSource
	first, last int64
}

func (s *lastSource) Bounds(context.Context, string) (driver.Bounds, error) {
	return bounds(s.first, s.last), nil
}

// fullSource is a limitedSource whose partitions hold ten events.
type fullSource struct {
	*limitedSource
	first int64
}

func (s *fullSource) Bounds(context.Context, string) (driver.Bounds, error) {
	return bounds(s.first, s.first+9), nil
}

// TestSharedSourceUnownedFirst: a watcher that may not ask for all partitions asks for those
// without an owner, which no consumer asks for.
func TestSharedSourceUnownedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newWorld()
		w.owners = map[string]string{}
		for i := range 100 {
			if i%20 != 7 {
				w.owners[strconv.Itoa(i)] = "b"
			}
		}
		var mu sync.Mutex
		asked := map[string]int{}
		log := &limitedSource{asked: func(partition string) {
			mu.Lock()
			defer mu.Unlock()
			asked[partition]++
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		health.NewWatcher(health.NewSharedSource(log), w, w, nil).Run(ctx, 30*time.Second, func(health.Report) {})
		for _, p := range []string{"7", "27", "47", "67", "87"} {
			if asked[p] < 19 {
				t.Errorf("partition %s, which nobody owns, was asked for %d times in 20 checks", p, asked[p])
			}
		}
		if len(asked) != 100 {
			t.Errorf("asked for %d partitions in 10 minutes, want all 100", len(asked))
		}
	})
}
