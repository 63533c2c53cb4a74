package main

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

// parting is how long the last spans are given to leave.
const parting = 5 * time.Second

// trace sends spans by OTLP over HTTP to whom OpenTelemetry's own variables
// name (OTEL_EXPORTER_OTLP_ENDPOINT and those beside it); to nobody without.
// How many are kept is up to OTEL_TRACES_SAMPLER.
func (g *gauges) trace(ctx context.Context) error {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return fmt.Errorf("traces: %w: look at OTEL_EXPORTER_OTLP_ENDPOINT", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "sluice")), resource.WithFromEnv(), resource.WithHost())
	if err != nil {
		return fmt.Errorf("traces: %w: look at OTEL_RESOURCE_ATTRIBUTES", err)
	}
	g.traces = trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about))
	return nil
}

// spans is what takes spans, nil if nobody does.
func (g *gauges) spans() api.TracerProvider {
	if g.traces == nil {
		return nil
	}
	return g.traces
}

// flush sends the last spans.
func (g *gauges) flush() {
	if g.traces == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), parting)
	defer cancel()
	if err := g.traces.Shutdown(ctx); err != nil {
		g.app.log.Warn("the last spans were not sent", "error", err)
	}
}
