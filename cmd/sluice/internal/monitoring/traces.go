package monitoring

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"
)

// flushTimeout limits how long Close sends the last spans.
const flushTimeout = 5 * time.Second

// startTraces exports spans by OTLP over HTTP to the collector that OpenTelemetry's own variables
// name (OTEL_EXPORTER_OTLP_ENDPOINT and its like), and none if they name no collector.
// OTEL_TRACES_SAMPLER says which spans are kept.
func (m *Monitoring) startTraces(ctx context.Context) error {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return fmt.Errorf("traces: %w: check OTEL_EXPORTER_OTLP_ENDPOINT", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "sluice")), resource.WithFromEnv(), resource.WithHost())
	if err != nil {
		return fmt.Errorf("traces: %w: check OTEL_RESOURCE_ATTRIBUTES", err)
	}
	m.traces = trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about))
	return nil
}

// Traces is the provider of tracers, nil if no spans are exported.
func (m *Monitoring) Traces() api.TracerProvider {
	if m.traces == nil {
		return nil
	}
	return m.traces
}

// flushTraces sends the last spans.
func (m *Monitoring) flushTraces() {
	if m.traces == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := m.traces.Shutdown(ctx); err != nil {
		m.log.Warn("last spans not sent", "error", err)
	}
}
