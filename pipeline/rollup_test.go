package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// scene is a hub whose clean flights a rollup reads, and what it publishes, in
// virtual time. The sink is the test's own: how a hub takes messages is not
// what this is about.
type scene struct {
	t        *testing.T
	hub      *sluicetest.Hub
	leases   sluicetest.Leases
	worker   *rollupWorker
	reported []string
	memory   *sluice.Memory

	mu        sync.Mutex
	published []string
	refuse    func(m *sender.Message) error
}

func play(t *testing.T, fn func(t *testing.T, s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fn(t, &scene{t: t, hub: sluicetest.NewHub(sluice.Group{Namespace: "n", Topic: "clean", Name: "g"}, 1)})
	})
}

func (s *scene) Submit(_ context.Context, m *sender.Message, done func(driver.WriteResult)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.refuse != nil {
		err = s.refuse(m)
	}
	if err == nil {
		s.published = append(s.published, m.Key+" "+string(m.Body))
	}
	done(driver.WriteResult{Err: err})
}

func (s *scene) Observe(o driver.Observation) {
	if o.Kind == driver.KindFailed {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reported = append(s.reported, o.Err.Error())
	}
}

// start runs the stage named figures of the sound file; what it returns stops
// it.
func (s *scene) start() func() {
	s.t.Helper()
	f, err := ParseFile("p.yaml", []byte(soundStages), environment())
	if err != nil {
		s.t.Fatal(err)
	}
	p := f.Stages[1]
	s.worker = newRollupWorker(p)
	c, err := sluice.New(s.worker.wrapSource(s.hub), &s.leases, s.worker.deliverTo(s, s), &sluice.Config{Partitions: p.Partitions, Observer: s, MaxBatch: 2, Memory: s.memory})
	if err != nil {
		s.t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- c.Run(s.t.Context()) }()
	time.Sleep(5 * time.Second)
	return func() {
		if err := errors.Join(c.Stop(s.t.Context()), <-ran); err != nil {
			s.t.Error(err)
		}
	}
}

// flight adds one that leaves now.
func (s *scene) flight(airport string, delay int) {
	s.hub.Append("0", sluicetest.Bodies(fmt.Sprintf(`{"airport":%q,"departure":%q,"delay":%d}`, airport, time.Now().UTC().Format(time.RFC3339), delay))...)
}

// now returns what was published and reported since the last call.
func (s *scene) now() (published, reported []string) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	published, reported = s.published, s.reported
	s.published, s.reported = nil, nil
	return published, reported
}

func (s *scene) expect(what string, want ...string) {
	s.t.Helper()
	got, _ := s.now()
	if !slices.Equal(got, want) {
		s.t.Errorf("%s: published %q, want %q", what, got, want)
	}
}

func figuresOf(airport string, hour time.Time, flights, delay, worst, version int) string {
	return fmt.Sprintf(`%s {"airport":%q,"hour":%q,"flights":%d,"delay":%d,"worst":%d,"version":%d}`,
		airport, airport, hour.UTC().Truncate(time.Hour).Format(time.RFC3339), flights, delay, worst, version)
}

// What a rollup keeps is charged to the budget. Without memory for more groups it says so, and
// gives back what it had.
func TestRollupIsCharged(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.memory = sluice.NewMemory(16 << 20)
		stop := s.start()
		for i := range 1000 {
			s.flight(fmt.Sprint("A", i), 1)
		}
		time.Sleep(time.Second)
		if used, _ := s.memory.Charged(); used < 1000*256 {
			t.Errorf("%d bytes are charged for 1,000 groups", used)
		}
		stop()
		if used, _ := s.memory.Charged(); used != 0 {
			t.Errorf("%d bytes are charged at the end", used)
		}
		s.memory = sluice.NewMemory(3 << 20) // about 1.7 MiB beside floors
		stop = s.start()
		for i := range 20_000 {
			s.flight(fmt.Sprint("B", i), 1)
		}
		time.Sleep(time.Minute)
		if _, reported := s.now(); !slices.ContainsFunc(reported, func(text string) bool { return strings.Contains(text, "the process has no memory for more groups") }) {
			t.Errorf("reported %q", reported)
		}
		stop()
		if used, _ := s.memory.Charged(); used != 0 {
			t.Errorf("%d bytes are charged at the end", used)
		}
	})
}

func TestRollupIsPublishedAfterCatchUp(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		first := time.Now() // midnight
		s.flight("SAN", 5)
		s.flight("SMF", -3)
		s.flight("SAN", 2)
		stop := s.start()
		s.expect("at first", figuresOf("SAN", first, 2, 7, 5, 2), figuresOf("SMF", first, 1, -3, -3, 1))
		if all, err := s.worker.Read(t.Context(), sluice.Group{}); err != nil || len(all) != 1 || all[0].Position.Sequence != 2 || all[0].Incarnation == "" {
			t.Errorf("stands at %+v, %v", all, err)
		}
		s.flight("SAN", 9)
		s.expect("then", figuresOf("SAN", first, 3, 16, 9, 3))
		stop()
		if all, _ := s.worker.Read(t.Context(), sluice.Group{}); len(all) != 0 || len(s.worker.partitions) != 0 {
			t.Errorf("still in memory: %+v", all)
		}
		s.flight("SAN", 1)
		defer s.start()()
		s.expect("from the start again", figuresOf("SAN", first, 4, 17, 9, 4), figuresOf("SMF", first, 1, -3, -3, 1))
	})
}

