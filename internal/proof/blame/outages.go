package blame

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sluiceotel"
	"github.com/sluice-go/sluice/sluicetest"
)

// holdVariable is how long an alteration lasts, such as 300s in make soak. By default each lasts 10
// to 30 s.
const holdVariable = "SLUICE_ALTERED_FOR"

const (
	movesWithin = 10 * time.Second // a partition moves so soon after its table is back
	stallAfter  = 3 * time.Second
	reportedIn  = stallAfter + 5*time.Second
)

// Alteration is what an operator does to the table of a statement, and undoes.
type Alteration struct{ Name, Statement, Broken, Mended string }

// service is a consumer at work with the settings of a service, while a producer sends.
type service struct {
	t       *testing.T
	group   sluice.Group
	letters func() []sluice.DeadLetter
	at      func() int64
	probes  *health.Probes
	metrics *metric.ManualReader
	mu      sync.Mutex
	log     bytes.Buffer
	ends    []string // what ended a stall
}

// Write takes a line of the log.
func (s *service) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(line)
}

// observe notes what ends stalls.
func (s *service) observe(o driver.Observation) {
	if o.Kind == driver.KindResumed {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ends = append(s.ends, fmt.Sprint(time.Now().Format(time.StampMilli), " ", o.Err))
	}
}

// stalls returns where a stall is reported now: in the log (since the start), the metric, and the
// answer of the probe.
func (s *service) stalls() (log, gauge, probe bool) {
	s.mu.Lock()
	log = strings.Contains(s.log.String(), "partition stalled")
	s.mu.Unlock()
	var all metricdata.ResourceMetrics
	if err := s.metrics.Collect(s.t.Context(), &all); err != nil {
		s.t.Error(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if g, ok := m.Data.(metricdata.Gauge[int64]); ok && m.Name == "sluice.stalled" {
				gauge = len(g.DataPoints) > 0 && g.DataPoints[0].Value == 1
			}
		}
	}
	w := httptest.NewRecorder()
	s.probes.ServeHTTP(w, httptest.NewRequestWithContext(s.t.Context(), http.MethodGet, "/readyz", http.NoBody))
	return log, gauge, strings.Contains(w.Body.String(), "partition 0 stalled")
}

// serve starts a consumer, and a producer of ten events a second.
func serve[Tx any](t *testing.T, s Store[Tx], handle func(ctx context.Context, tx Tx, e *sluice.Event) error) *service {
	t.Helper()
	need.RealTime(t)
	sv := &service{t: t, group: sluice.Group{Namespace: "test", Topic: "orders", Name: fmt.Sprint("outage", groups.Add(1))}, metrics: metric.NewManualReader(), probes: health.NewProbes(nil)}
	meters, err := sluiceotel.New(&sluiceotel.Config{Group: sv.group, Meter: metric.NewMeterProvider(metric.WithReader(sv.metrics))})
	if err != nil {
		t.Fatal(err)
	}
	hub := sluicetest.NewHub(sv.group, 1)
	consumer, err := sluice.New(hub, s.Leases, sluice.Transactional(s.Store, sluice.Each(handle)), &sluice.Config{
		Owner: sv.group.Name, StallAfter: stallAfter, Seed: 1,
		Logger:   slog.New(slog.NewTextHandler(sv, nil)),
		Observer: driver.Observers(meters, sv.probes, driver.ObserverFunc(sv.observe)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := consumer.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("the consumer ended with %v", err)
		}
	})
	running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			hub.Append("0", sluicetest.Bodies(fmt.Sprint(n))...)
			time.Sleep(100 * time.Millisecond)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	sv.letters = func() []sluice.DeadLetter {
		list, err := s.Store.List(ctx, sv.group, sluice.DeadLetterFilter{})
		if err != nil {
			t.Error(err)
		}
		return list
	}
	sv.at = func() int64 {
		list, err := s.Store.Read(ctx, sv.group)
		if err != nil || len(list) == 0 {
			return driver.Unset.Sequence
		}
		return list[0].Position.Sequence
	}
	sv.until("it moves", time.Minute, func() bool { return sv.at() >= 3 })
	return sv
}

