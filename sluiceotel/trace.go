package sluiceotel

import (
	"cmp"
	"context"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// maxLinks is how many of a batch's events a span links to; the SDK's own
// default limit.
const maxLinks = 128

// maxKey is the longest key that becomes an attribute, in bytes.
const maxKey = 128

// TraceConfig holds what has a default. The zero value is ready to use.
type TraceConfig struct {
	// Provider makes the spans. Default: OpenTelemetry's global one.
	Provider trace.TracerProvider
	// System is messaging.system. Default: eventhubs.
	System string
	// Group is what is consumed, for the attributes of [TraceRecords]; [Trace] has it from each
	// batch. Default: the spans do not name it.
	Group driver.Group
}

// withDefaults returns the configuration and the tracer.
func (cfg *TraceConfig) withDefaults() (TraceConfig, trace.Tracer) {
	var c TraceConfig
	if cfg != nil {
		c = *cfg
	}
	if c.Provider == nil {
		c.Provider = otel.GetTracerProvider()
	}
	c.System = cmp.Or(c.System, EventHubs)
	return c, c.Provider.Tracer(scope)
}

// ofGroup returns the attributes of all spans about a partition of a group.
func ofGroup(system string, group driver.Group, partition string) []attribute.KeyValue {
	list := []attribute.KeyValue{
		systemKey.String(system), operationKey.String("process"), attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.destination.partition.id", partition),
	}
	if group != (driver.Group{}) {
		list = append(list, serverKey.String(group.Namespace), attribute.String("messaging.destination.name", group.Topic), attribute.String("messaging.consumer.group.name", group.Name))
	}
	return list
}

// Trace wraps a handler: each call of it is a span, with links to the traces of the events'
// senders. A batch of one event continues the trace of its sender.
func Trace[Tx any](cfg *TraceConfig, handler sluice.Handler[Tx]) sluice.Handler[Tx] {
	c, tracer := cfg.withDefaults()
	return func(ctx context.Context, tx Tx, b driver.Batch) (err error) {
		if len(b.Events) == 1 {
			ctx = ContextOf(ctx, b.Events[0])
		}
		ctx, span := tracer.Start(ctx, "process "+b.Group.Topic, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links(c.System, b.Events)...),
			trace.WithAttributes(ofGroup(c.System, b.Group, b.Partition)...), trace.WithAttributes(
				attribute.Int("messaging.batch.message_count", len(b.Events)),
				attribute.Int64("sluice.sequence.first", b.Events[0].Sequence),
				attribute.Int64("sluice.sequence.last", b.Events[len(b.Events)-1].Sequence),
				attribute.Int64("sluice.lease.epoch", b.Epoch),
				attribute.Bool("sluice.redriven", b.Redriven),
			))
		// A panic is the engine's to catch, and the span's to know.
		defer func() {
			if v := recover(); v != nil {
				span.SetAttributes(errorKey.String("panic"))
				span.SetStatus(codes.Error, "panic")
				span.End()
				panic(v)
			}
			if err != nil {
				fail(span, err)
			}
			span.End()
		}()
		return handler(ctx, tx, b)
	}
}

// TraceRecords makes a span of each event of which [sluice.AtLeastOnce] makes
// records, in the trace of the event's sender.
func TraceRecords[R any](cfg *TraceConfig, records func(context.Context, *driver.Event) ([]R, error)) func(context.Context, *driver.Event) ([]R, error) {
	c, tracer := cfg.withDefaults()
	name := strings.TrimSpace("process " + c.Group.Topic)
	return func(ctx context.Context, e *driver.Event) ([]R, error) {
		ctx, span := tracer.Start(ContextOf(ctx, e), name, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(ofGroup(c.System, c.Group, e.Partition)...),
			trace.WithAttributes(attribute.Int64("sluice.sequence.first", e.Sequence)), trace.WithAttributes(ofEvent(c.System, e)...))
		defer span.End()
		list, err := records(ctx, e)
		if err != nil {
			fail(span, err)
		}
		return list, err
	}
}

// fail marks the span of something that failed.
func fail(span trace.Span, err error) {
	span.SetAttributes(errorKey.String(errorType(err)))
	span.SetStatus(codes.Error, err.Error())
}

// ofEvent returns the attributes that the conventions have for one event of a system.
func ofEvent(system string, e *driver.Event) []attribute.KeyValue {
	if system != Kafka {
		return nil
	}
	list := []attribute.KeyValue{attribute.Int64("messaging.kafka.offset", e.Sequence)}
	if (e.Key != "" || e.EmptyKey) && len(e.Key) <= maxKey && utf8.ValidString(e.Key) {
		list = append(list, attribute.String("messaging.kafka.message.key", e.Key))
	}
	if e.Body == nil {
		list = append(list, attribute.Bool("messaging.kafka.message.tombstone", true))
	}
	return list
}

// ContextOf is ctx in the trace of the event's sender, or just ctx if the event
// brings none.
func ContextOf(ctx context.Context, e *driver.Event) context.Context {
	return propagation.TraceContext{}.Extract(ctx, carrier(e.Properties))
}

// TraceParent returns the trace context that a message should carry which is made of an event: that
// of the span in ctx, or else that of the event's sender, in the form of the properties traceparent
// and tracestate (W3C). Both are empty if there is neither.
func TraceParent(ctx context.Context, e *driver.Event) (traceparent, tracestate string) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = ContextOf(ctx, e)
	}
	made := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, made)
	return made["traceparent"], made["tracestate"]
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

// links are the events' traces, each once, with the attributes of the first event.
func links(system string, events []*driver.Event) []trace.Link {
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
		if list = append(list, trace.Link{SpanContext: at, Attributes: ofEvent(system, e)}); len(list) == maxLinks {
			break
		}
	}
	return list
}
