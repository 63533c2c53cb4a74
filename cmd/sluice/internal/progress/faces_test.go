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
	"github.com/sluice-go/sluice/internal/partitionstate"
	"github.com/sluice-go/sluice/sluiceotel"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/web"
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
			MaxBatch: 1000, Observer: sluice.Observers(state, monitor, meter, metrics),
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

// lagMetric is the sum of sluice.lag.messages.
func lagMetric(t *testing.T, reader metric.Reader) int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == "sluice.lag.messages" {
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
