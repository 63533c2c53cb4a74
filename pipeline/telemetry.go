package pipeline

import (
	"context"
	"net"
	"slices"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/sluiceotel"
	"github.com/sluice-go/sluice/webhook"
)

// Properties and headers of the trace context.
const (
	traceParent  = "traceparent"
	traceState   = "tracestate"
	diagnosticID = "Diagnostic-Id" // of Azure's older clients
)

// telemetry is where spans and metrics go; the zero value: nowhere.
type telemetry struct {
	traces trace.TracerProvider
	meter  metric.MeterProvider
}

// onSent returns what exports the metrics of a sender, nil if they go nowhere.
func (t *telemetry) onSent(to address) (func(sender.Sent), error) {
	if t.meter == nil {
		return nil, nil
	}
	server := to.hosts[0]
	if host, _, err := net.SplitHostPort(server); err == nil {
		server = host
	}
	metrics, err := sluiceotel.NewSender(server, to.name, &sluiceotel.SenderConfig{System: string(to.system), Meter: t.meter})
	if err != nil {
		return nil, err
	}
	return func(s sender.Sent) { metrics.Sent(s.Messages, s.Duration, s.Err) }, nil
}

// address returns where messages go, for metrics.
func (e *serviceBusEntity) address() address {
	to := (&hub{namespace: e.namespace, name: e.name}).address()
	to.system = "servicebus"
	return to
}

// traced adds spans to a handler if there is a provider.
func traced[Tx any](p *Pipeline, provider trace.TracerProvider, h sluice.Handler[Tx]) sluice.Handler[Tx] {
	if provider == nil {
		return h
	}
	return sluiceotel.Trace(&sluiceotel.TraceConfig{Provider: provider, System: string(p.System)}, h)
}

// tracedRecords adds spans to the function that makes records of events if there is a provider.
func tracedRecords[R any](p *Pipeline, parts *Parts, provider trace.TracerProvider, records func(context.Context, *sluice.Event) ([]R, error)) func(context.Context, *sluice.Event) ([]R, error) {
	if provider == nil {
		return records
	}
	return sluiceotel.TraceRecords(&sluiceotel.TraceConfig{Provider: provider, System: string(p.System), Group: parts.Group}, records)
}

// continueTrace makes a message carry the trace context of the span that makes it, or else that of
// its event.
func continueTrace(ctx context.Context, e *sluice.Event, m *sender.Message) {
	parent, state := sluiceotel.TraceParent(ctx, e)
	if parent == "" {
		return
	}
	m.Headers = slices.DeleteFunc(slices.Clone(m.Headers), func(h sluice.Header) bool { return h.Name == traceParent || h.Name == traceState })
	if m.Properties == nil {
		m.Properties = map[string]any{}
	}
	m.Properties[traceParent] = parent
	delete(m.Properties, traceState)
	if state != "" {
		m.Properties[traceState] = state
	}
	if _, ok := m.Properties[diagnosticID]; ok {
		m.Properties[diagnosticID] = parent
	}
}

// webhookMessages is [webhook.Messages] with the trace context.
func webhookMessages(ctx context.Context, e *sluice.Event) ([]*webhook.Message, error) {
	list, err := webhook.Messages(ctx, e)
	for _, m := range list {
		m.TraceParent, m.TraceState = sluiceotel.TraceParent(ctx, e)
	}
	return list, err
}
