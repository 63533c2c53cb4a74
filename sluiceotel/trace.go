package sluiceotel

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-go/sluice"
)

// maxLinks is how many of a batch's events a span links to; the SDK's own
// default limit.
const maxLinks = 128

// Trace is middleware that makes a span of each call of a handler, with links
// to the traces of the events' senders. A nil provider is OpenTelemetry's
// global one.
func Trace[Tx any](provider trace.TracerProvider) sluice.Middleware[Tx] {
	tracer := tracerOf(provider)
	return func(next sluice.Handler[Tx]) sluice.Handler[Tx] {
		return func(ctx context.Context, tx Tx, b sluice.Batch) (err error) {
			ctx, span := tracer.Start(ctx, "process "+b.Group.Topic, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links(b.Events)...), trace.WithAttributes(
				systemKey.String(eventHubs),
				operationKey.String("process"),
				attribute.String("messaging.operation.type", "process"),
				attribute.String("messaging.destination.name", b.Group.Topic),
				attribute.String("messaging.consumer.group.name", b.Group.Name),
				attribute.String("messaging.destination.partition.id", b.Partition),
				attribute.Int("messaging.batch.message_count", len(b.Events)),
				attribute.Int64("sluice.sequence.first", b.Events[0].Sequence),
				attribute.Int64("sluice.sequence.last", b.Events[len(b.Events)-1].Sequence),
				attribute.Int64("sluice.lease.epoch", b.Epoch),
				attribute.Bool("sluice.redriven", b.Redriven),
			))
			// A panic is the engine's to catch, and the span's to know.
			defer func() {
				if v := recover(); v != nil {
					span.SetStatus(codes.Error, "panic")
					span.End()
					panic(v)
				}
				if err != nil {
					span.SetStatus(codes.Error, err.Error())
				}
				span.End()
			}()
			return next(ctx, tx, b)
		}
	}
}

// TraceRecords makes a span of each event of which [sluice.AtLeastOnce] makes
// records, in the trace of the event's sender. A nil provider is
// OpenTelemetry's global one.
func TraceRecords[R any](provider trace.TracerProvider, records func(context.Context, *sluice.Event) ([]R, error)) func(context.Context, *sluice.Event) ([]R, error) {
	tracer := tracerOf(provider)
	return func(ctx context.Context, e *sluice.Event) ([]R, error) {
		ctx, span := tracer.Start(ContextOf(ctx, e), "process", trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			systemKey.String(eventHubs),
			operationKey.String("process"),
			attribute.String("messaging.operation.type", "process"),
			attribute.String("messaging.destination.partition.id", e.Partition),
			attribute.Int64("sluice.sequence.first", e.Sequence),
		))
		defer span.End()
		list, err := records(ctx, e)
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		return list, err
	}
}

func tracerOf(provider trace.TracerProvider) trace.Tracer {
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return provider.Tracer(scope)
}

// ContextOf is ctx in the trace of the event's sender, or just ctx if the event
// brings none.
func ContextOf(ctx context.Context, e *sluice.Event) context.Context {
	return propagation.TraceContext{}.Extract(ctx, carrier(e.Properties))
}

// carrier reads the trace context from application properties.
type carrier map[string]any

// Get implements [propagation.TextMapCarrier].
func (c carrier) Get(key string) string {
	if text, ok := c[key].(string); ok {
		return text
	}
	if key == "traceparent" {
		text, _ := c["Diagnostic-Id"].(string)
		return text
	}
	return ""
}

// Set implements [propagation.TextMapCarrier]. An event isn't changed.
func (c carrier) Set(string, string) {}

// Keys implements [propagation.TextMapCarrier].
func (c carrier) Keys() []string { return []string{"traceparent", "tracestate"} }

// links are the events' traces, each once.
func links(events []*sluice.Event) []trace.Link {
	var list []trace.Link
	seen := map[trace.SpanID]bool{}
	for _, e := range events {
		if e.Properties == nil {
			continue
		}
		at := trace.SpanContextFromContext(ContextOf(context.Background(), e))
		if !at.IsValid() || seen[at.SpanID()] {
			continue
		}
		seen[at.SpanID()] = true
		if list = append(list, trace.Link{SpanContext: at}); len(list) == maxLinks {
			break
		}
	}
	return list
}