// A log that is read from its very first event has every event of a group.
func TestRollupOfLogYoungerThanKeep(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		time.Sleep(10 * time.Minute)
		begin := time.Now()
		s.flight("SAN", 1)
		time.Sleep(23*time.Hour + 55*time.Minute) // read from five past midnight on
		defer s.start()()
		s.expect("the first hour", figuresOf("SAN", begin, 1, 1, 1, 0))
	})
}

// Groups that lie partly before the last 24 hours are not published; complete ones are.
func TestRollupPublishesCompleteGroupsOnly(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		begin := time.Now()
		for range 60 { // one flight each half hour, for 30 hours
			s.flight("SAN", 1)
			time.Sleep(30 * time.Minute)
		}
		stop := s.start()
		published, _ := s.now()
		// 24 hours ago it was 06:00: the hour from then on is not whole, for its
		// flights may come five minutes early. The next one is.
		if want := figuresOf("SAN", begin.Add(7*time.Hour), 2, 2, 1, 15); len(published) != 23 || published[0] != want {
			t.Errorf("%d groups, the first %s, want %s", len(published), published[0], want)
		}
		if so := s.worker.stats; so.Counted != 46 || so.Incomplete != 2 {
			t.Errorf("counted %+v", so)
		}
		stop()

		// A log that reaches back less far: nobody knows what came before.
		s.hub.Trim("0", 21) // its first event is that of 10:30
		stop = s.start()
		published, _ = s.now()
		if want := figuresOf("SAN", begin.Add(11*time.Hour), 2, 2, 1, 23); len(published) != 19 || published[0] != want {
			t.Errorf("after retention %d groups, the first %s, want %s", len(published), published[0], want)
		}
		stop()

		// And one that has forgotten everything, long before the memory reaches back.
		s.hub.Trim("0", 60)
		time.Sleep(30 * time.Hour)
		defer s.start()()
		s.expect("of an empty hub")
		s.flight("SAN", 4)
		s.expect("and then", figuresOf("SAN", time.Now(), 1, 4, 4, 60))
	})
}

func TestEventsThatDoNotCountAreReported(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		defer s.start()()
		s.hub.Append("0", sluicetest.Bodies(`{"airport":"SAN"}`, `{}`, `odd`, `{"airport":"SAN","departure":"2026-01-31T08:00:00Z","delay":1e39}`,
			`{"airport":"`+strings.Repeat("X", 129)+`","departure":"2026-01-31T08:00:00Z"}`)...)
		s.hub.Append("0", sluicetest.Bodies(`{"airport":"SAN","departure":"2000-01-01T01:00:00Z"}`)...)
		s.hub.Append("0", &sluice.Event{Body: []byte(`{"airport":"SAN","departure":"2026-01-31T08:00:00Z","delay":1}`), Undecodable: "no map"})
		s.flight("SAN", 1)
		published, reported := s.now()
		if len(published) != 1 || len(reported) != 7 || s.worker.stats.Malformed != 6 || s.worker.stats.OutsideWindow != 1 {
			t.Errorf("published %q, reported %q", published, reported)
		}
		for i, want := range []string{
			"event 0 does not count: field hour: body.departure: is missing", "event 1 does not count: field airport: body.airport: is missing",
			"event 2 does not count: body: ", "event 3 does not count: field delay: body.delay: is a number of more than 38 digits",
			"event 4 does not count: field airport: body.airport: is too long for a value of a group",
			"event 5 does not count: it was enqueued at 2000-01-01T00:00:05Z, which is not from 5m0s before to 12h0m0s after 2000-01-01T01:00:00Z",
			"event 6 does not count: it cannot be decoded (no map)",
		} {
			if !strings.HasPrefix(reported[i], want) {
				t.Errorf("reported %q, want %q", reported[i], want)
			}
		}
	})
}

// Duplicates are known by their stamps. An event whose stamp cannot be read is no
// duplicate, and such a stamp is reported once.
func TestRollupIgnoresDuplicates(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		defer s.start()()
		begin := time.Now()
		stamped := map[string]any{}
		stamp.Stamp{ID: stamp.CausationID{Source: "flights@1", Partition: "0", Sequence: 7}, Low: -1}.SetTo(stamped)
		body := fmt.Appendf(nil, `{"airport":"SAN","departure":%q,"delay":1}`, begin.UTC().Format(time.RFC3339))
		for _, properties := range []map[string]any{stamped, stamped, nil, nil, {"sluice-id": "odd"}, {"sluice-id": 7}, stamped} {
			s.hub.Append("0", &sluice.Event{Body: body, Properties: properties})
		}
		published, reported := s.now()
		if len(reported) != 1 || !strings.HasPrefix(reported[0], `stamp of event 4 does not count: causation id "odd": `) || published[len(published)-1] != figuresOf("SAN", begin, 5, 5, 1, 5) {
			t.Errorf("published %q, reported %q", published, reported)
		}
		if so := s.worker.stats; so.Counted != 5 || so.Duplicates != 2 {
			t.Errorf("counted %+v", so)
		}
	})
}

