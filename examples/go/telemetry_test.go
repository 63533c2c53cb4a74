package examples

import (
	"context"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluiceotel"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/sqlstore"
)

// Metrics and spans of a handler. A program passes its own providers, or none for the global ones.
func TestTelemetry(t *testing.T) {
	reader, spans := metric.NewManualReader(), tracetest.NewSpanRecorder()
	meters := metric.NewMeterProvider(metric.WithReader(reader))
	tracers := trace.NewTracerProvider(trace.WithSpanProcessor(spans))

	metrics, err := sluiceotel.New(&sluiceotel.Config{Group: sluice.Group{Topic: "orders", Name: "billing"}, Meter: meters})
	if err != nil {
		t.Fatal(err)
	}
	handler := sluiceotel.Trace(&sluiceotel.TraceConfig{Provider: tracers}, sluice.Typed(withSQL))

	store, err := sqlstore.OpenSQLite(filepath.Join(t.TempDir(), "orders.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.DB().Exec("CREATE TABLE orders (id TEXT PRIMARY KEY, total REAL)"); err != nil {
		t.Fatal(err)
	}
	sluicetest.Run(t, store, handler, sluicetest.Bodies(`{"ID": "A-1", "Total": 12.5}`), &sluice.Config{Observer: metrics})

	if len(spans.Ended()) == 0 {
		t.Error("the handler made no span")
	}
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &collected); err != nil {
		t.Fatal(err)
	}
	for _, scope := range collected.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == "sluice.committed.messages" {
				return
			}
		}
	}
	t.Error("there is no metric sluice.committed.messages")
}
