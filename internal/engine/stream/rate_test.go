package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
)

// A partition that is stuck stops at its share, and the others go on.
func TestStreamBackPressure(t *testing.T) {
	stage(t, 2, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 5000, enginetest.NoKey)
		s.SendKeyed("1", 5000, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		w.Takes = func(e *sluice.Event) time.Duration {
			if e.Partition == "0" {
				return time.Hour
			}
			return time.Millisecond
		}
		cfg := &sluice.AtLeastOnceConfig{MaxEvents: 1000, MaxAge: time.Minute}
		_, stop := s.Pour(w, cfg, sluice.Config{})
		time.Sleep(50 * time.Second)
		if got := s.Position("1"); got != 4999 {
			t.Errorf("the other partition is at %d, want 4999", got)
		}
		if got := s.Count(driver.KindFailed); got != 0 {
			t.Errorf("%d errors before the age limit", got)
		}
		time.Sleep(30 * time.Second)
		w.Mu.Lock()
		stuck := w.Flying[""]
		w.Mu.Unlock()
		if stuck == 0 || stuck > 500 {
			t.Errorf("the sink has %d, want at most 500", stuck)
		}
		var old *driver.BacklogError
		for _, o := range s.Observations() {
			if o.Kind == driver.KindFailed && errors.As(o.Err, &old) {
				break
			}
		}
		if old == nil || old.Partition != "0" || old.Sequence != 0 || old.InFlight != 500 {
			t.Errorf("age: %+v", old)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { _ = stop() }()
		<-ctx.Done()
	})
}

func TestStreamAgeIsFatal(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 10, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		w.Takes = func(e *sluice.Event) time.Duration { return time.Hour }
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, &sluice.AtLeastOnceConfig{AgeFatal: true}), nil))
		began := time.Now()
		err := c.Run(t.Context())
		var old *driver.BacklogError
		if took := time.Since(began); !errors.As(err, &old) || took < 10*time.Minute || took > 10*time.Minute+10*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// An event that waits for the rate is not too old.
func TestStreamAgeCountsFromTheSubmission(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 5000, enginetest.NoKey)
		cfg := &sluice.AtLeastOnceConfig{Rate: enginetest.Must(sluice.NewRate(50)), MaxAge: 5 * time.Second, AgeFatal: true}
		_, stop := s.Pour(enginetest.NewWarehouse(t), cfg, sluice.Config{})
		time.Sleep(30 * time.Second)
		if got := s.Errors(driver.KindFailed); len(got) != 0 {
			t.Errorf("%d errors, the first: %s", len(got), got[0])
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// MaxBytes bounds what is in flight, bodies and properties, to one event more at most.
func TestStreamMaxBytes(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		const size = 200 << 10
		events := make([]*sluice.Event, 200)
		for i := range events {
			events[i] = &sluice.Event{Body: make([]byte, size/2), Properties: map[string]any{"p": strings.Repeat("x", size/2)}}
		}
		s.Hub.Append("0", events...)
		w := enginetest.NewWarehouse(t)
		w.Takes = func(*sluice.Event) time.Duration { return time.Minute }
		_, stop := s.Pour(w, &sluice.AtLeastOnceConfig{MaxBytes: 1 << 20}, sluice.Config{})
		time.Sleep(90 * time.Minute)
		most := 0
		for _, o := range s.Observations() {
			most = max(most, o.InFlight)
		}
		if most < 5 || most > 6 {
			t.Errorf("%d events of 200 KiB in flight, want 1 MiB at most", most)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestStreamRate(t *testing.T) {
	stage(t, 4, func(s *scene) {
		t := s.T
		for p := range 4 {
			s.SendKeyed(fmt.Sprint(p), 1000, enginetest.NoKey)
		}
		w := enginetest.NewWarehouse(t)
		w.Says = func(e *sluice.Event, attempt int) error { // retries count
			if attempt%7 == 0 {
				return driver.RetryAfter(errors.New("429"), 10*time.Millisecond)
			}
			return nil
		}
		rate := enginetest.Must(sluice.NewRate(100))
		_, stop := s.Pour(w, &sluice.AtLeastOnceConfig{Rate: rate}, sluice.Config{})
		time.Sleep(20 * time.Second)
		if err := rate.Set(50); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		window(t, w.Sent, 100)
		if n := len(w.Sent); n < 20*99+10*49-100 || n > 20*100+10*50+1 {
			t.Errorf("%d sent in 20 s at 100/s and 10 s at 50/s", n)
		}
	})
}

// How long the rate holds records back is told while it does, and only then.
func TestStreamTellsOfTheRate(t *testing.T) {
	stage(t, 2, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 15, enginetest.NoKey)
		s.SendKeyed("1", 15, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		waited := func() (sum, most time.Duration) {
			for _, o := range s.Observations() {
				sum, most = sum+o.Waited, max(most, o.Waited)
				if o.Waited != 0 && o.Kind != driver.KindWritten {
					t.Errorf("told with %v: %v", o.Kind, o.Waited)
				}
			}
			return sum, most
		}
		rate := enginetest.Must(sluice.NewRate(1))
		_, stop := s.Pour(w, &sluice.AtLeastOnceConfig{Rate: rate}, sluice.Config{})
		time.Sleep(20 * time.Second) // two partitions wait all the time, each for the other too
		if sum, most := waited(); sum < 35*time.Second || sum > 40*time.Second || most > 1100*time.Millisecond {
			t.Errorf("in 20 s %v, at most %v at once", sum, most)
		}
		if err := rate.Set(1000); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		before, _ := waited()
		s.SendKeyed("0", 1000, enginetest.NoKey)
		time.Sleep(5 * time.Second)
		if after, _ := waited(); after-before > 1500*time.Millisecond {
			t.Errorf("a second's work at the rate took %v of waiting", after-before)
		}
		quiet, _ := waited()
		time.Sleep(time.Minute)
		if after, _ := waited(); after != quiet {
			t.Errorf("with nothing to do %v", after-quiet)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// window sees that no second holds more than n.
func window(t *testing.T, sent []time.Time, n int) {
	t.Helper()
	for i := n; i < len(sent); i++ {
		if d := sent[i].Sub(sent[i-n]); d < time.Second {
			t.Fatalf("%d sent within %v", n+1, d)
		}
	}
}

// Two processes keep a cluster's rate, through a takeover too.
func TestStreamClusterRate(t *testing.T) {
	stage(t, 4, func(s *scene) {
		t := s.T
		for p := range 4 {
			s.SendKeyed(fmt.Sprint(p), 20000, enginetest.NoKey)
		}
		w := enginetest.NewWarehouse(t)
		run := func(owner string, n sluice.Partitions) *sluice.Consumer {
			cfg := &sluice.AtLeastOnceConfig{Rate: enginetest.Must(sluice.NewClusterRate(202))}
			return enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, cfg), &sluice.Config{Partitions: n, Owner: owner}))
		}
		var running sync.WaitGroup
		first, second := run("a", 4), run("b", 4)
		ctx, kill := context.WithCancel(t.Context())
		running.Go(func() { _ = first.Run(ctx) })
		time.Sleep(20 * time.Second)
		running.Go(func() { _ = second.Run(t.Context()) })
		time.Sleep(10 * time.Second)
		before := len(w.Rows())
		kill()
		time.Sleep(20 * time.Second)
		if err := second.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		running.Wait()
		window(t, w.Sent, 202)
		if n := len(w.Rows()); n < before+13*200 {
			t.Errorf("%d written after the takeover", n-before)
		}
		small := enginetest.Must(sluice.NewClusterRate(3))
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, &sluice.AtLeastOnceConfig{Rate: small}), &sluice.Config{Partitions: 1}))
		if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "3 a second for 4 partitions") {
			t.Errorf("a rate below the number of partitions: %v", err)
		}
	})
}