func TestPublishingIsRetriedUntilItSucceeds(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		defer s.start()()
		tries := 0
		s.refuse = func(m *sender.Message) error {
			switch tries++; {
			case m.Key == "odd":
				return driver.Reject(errors.New("too large"))
			case tries < 6:
				return driver.Outage(errors.New("away"))
			}
			return nil
		}
		s.flight("SAN", 1)
		time.Sleep(time.Minute)
		published, reported := s.now()
		if len(published) != 1 || len(reported) != 5 || reported[0] != "publish 1 messages: away" {
			t.Errorf("published %q, reported %q", published, reported)
		}
		s.flight("odd", 1)
		s.flight("SMF", 1)
		time.Sleep(time.Minute)
		published, reported = s.now()
		if len(published) != 1 || len(reported) != 1 || reported[0] != "statistics of odd are not published: too large" {
			t.Errorf("published %q, reported %q", published, reported)
		}
	})
}

// A position counts once everything up to it is published: neither what was read to catch up, nor
// what the hub does not take.
func TestRollupStandsWhereItHasPublished(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		stands := func(what string, want ...int64) {
			t.Helper()
			synctest.Wait()
			all, err := s.worker.Read(t.Context(), sluice.Group{})
			var got []int64
			for _, c := range all {
				got = append(got, c.Position.Sequence)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: stands at %v, want %v (%v)", what, got, want, err)
			}
		}
		var away atomic.Bool
		s.refuse = func(*sender.Message) error {
			if away.Load() {
				return driver.Outage(errors.New("away"))
			}
			return nil
		}
		away.Store(true)
		for range 5 { // two batches, and a part of the third
			s.flight("SAN", 1)
		}
		defer s.start()()
		stands("before the first publication")
		away.Store(false)
		time.Sleep(time.Minute)
		stands("after it", 4)
		away.Store(true)
		s.flight("SAN", 1)
		stands("before the second one", 4)
		away.Store(false)
		time.Sleep(time.Minute)
		stands("after it", 5)
	})
}

// Where retention has removed events, those of the first one's moment may be among them: a group
// that can have such an event is not published.
func TestRollupAfterRetentionWithinAMoment(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		begin := time.Now() // midnight
		time.Sleep(10*time.Hour + 55*time.Minute)
		for range 2 { // as early as events of the hour from 11:00 on may come
			s.hub.Append("0", sluicetest.Bodies(fmt.Sprintf(`{"airport":"SAN","departure":%q,"delay":1}`, begin.Add(11*time.Hour).UTC().Format(time.RFC3339)))...)
		}
		time.Sleep(65 * time.Minute)
		s.flight("SAN", 1) // at 12:00
		s.hub.Trim("0", 1)
		time.Sleep(11 * time.Hour) // all that is left is younger than the statistics are kept
		defer s.start()()
		published, _ := s.now()
		if len(published) != 1 || published[0] != figuresOf("SAN", begin.Add(12*time.Hour), 1, 1, 1, 2) || s.worker.stats.Incomplete != 1 {
			t.Errorf("published %q, %+v", published, s.worker.stats)
		}
	})
}

// After a long outage the next hub has the statistics soon.
func TestPublishingSoonAfterAnOutage(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		defer s.start()()
		var away atomic.Bool
		s.refuse = func(*sender.Message) error {
			if away.Load() {
				return driver.Outage(errors.New("away"))
			}
			return nil
		}
		away.Store(true)
		s.flight("SAN", 1)
		time.Sleep(5 * time.Hour)
		away.Store(false)
		time.Sleep(11 * time.Second)
		s.expect("after the outage", figuresOf("SAN", time.Now().Add(-5*time.Hour-11*time.Second), 1, 1, 1, 0))
	})
}

func TestRollupHasOneConsumer(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		defer s.start()()
		if _, err := s.worker.deliver(t.Context(), &Parts{}, nil, telemetry{}); err == nil || !strings.HasPrefix(err.Error(), "a pipeline with memory has one consumer") {
			t.Errorf("got %v", err)
		}
	})
}

// A stop ends the wait for a hub that cannot be reached.
func TestStopWhileTheNextHubIsAway(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.refuse = func(*sender.Message) error { return driver.Outage(errors.New("away")) }
		s.flight("SAN", 1)
		f, err := ParseFile("p.yaml", []byte(soundStages), environment())
		if err != nil {
			t.Fatal(err)
		}
		s.worker = newRollupWorker(f.Stages[1])
		c, err := sluice.New(s.worker.wrapSource(s.hub), &s.leases, s.worker.deliverTo(s, s), &sluice.Config{Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		if err := c.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stop: %v", err)
		}
		<-ran
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("the stop took %v", took)
		}
	})
}
