package progress_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/progress"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/internal/partitionstate"
	"github.com/sluice-go/sluice/pipeline/web"
	"github.com/sluice-go/sluice/sluiceotel"
	"github.com/sluice-go/sluice/sluicetest"
)

// TestEventsReadAreNotDone: of 1,500 events that were read and not committed, the
// terminal, the dashboard and the metrics all show a lag of 1,500.
func TestEventsReadAreNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiting = 1500
		group := sluice.Group{Namespace: "ns", Topic: "flights", Name: "g"}
		hub, store, leases := sluicetest.NewHub(group, 1), new(sluicetest.Store), new(sluicetest.Leases)
		monitor, meter, state := progress.New(slog.New(slog.DiscardHandler)), web.NewMeter(), partitionstate.New(nil)
		reader := metric.NewManualReader()
		metrics, err := sluiceotel.New(&sluiceotel.Config{Group: group, Meter: metric.NewMeterProvider(metric.WithReader(reader))})
		if err != nil {
			t.Fatal(err)
		}
		dashboard, err := web.New([]web.Pipeline{{Name: "p", Group: group, Source: hub, Leases: leases, Meter: meter}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		handler := func(_ context.Context, _ *sluicetest.Tx, b sluice.Batch) error {
			if b.Events[0].Sequence > 0 {
				<-release
			}
			return nil
		}
		c, err := sluice.New(hub, leases, sluice.Transactional(store, handler), &sluice.Config{
			MaxBatch: 1000, Observer: driver.Observers(state, monitor, meter, metrics),
		})
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() {
			if err := c.Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
		compare := func(want int64) {
			t.Helper()
			time.Sleep(2500 * time.Millisecond) // less than until the log is asked for its end again
			synctest.Wait()
			for face, got := range map[string]int64{
				"the state":     state.State().Partitions["0"].Lag,
				"the terminal":  monitor.Stats().Lag,
				"the metrics":   lagMetric(t, reader),
				"the dashboard": lagShown(t, dashboard),
			} {
				if got != want {
					t.Errorf("the lag of %s is %d, want %d", face, got, want)
				}
			}
		}
		time.Sleep(time.Second) // by then the log was asked for its end: before that the lag is unknown
		hub.Append("0", sluicetest.Bodies("first")...)
		time.Sleep(20 * time.Second)
		compare(0)
		hub.Append("0", sluicetest.Bodies(strings.Fields(strings.Repeat("x ", waiting))...)...)
		compare(waiting)
		if fetched := state.State().Partitions["0"].Fetched.Sequence; fetched != waiting {
			t.Errorf("events up to %d were read, want %d", fetched, waiting)
		}
		close(release)
		compare(0)
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
}

// lagMetric is the lag of the only partition.
func lagMetric(t *testing.T, reader metric.Reader) int64 {
	return gauge(t, reader, "sluice.lag.messages")
}

// gauge is the value of a gauge with one series, -1 without.
func gauge(t *testing.T, reader metric.Reader, name string) int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				return m.Data.(metricdata.Gauge[int64]).DataPoints[0].Value
			}
		}
	}
	return -1
}

// lagShown is the lag at the end of the last second that the dashboard shows.
func lagShown(t *testing.T, dashboard *web.Dashboard) int64 {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "https://127.0.0.1:8443/api/history", nil)
	r.RemoteAddr = "127.0.0.1:50000"
	w := httptest.NewRecorder()
	dashboard.ServeHTTP(w, r)
	var shown struct{ Lag []int64 }
	if err := json.Unmarshal(w.Body.Bytes(), &shown); err != nil || len(shown.Lag) == 0 {
		t.Fatal(fmt.Errorf("%d %s: %v", w.Code, w.Body, err))
	}
	return shown.Lag[len(shown.Lag)-1]
}

// TestAStallIsShown: while a handler hangs, log, metrics and probes say so; when it
// returns, they say that too.
func TestAStallIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := sluice.Group{Namespace: "ns", Topic: "flights", Name: "g"}
		hub, store := sluicetest.NewHub(group, 1), new(sluicetest.Store)
		var lines strings.Builder
		monitor, probes := progress.New(slog.New(slog.NewTextHandler(&lines, nil))), health.NewProbes(&health.ProbesConfig{Details: true})
		reader := metric.NewManualReader()
		metrics, err := sluiceotel.New(&sluiceotel.Config{Group: group, Meter: metric.NewMeterProvider(metric.WithReader(reader))})
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		handler := func(context.Context, *sluicetest.Tx, sluice.Batch) error { <-release; return nil }
		c, err := sluice.New(hub, new(sluicetest.Leases), sluice.Transactional(store, handler), &sluice.Config{Observer: driver.Observers(monitor, probes, metrics)})
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() {
			if err := c.Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
		probe := func(path string) string {
			w := httptest.NewRecorder()
			probes.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
			return fmt.Sprint(w.Code, " ", w.Body)
		}
		const text = "handler has not returned for 30s: batch of 2 events from 0; look for a lock or a call without a time limit"
		hub.Append("0", sluicetest.Bodies("one", "two")...)
		time.Sleep(35 * time.Second)
		synctest.Wait()
		if got := lines.String(); !strings.Contains(got, `level=WARN msg="partition stalled" topic=flights group=g partition=0 epoch=1 lasted=30s error="`+text+`"`) {
			t.Errorf("the log is %s", got)
		}
		if got := probe("/readyz"); got != "200 ok\npartition 0 stalled: "+text+"\n" {
			t.Errorf("readyz: %s", got)
		}
		if got := gauge(t, reader, "sluice.stalled"); got != 1 {
			t.Errorf("sluice.stalled is %d, want 1", got)
		}
		time.Sleep(5 * time.Minute)
		if got := probe("/readyz"); !strings.HasPrefix(got, "503 partition 0 stalled: handler has not returned for 4m") {
			t.Errorf("readyz after five minutes: %s", got)
		}
		close(release)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := probe("/readyz"); got != "200 ok\n" || !strings.Contains(lines.String(), `level=INFO msg="partition moves again" topic=flights group=g partition=0 epoch=1 lasted=5m`) {
			t.Errorf("at the end: readyz %s, log %s", got, &lines)
		}
		if got := gauge(t, reader, "sluice.stalled"); got != 0 {
			t.Errorf("at the end sluice.stalled is %d, want 0", got)
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
}