// growing is a topic that is given more partitions.
type growing struct {
	driver.Source
	partitions *atomic.Int64
}

func (g growing) Describe(ctx context.Context) (sluice.Topic, error) {
	topic, err := g.Source.Describe(ctx)
	topic.Partitions = topic.Partitions[:min(g.partitions.Load(), int64(len(topic.Partitions)))]
	return topic, err
}

// With more partitions each has a smaller share, those that were there too.
func TestStreamClusterRateOfMorePartitions(t *testing.T) {
	stage(t, 4, func(s *scene) {
		t := s.T
		for p := range 4 {
			s.SendKeyed(fmt.Sprint(p), 2000, enginetest.NoKey)
		}
		w := enginetest.NewWarehouse(t)
		source := growing{s.Hub, new(atomic.Int64)}
		source.partitions.Store(2)
		cfg := &sluice.AtLeastOnceConfig{Rate: enginetest.Must(sluice.NewClusterRate(20))}
		c := enginetest.Must(sluice.New(source, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, cfg), nil))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(30 * time.Second)
		source.partitions.Store(4)
		time.Sleep(2 * time.Minute)
		if err := errors.Join(c.Stop(t.Context()), <-ran); err != nil {
			t.Fatal(err)
		}
		window(t, w.Sent, 20)
		if n := len(w.Sent); n < 145*19 {
			t.Errorf("%d sent in 150 s at 20/s", n)
		}
	})
}

// Whoever had a partition before may have used its share of the second up to
// the last moment: so an owner sends nothing in its first.
func TestStreamClusterRateAfterTaking(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 10, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		_, stop := s.Pour(w, &sluice.AtLeastOnceConfig{Rate: enginetest.Must(sluice.NewClusterRate(10))}, sluice.Config{})
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		taken := s.Observations(driver.KindAcquired)[0].Time
		if after := w.Sent[0].Sub(taken); len(w.Sent) != 10 || after < time.Second || after > 1100*time.Millisecond {
			t.Errorf("%d sent, the first %v after the partition was taken, want 10, from one second on", len(w.Sent), after)
		}
	})
}