// until waits for a condition, and returns how long that took.
func (s *service) until(what string, most time.Duration, met func() bool) time.Duration {
	s.t.Helper()
	began := time.Now()
	for !met() {
		if time.Since(began) > most {
			s.t.Fatalf("%s not within %v: at %d, %d dead letters", what, most, s.at(), len(s.letters()))
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(began)
}

// altered is an alteration of a running service: what is left to do, in its order.
type altered[Tx any] struct {
	Alteration
	service   *service
	broken    time.Time     // when it is made
	hold      time.Duration // until it is undone
	step      int
	before    int64 // the checkpoint then
	mended    time.Time
	operators func(ctx context.Context, statements string) error
}

// Altered proves for each alteration, made at a random moment of a running service, that it makes
// no dead letter, and that the service moves soon after it is undone. The services run beside each
// other, each with a table of its own.
func Altered[Tx any](t *testing.T, s Store[Tx], alterations []Alteration) {
	need.RealTime(t)
	r := need.Rand(t)
	var all []*altered[Tx]
	for _, a := range alterations {
		hold := 10*time.Second + time.Duration(r.Int64N(int64(20*time.Second)))
		if text := os.Getenv(holdVariable); text != "" {
			var err error
			if hold, err = time.ParseDuration(text); err != nil {
				t.Fatal(err)
			}
		}
		moment := time.Duration(r.Int64N(int64(3 * time.Second)))
		sv := serve(t, s, func(ctx context.Context, tx Tx, e *sluice.Event) error {
			return s.Exec(ctx, tx, a.Statement, string(e.Body))
		})
		all = append(all, &altered[Tx]{Alteration: a, service: sv, broken: time.Now().Add(moment), hold: hold, operators: s.Do})
	}
	for busy := true; busy; time.Sleep(20 * time.Millisecond) {
		busy = false
		for _, a := range all {
			busy = a.proceed(t) || busy
		}
	}
}

// proceed does what is due, and reports whether anything is left to do.
func (a *altered[Tx]) proceed(t *testing.T) bool {
	t.Helper()
	do := func(statements string) {
		if err := a.operators(t.Context(), statements); err != nil {
			t.Fatalf("%s: %v", a.Name, err)
		}
		a.step++
	}
	switch now := time.Now(); {
	case a.step == 0 && now.After(a.broken):
		do(a.Broken)
	case a.step == 1 && now.After(a.broken.Add(a.hold)):
		a.before = a.service.at()
		do(a.Mended)
		a.mended = time.Now()
	case a.step == 2:
		took, moved := time.Since(a.mended), a.service.at() > a.before
		if !moved && took < movesWithin {
			break
		}
		a.step++
		letters := a.service.letters()
		for _, l := range letters {
			t.Errorf("%s: dead letter of event %d: %s", a.Name, l.Event.Sequence, l.Error)
		}
		if !moved {
			t.Errorf("%s: it does not move within %v after the end", a.Name, movesWithin)
		}
		t.Logf("%s for %v: %d dead letters, moved after %v", a.Name, a.hold.Round(time.Second), len(letters), took.Round(10*time.Millisecond))
	}
	return a.step < 3
}

// Locked proves that a table that is locked for a time, so that each statement ends by its time
// limit, is reported as one stall, in the log, the metric and the probe, until the partition moves.
func Locked[Tx any](t *testing.T, s Store[Tx], name string, hold time.Duration, statement string, lock func(t *testing.T) (release func())) {
	need.RealTime(t)
	t.Run("locked/"+name, func(t *testing.T) {
		t.Parallel()
		sv := serve(t, s, func(ctx context.Context, tx Tx, e *sluice.Event) error {
			return s.Exec(ctx, tx, statement, string(e.Body))
		})
		release := lock(t)
		began := time.Now()
		took := sv.until("the stall is reported", reportedIn, func() bool {
			log, gauge, probe := sv.stalls()
			return log && gauge && probe
		})
		for time.Since(began) < hold {
			if log, gauge, probe := sv.stalls(); !log || !gauge || !probe {
				t.Fatalf("%v after the lock the stall is in the log %v, the metric %v, the probe %v; ends: %v", time.Since(began), log, gauge, probe, sv.ends)
			}
			time.Sleep(100 * time.Millisecond)
		}
		before := sv.at()
		release()
		moved := sv.until("after the end it moves", movesWithin, func() bool { return sv.at() > before })
		sv.until("the stall ends", 2*stallAfter, func() bool {
			_, gauge, probe := sv.stalls()
			return !gauge && !probe
		})
		sv.mu.Lock()
		lines, ends := strings.Count(sv.log.String(), "partition moves again"), len(sv.ends)
		sv.mu.Unlock()
		if lines != 1 || ends != 1 {
			t.Errorf("the stall has ended %d times, %d in the log", ends, lines)
		}
		letters := sv.letters()
		if len(letters) > 0 {
			t.Errorf("%d dead letters, the first: %s", len(letters), letters[0].Error)
		}
		t.Logf("locked for %v: reported after %v, one stall, %d dead letters, moved after %v", hold, took.Round(10*time.Millisecond), len(letters), moved.Round(10*time.Millisecond))
	})
}
