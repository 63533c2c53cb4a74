package monitoring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
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

// variable returns OTEL_EXPORTER_OTLP_{signal}_{name}, or else OTEL_EXPORTER_OTLP_{name}.
func (s signal) variable(name string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_"+s.name+"_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

// protocol is by which protocol the signal is exported, "" if it is not exported. Without a variable that
// asks for it nothing is sent, although OpenTelemetry's own default is a collector on this host.
func (s signal) protocol() (string, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return "", nil
	}
	name := "OTEL_" + s.name + "_EXPORTER"
	switch exporter := os.Getenv(name); exporter {
	case "none":
		return "", nil
	case "otlp":
	case "":
		if s.variable("ENDPOINT") == "" {
			return "", nil
		}
	default:
		return "", fmt.Errorf("%s=%s: sluice run exports by otlp only: write otlp, or none (Prometheus reads the metrics at --metrics)", name, exporter)
	}
	if err := s.check(); err != nil {
		return "", err
	}
	switch protocol := cmp.Or(s.variable("PROTOCOL"), "http/protobuf"); protocol {
	case "http/protobuf", "grpc":
		return protocol, nil
	default:
		return "", fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s: write grpc or http/protobuf", protocol)
	}
}

// check checks the variables that may hold secrets. OpenTelemetry would write a wrong one to standard error, as
// it is, and go on without it.
func (s signal) check() error {
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_" + s.name + "_"} {
		if _, err := url.Parse(strings.TrimSpace(os.Getenv(prefix + "ENDPOINT"))); err != nil {
			return fmt.Errorf("%sENDPOINT is not a URL: write http://HOST:PORT or https://HOST:PORT", prefix)
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
	m.about = about
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
func spanExporter(ctx context.Context) (exporter trace.SpanExporter, err error) {
	protocol, err := traces.protocol()
	switch protocol {
	case "":
		return nil, err
	case "grpc":
		exporter, err = otlptracegrpc.New(ctx)
	default:
		exporter, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("traces: %w: check OTEL_EXPORTER_OTLP_ENDPOINT", err)
	}
	return exporter, nil
}

// metricExporter returns nil if no metrics are exported.
func metricExporter(ctx context.Context) (exporter metric.Exporter, err error) {
	protocol, err := metrics.protocol()
	switch protocol {
	case "":
		return nil, err
	case "grpc":
		exporter, err = otlpmetricgrpc.New(ctx)
	default:
		exporter, err = otlpmetrichttp.New(ctx)
	}
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
