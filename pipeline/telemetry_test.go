package pipeline

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/sender"
)

// tracedStages are two stages, and an endpoint beside the second one.
const tracedStages = `eventhub: {connection: "${EVENTHUB_CONNECTION_STRING}"}
partitions: all
database: ${DATABASE_URL}
stages:
  clean:
    source: {eventhub: {hub: flights}, start: earliest}
    target: {eventhub: {hub: clean, body: {delay: {from: body.delay, type: integer}}}}
  table:
    source: {eventhub: {hub: clean}, start: earliest}
    target: {insert: {table: delays, create: true, columns: {delay: {from: body.delay, type: integer}}}}
  endpoint:
    source: {eventhub: {hub: clean, consumer_group: posts}, start: earliest}
    target: {http: {url: "${TARGET_URL}", format: json}}
`

// receivedRequest is what an endpoint got.
type receivedRequest struct{ traceparent, body string }

// runTraced sends an event with a trace context through the stages, and returns the context, what
// the endpoint got, and the spans of the stages.
func runTraced(t *testing.T, withSpans bool) (sent trace.SpanContext, posted receivedRequest, spans tracetest.SpanStubs) {
	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 1}, {Name: "clean", Partitions: 1, ConsumerGroups: []string{"posts"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	var mu sync.Mutex
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		posted = receivedRequest{r.Header.Get("traceparent"), string(body)}
	}))
	t.Cleanup(receiver.Close)
	address, db := sqliteFile(t)
	file, err := ParseFile("p.yaml", []byte(tracedStages), environment("DATABASE_URL="+address, "EVENTHUB_CONNECTION_STRING="+srv.ConnectionString(), "TARGET_URL="+receiver.URL))
	if err != nil {
		t.Fatal(err)
	}

	memory := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(memory))
	reader := metric.NewManualReader()
	options := Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))}
	if withSpans {
		options.TracerProvider = provider
	}
	ctx, span := provider.Tracer("test").Start(t.Context(), "send")
	properties := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, properties)
	span.End()
	sent = span.SpanContext()
	out, err := sender.OpenEventHub(srv.ConnectionString(), "flights", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close(t.Context())
	message := sender.Message{Body: []byte(`{"delay":7}`), Properties: map[string]any{"traceparent": properties["traceparent"]}}
	if _, err := sender.New(out, nil).SendAll(t.Context(), slices.Values([]sender.Message{message})); err != nil {
		t.Fatal(err)
	}

	for _, stage := range file.Stages {
		parts, err := stage.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		committed := make(chan struct{})
		once := sync.OnceFunc(func() { close(committed) })
		options.Observer = driver.ObserverFunc(func(o driver.Observation) {
			if o.Kind == driver.KindWritten && o.Events > 0 || o.Kind == driver.KindCommitted && o.Events > 0 {
				once()
			}
		})
		c, err := parts.Consumer(t.Context(), &options)
		if err != nil {
			t.Fatal(err)
		}
		runConsumerUntil(t, c, func() bool {
			select {
			case <-committed:
				return true
			default:
				return false
			}
		})
		if err := parts.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	var rows int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM delays WHERE delay = 7").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows, %v", rows, err)
	}
	checkSent(t, reader, file.Stages[0].Group.Namespace)
	mu.Lock()
	defer mu.Unlock()
	return sent, posted, memory.GetSpans()
}

// checkSent checks that the only sender exports the message that it has sent.
func checkSent(t *testing.T, reader metric.Reader, namespace string) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != "messaging.client.sent.messages" {
				continue
			}
			points := m.Data.(metricdata.Sum[int64]).DataPoints
			name, _ := points[0].Attributes.Value("messaging.destination.name")
			server, _ := points[0].Attributes.Value("server.address")
			if len(points) != 1 || points[0].Value != 1 || name.AsString() != "clean" || server.AsString() != namespace {
				t.Errorf("%+v were sent to %s of %s, want 1 to clean of %s", points, name.AsString(), server.AsString(), namespace)
			}
			return
		}
	}
	t.Error("no metrics of what was sent")
}

// TestOneTraceOverStages: from the first sender to the last handler an event has one trace,
// although the first stage makes a body of its own.
func TestOneTraceOverStages(t *testing.T) {
	sent, posted, spans := runTraced(t, true)
	byName := map[string]tracetest.SpanStub{}
	var last []tracetest.SpanStub
	for _, s := range spans {
		byName[s.Name] = s
		if s.Name == "process clean" {
			last = append(last, s)
		}
		if s.SpanContext.TraceID() != sent.TraceID() {
			t.Errorf("span %q is of the trace %v, want %v", s.Name, s.SpanContext.TraceID(), sent.TraceID())
		}
	}
	first := byName["process flights"]
	if len(spans) != 4 || len(last) != 2 {
		t.Fatalf("the spans are %+v", spans)
	}
	if first.Parent.SpanID() != sent.SpanID() {
		t.Errorf("the first stage continues %v, want the sender's %v", first.Parent.SpanID(), sent.SpanID())
	}
	for _, s := range last { // of the table and of the endpoint
		if s.Parent.SpanID() != first.SpanContext.SpanID() {
			t.Errorf("the second stage continues %v, want the first stage's %v", s.Parent.SpanID(), first.SpanContext.SpanID())
		}
	}
	endpoint := last[1].SpanContext
	if want := "00-" + endpoint.TraceID().String() + "-" + endpoint.SpanID().String() + "-01"; posted.traceparent != want || !strings.Contains(posted.body, `"traceparent":"`+want+`"`) {
		t.Errorf("the endpoint got the header %q and %s, want %s", posted.traceparent, posted.body, want)
	}
}

// TestTraceContextWithoutSpans: without a collector the sender's own context goes through.
func TestTraceContextWithoutSpans(t *testing.T) {
	sent, posted, _ := runTraced(t, false)
	if want := "00-" + sent.TraceID().String() + "-" + sent.SpanID().String() + "-01"; posted.traceparent != want {
		t.Errorf("the endpoint got %q, want %s", posted.traceparent, want)
	}
}

// TestContinueTrace: properties and headers of the event that is sent on do not contradict.
func TestContinueTrace(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	event := &sluice.Event{Properties: map[string]any{"traceparent": parent, "tracestate": "a=1", "Diagnostic-Id": "old"}}
	m := &sender.Message{Headers: []sluice.Header{{Name: "traceparent", Value: []byte("old")}, {Name: "x", Value: []byte("1")}}, Properties: map[string]any{"Diagnostic-Id": "old"}}
	continueTrace(t.Context(), event, m)
	if len(m.Headers) != 1 || m.Headers[0].Name != "x" || m.Properties["traceparent"] != parent || m.Properties["tracestate"] != "a=1" || m.Properties["Diagnostic-Id"] != parent {
		t.Errorf("the message has %v and %v", m.Headers, m.Properties)
	}
	for _, wrong := range []any{"", "zz-1-2-3", 42, nil} {
		m := &sender.Message{}
		continueTrace(t.Context(), &sluice.Event{Properties: map[string]any{"traceparent": wrong}}, m)
		if m.Properties != nil {
			t.Errorf("of %v a message has %v", wrong, m.Properties)
		}
	}
}
