package monitoring

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	meter "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"
)

// flushTimeout limits how long Close sends the last spans and metrics.
const flushTimeout = 5 * time.Second

// signal is traces or metrics: each has variables of its own, which precede those for both.
type signal struct{ name string }

var traces, metrics = signal{"TRACES"}, signal{"METRICS"}

// prefixes are those of the signal's own variables and of the variables for both.
func (s signal) prefixes() []string {
	return []string{"OTEL_EXPORTER_OTLP_" + s.name + "_", "OTEL_EXPORTER_OTLP_"}
}

// variable returns the value that holds for the signal, and the variable that has it: "" if none.
func (s signal) variable(name string) (variable, value string) {
	for _, prefix := range s.prefixes() {
		if value := os.Getenv(prefix + name); value != "" {
			return prefix + name, value
		}
	}
	return "", ""
}

// exported reports whether the signal is exported. Without a variable that asks for it nothing is
// sent, although OpenTelemetry's own default is a collector on this host.
func (s signal) exported() (bool, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	name := "OTEL_" + s.name + "_EXPORTER"
	switch exporter := os.Getenv(name); exporter {
	case "none":
		return false, nil
	case "otlp":
	case "":
		if _, endpoint := s.variable("ENDPOINT"); endpoint == "" {
			return false, nil
		}
	default:
		return false, fmt.Errorf("%s=%s: sluice run exports by otlp only: write otlp, or none (Prometheus reads the metrics at --metrics)", name, exporter)
	}
	if variable, protocol := s.variable("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return false, fmt.Errorf("%s=%s: sluice sends OTLP over HTTP alone: write http/protobuf, and in the endpoint the collector's port for HTTP (4318)", variable, protocol)
	}
	return true, s.check()
}

// check checks the variables that may hold secrets. OpenTelemetry would write a wrong one to
// standard error, as it is, and go on without it.
func (s signal) check() error {
	used, _ := s.variable("ENDPOINT")
	for _, prefix := range s.prefixes() {
		name := prefix + "ENDPOINT"
		u, err := url.Parse(strings.TrimSpace(os.Getenv(name)))
		if err != nil || name == used && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			return fmt.Errorf("%s is not an HTTP URL: write http://HOST:PORT or https://HOST:PORT, with the collector's port for HTTP (4318)", name)
		}
		headers := strings.TrimSpace(os.Getenv(prefix + "HEADERS"))
		if headers == "" {
			continue
		}
		for i, header := range strings.Split(headers, ",") {
			name, value, found := strings.Cut(header, "=")
			_, err := url.PathUnescape(value)
			name = strings.TrimSpace(name)
			if !found || err != nil || name == "" || strings.ContainsFunc(name, notInNames) {
				return fmt.Errorf("%sHEADERS: header %d is wrong: write NAME=VALUE, with commas between, and in values %%20 for a space, %%2C for a comma, %%25 for %%", prefix, i+1)
			}
		}
	}
	return nil
}

// notInNames reports whether the name of a header cannot have a character.
func notInNames(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

// startExport begins to export spans by OTLP, and returns the readers that export metrics, to the
// collector that OpenTelemetry's own variables name.
func (m *Monitoring) startExport(ctx context.Context) ([]metric.Reader, error) {
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "sluice")), resource.WithFromEnv(), resource.WithHost())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w: write KEY=VALUE, with commas between", err)
	}
	m.resource = about
	spans, err := spanExporter(ctx)
	if err != nil {
		return nil, err
	}
	if spans != nil {
		m.traces = trace.NewTracerProvider(trace.WithBatcher(spans), trace.WithResource(about))
	}
	exporter, err := metricExporter(ctx)
	if err != nil {
		return nil, err
	}
	if spans != nil || exporter != nil {
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { m.log.Warn("telemetry not sent", "error", err) }))
	}
	if exporter == nil {
		return nil, nil
	}
	return []metric.Reader{metric.NewPeriodicReader(exporter)}, nil
}

// spanExporter returns nil if no spans are exported.
func spanExporter(ctx context.Context) (trace.SpanExporter, error) {
	if exported, err := traces.exported(); err != nil || !exported {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w: check OTEL_EXPORTER_OTLP_ENDPOINT", err)
	}
	return exporter, nil
}

// metricExporter returns nil if no metrics are exported.
func metricExporter(ctx context.Context) (metric.Exporter, error) {
	if exported, err := metrics.exported(); err != nil || !exported {
		return nil, err
	}
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w: check OTEL_EXPORTER_OTLP_ENDPOINT", err)
	}
	return exporter, nil
}

// Traces is the provider of tracers, nil if no spans are exported.
func (m *Monitoring) Traces() api.TracerProvider {
	if m.traces == nil {
		return nil
	}
	return m.traces
}

// Meter is the provider of meters, nil if no metrics are exported.
func (m *Monitoring) Meter() meter.MeterProvider {
	if m.provider == nil {
		return nil
	}
	return m.provider
}

// flush sends the last spans and metrics.
func (m *Monitoring) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	var errs []error
	if m.traces != nil {
		errs = append(errs, m.traces.Shutdown(ctx))
	}
	if m.provider != nil {
		errs = append(errs, m.provider.Shutdown(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		m.log.Warn("last spans or metrics not sent", "error", err)
	}
}
