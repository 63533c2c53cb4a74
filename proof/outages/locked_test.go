// Package outages checks how an outage of a database is reported: in the log, the metric and the
// probe.
package outages

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/internal/proof/blame"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
	"github.com/sluice-go/sluice/sluiceotel"
)

const (
	stallAfter = 3 * time.Second
	reportedIn = stallAfter + 5*time.Second
)

// reports are what says that a partition stalls.
type reports struct {
	t       *testing.T
	probes  *health.Probes
	metrics *metric.ManualReader
	mu      sync.Mutex
	log     bytes.Buffer
	ends    []string // what ended a stall
}

// Write takes a line of the log.
func (r *reports) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(line)
}

// observe notes what ends stalls.
func (r *reports) observe(o driver.Observation) {
	if o.Kind == driver.KindResumed {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ends = append(r.ends, fmt.Sprint(time.Now().Format(time.StampMilli), " ", o.Err))
	}
}

// stalls returns where a stall is reported now: in the log (since the start), the metric, and the
// answer of the probe.
func (r *reports) stalls() (log, gauge, probe bool) {
	r.mu.Lock()
	log = strings.Contains(r.log.String(), "partition stalled")
	r.mu.Unlock()
	var all metricdata.ResourceMetrics
	if err := r.metrics.Collect(r.t.Context(), &all); err != nil {
		r.t.Error(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if g, ok := m.Data.(metricdata.Gauge[int64]); ok && m.Name == "sluice.stalled" {
				gauge = len(g.DataPoints) > 0 && g.DataPoints[0].Value == 1
			}
		}
	}
	w := httptest.NewRecorder()
	r.probes.ServeHTTP(w, httptest.NewRequestWithContext(r.t.Context(), http.MethodGet, "/readyz", http.NoBody))
	return log, gauge, strings.Contains(w.Body.String(), "partition 0 stalled")
}

// serve starts a service whose handler inserts into a table, each statement with a time limit.
func serve(t *testing.T, url, table string, limit time.Duration) (*blame.Service, *reports) {
	t.Helper()
	s, group := open(t, url), blame.NewGroup()
	r := &reports{t: t, metrics: metric.NewManualReader(), probes: health.NewProbes(nil)}
	meters, err := sluiceotel.New(&sluiceotel.Config{Group: group, Meter: metric.NewMeterProvider(metric.WithReader(r.metrics))})
	if err != nil {
		t.Fatal(err)
	}
	return blame.Serve(t, blame.Store[pgx.Tx]{Leases: s.Leases(), Store: s}, group, sluice.Config{
		StallAfter: stallAfter, Logger: slog.New(slog.NewTextHandler(r, nil)),
		Observer: driver.Observers(meters, r.probes, driver.ObserverFunc(r.observe)),
	}, func(ctx context.Context, tx pgx.Tx, e *sluice.Event) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL statement_timeout = %d`, limit.Milliseconds())); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO `+table+` (n) VALUES (CAST($1 AS int))`, string(e.Body))
		return err
	}), r
}

func open(t *testing.T, url string) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestLocked: a table that is locked for a time, so that each statement ends by its time limit, is
// reported as one stall, in the log, the metric and the probe, until the partition moves.
func TestLocked(t *testing.T) {
	need.RealTime(t)
	url := pgtest.Database(t)
	operator := open(t, url).Pool() // a pool of its own: no handler keeps it waiting
	for _, limit := range []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			table := fmt.Sprintf("locked_%d", limit/time.Second)
			if _, err := operator.Exec(t.Context(), `CREATE TABLE `+table+` (n int)`); err != nil {
				t.Fatal(err)
			}
			sv, r := serve(t, url, table, limit)
			tx, err := operator.Begin(t.Context())
			if err == nil {
				_, err = tx.Exec(t.Context(), `LOCK TABLE `+table+` IN ACCESS EXCLUSIVE MODE`)
			}
			if err != nil {
				t.Fatal(err)
			}
			locked(t, sv, r, 15*time.Second+limit, func() error { return tx.Rollback(t.Context()) })
		})
	}
}

func locked(t *testing.T, sv *blame.Service, r *reports, hold time.Duration, release func() error) {
	t.Helper()
	began := time.Now()
	took := sv.Await("the stall is reported", reportedIn, func() bool {
		log, gauge, probe := r.stalls()
		return log && gauge && probe
	})
	for time.Since(began) < hold {
		if log, gauge, probe := r.stalls(); !log || !gauge || !probe {
			t.Fatalf("%v after the lock the stall is in the log %v, the metric %v, the probe %v; ends: %v", time.Since(began), log, gauge, probe, r.ends)
		}
		time.Sleep(100 * time.Millisecond)
	}
	before := sv.Checkpoint()
	if err := release(); err != nil {
		t.Error(err)
	}
	moved := sv.Await("after the end it moves", blame.MovesWithin, func() bool { return sv.Checkpoint() > before })
	sv.Await("the stall ends", 2*stallAfter, func() bool {
		_, gauge, probe := r.stalls()
		return !gauge && !probe
	})
	r.mu.Lock()
	lines, ends := strings.Count(r.log.String(), "partition moves again"), len(r.ends)
	r.mu.Unlock()
	if lines != 1 || ends != 1 {
		t.Errorf("the stall has ended %d times, %d in the log", ends, lines)
	}
	letters := sv.Letters()
	if len(letters) > 0 {
		t.Errorf("%d dead letters, the first: %s", len(letters), letters[0].Error)
	}
	t.Logf("locked for %v: reported after %v, one stall, %d dead letters, moved after %v", hold, took.Round(10*time.Millisecond), len(letters), moved.Round(10*time.Millisecond))
}
