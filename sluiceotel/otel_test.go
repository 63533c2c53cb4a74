package sluiceotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluiceotel"
)

var (
	group = sluice.Group{Namespace: "ns", Topic: "flights", Name: "g"}
	now   = time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
)

// figures collects all metrics: name{partition,outcome} → value; of histograms
// the count.
func figures(t testing.TB, reader metric.Reader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	note := func(name string, set attribute.Set, v float64) {
		hub, _ := set.Value("messaging.destination.name")
		if server, _ := set.Value("server.address"); hub.AsString() != "flights" || server.AsString() != "ns" {
			t.Errorf("%s has the attributes %v", name, set)
		}
		if operation, ok := set.Value("messaging.operation.name"); ok != strings.HasPrefix(name, "messaging.") {
			t.Errorf("%s is of the operation %q", name, operation.AsString())
		}
		var of []string
		for _, key := range []attribute.Key{"messaging.destination.partition.id", "outcome", "error.type", "status", "kind"} {
			if v, ok := set.Value(key); ok {
				of = append(of, v.AsString())
			}
		}
		values[name+"{"+strings.Join(of, ",")+"}"] = v
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					note(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Sum[float64]:
				for _, p := range data.DataPoints {
					note(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					note(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					note(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					note(m.Name, p.Attributes, float64(p.Count))
				}
			}
		}
	}
	return values
}

// life is what is observed of two partitions.
var life = []driver.Observation{
	{Kind: driver.KindAcquired, Partition: "0", Epoch: 3},
	{Kind: driver.KindAcquired, Partition: "1", Epoch: 8},
	{Kind: driver.KindClaimed, Partition: "0", To: sluice.Position{Sequence: 9}},
	{Kind: driver.KindFetched, Partition: "0", To: sluice.Position{Sequence: 19}, Events: 10, Bytes: 1000, Lag: 40, Enqueued: now.Add(-60 * time.Second)},
	{Kind: driver.KindFetched, Partition: "0", To: sluice.Position{Sequence: 29}, Events: 10, Bytes: 1000, Lag: 40, Enqueued: now.Add(-20 * time.Second)},
	{Kind: driver.KindRetried, Partition: "0", To: sluice.Position{Sequence: 12}, Attempt: 1, Err: errors.New("x")},
	{Kind: driver.KindParked, Partition: "0", To: sluice.Position{Sequence: 12}, Attempt: 3, Err: errors.New("x")},
	{Kind: driver.KindCommitted, Partition: "0", To: sluice.Position{Sequence: 19}, Events: 10, Duplicates: 2, Duration: 30 * time.Millisecond, Lag: 30},
	{Kind: driver.KindFenced, Partition: "0"},
	{Kind: driver.KindUnknown, Partition: "0"},
	{Kind: driver.KindRenewed, Partition: "0", Duration: time.Millisecond},
	{Kind: driver.KindRedriven, Partition: "0", Events: 1},
	{Kind: driver.KindWritten, Partition: "1", Events: 7, Cost: 42.5, Waited: 250 * time.Millisecond, InFlight: 5, Lag: 0},
	{Kind: driver.KindHalted, Partition: "1", Err: errors.New("x")},
	{Kind: driver.KindStalled, Partition: "0", Duration: time.Minute, Err: errors.New("x")},
	{Kind: driver.KindFailed, Err: errors.New("x")},
}

func observer(t testing.TB, cfg *sluiceotel.Config) (*sluiceotel.Observer, metric.Reader) {
	t.Helper()
	reader := metric.NewManualReader()
	cfg.Group, cfg.Meter = group, metric.NewMeterProvider(metric.WithReader(reader))
	cfg.Now = func() time.Time { return now }
	o, err := sluiceotel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return o, reader
}

// nonzero is without the zeros of some counters.
func nonzero(all map[string]float64, names ...string) map[string]float64 {
	maps.DeleteFunc(all, func(name string, v float64) bool {
		name, _, _ = strings.Cut(name, "{")
		return v == 0 && slices.Contains(names, name)
	})
	return all
}

func compare(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		if g, ok := got[name]; !ok || g != v {
			t.Errorf("%s is %v (%v), want %v", name, g, ok, v)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is %v, and should not be there", name, got[name])
		}
	}
}

func TestMetrics(t *testing.T) {
	o, reader := observer(t, &sluiceotel.Config{})
	for _, x := range life {
		o.Observe(x)
	}
	compare(t, nonzero(figures(t, reader), "sluice.commits", "sluice.dead_letters", "sluice.lease.lost", "sluice.repeats", "sluice.retries", "sluice.failures"), map[string]float64{
		"messaging.client.consumed.messages{0}": 20, "sluice.fetched.bytes{0}": 2000,
		"sluice.committed.messages{0}": 10, "sluice.repeats{0}": 2, "messaging.process.duration{0}": 1,
		"sluice.commits{0,committed}": 1, "sluice.commits{0,fenced}": 1, "sluice.commits{0,unknown}": 1,
		"sluice.lag.messages{0}": 30, "sluice.lag.time{0}": 20, "sluice.checkpoint{0}": 19,
		"sluice.lease.held{0}": 1, "sluice.lease.epoch{0}": 3, "sluice.lease.renewal.duration{0}": 1,
		"sluice.retries{0,_OTHER}": 1, "sluice.dead_letters{0,parked}": 1, "sluice.dead_letters{0,redriven}": 1,
		"sluice.inflight.messages{0}": 0, "sluice.stopped{0}": 0, "sluice.stalled{0}": 1,
		"sluice.lease.held{1}": 1, "sluice.lease.epoch{1}": 8, "sluice.written.records{1}": 7, "sluice.written.cost{1}": 42.5, "sluice.limiter.wait{1}": 0.25,
		"sluice.inflight.messages{1}": 5, "sluice.lag.messages{1}": 0, "sluice.lag.time{1}": 0, "sluice.stopped{1}": 1, "sluice.stalled{1}": 0,
		"sluice.failures{_OTHER}": 1,
	})
	o.Observe(driver.Observation{Kind: driver.KindLost, Partition: "0", Err: errors.New("x")})
	after := figures(t, reader)
	for _, name := range []string{"sluice.lag.messages{0}", "sluice.checkpoint{0}", "sluice.lease.epoch{0}"} {
		if v, told := after[name]; told {
			t.Errorf("of a partition that another may have it tells %s: %v", name, v)
		}
	}
	if after["sluice.lease.held{0}"] != 0 || after["sluice.lease.lost{0}"] != 1 {
		t.Errorf("of a lost partition it tells %v", after)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if left := figures(t, reader); len(left) == 0 || left["sluice.lease.held{1}"] != 0 {
		t.Errorf("closed it tells %v", left)
	}
}

// TestFetchedWaits: the first batch waits too, until it is done.
func TestFetchedWaits(t *testing.T) {
	o, reader := observer(t, &sluiceotel.Config{})
	for _, x := range life[:4] {
		o.Observe(x)
	}
	if lag := figures(t, reader)["sluice.lag.messages{0}"]; lag != 40 {
		t.Errorf("10 fetched and 30 behind them make %v", lag)
	}
}

// TestWrittenIsDone: the checkpoint follows what is written after a while, and
// says nothing new of how much waits.
func TestWrittenIsDone(t *testing.T) {
	o, reader := observer(t, &sluiceotel.Config{})
	for _, x := range []driver.Observation{
		{Kind: driver.KindAcquired}, {Kind: driver.KindFetched, To: sluice.Position{Sequence: 99}, Events: 100, Lag: 500, Enqueued: now.Add(-time.Minute)},
		{Kind: driver.KindWritten, To: sluice.Position{Sequence: 90}, Events: 90, InFlight: 10, Lag: 510},
		{Kind: driver.KindCommitted, To: sluice.Position{Sequence: 40}, Events: 41, Lag: 560},
	} {
		x.Partition = "0"
		o.Observe(x)
	}
	if got := figures(t, reader); got["sluice.lag.messages{0}"] != 510 || got["sluice.checkpoint{0}"] != 40 || got["sluice.lag.time{0}"] != 60 {
		t.Errorf("it tells %v", got)
	}
}

func TestTraceLinksSenders(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	parent := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	b := sluice.Batch{Group: group, Partition: "0", Epoch: 3, Events: []*sluice.Event{
		{Sequence: 4, Properties: map[string]any{"traceparent": parent}},
		{Sequence: 5, Properties: map[string]any{"Diagnostic-Id": "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01"}},
		{Sequence: 6, Properties: map[string]any{"traceparent": parent}},
		{Sequence: 7, Properties: map[string]any{"traceparent": 42}},
		{Sequence: 8},
	}}
	failure := errors.New("no table")
	h := sluiceotel.Trace(&sluiceotel.TraceConfig{Provider: provider}, func(context.Context, int, sluice.Batch) error { return failure })
	if err := h(t.Context(), 0, b); !errors.Is(err, failure) {
		t.Error(err)
	}
	h = sluiceotel.Trace(&sluiceotel.TraceConfig{Provider: provider}, func(context.Context, int, sluice.Batch) error { panic("at the disco") })
	func() {
		defer func() {
			if v := recover(); v != "at the disco" {
				t.Errorf("the panic became %v", v)
			}
		}()
		_ = h(t.Context(), 0, b)
	}()
	ended := spans.Ended()
	if len(ended) != 2 {
		t.Fatalf("%d spans", len(ended))
	}
	s := ended[0]
	var linked []string
	for _, l := range s.Links() {
		linked = append(linked, l.SpanContext.SpanID().String())
	}
	if fmt.Sprint(linked) != "[b7ad6b7169203331 c7ad6b7169203331]" || s.Name() != "process flights" || s.Status().Code != codes.Error || s.Status().Description != "no table" {
		t.Errorf("span %s, status %v, links %v", s.Name(), s.Status(), linked)
	}
	if ended[1].Status().Code != codes.Error {
		t.Errorf("a panic's span has status %v", ended[1].Status())
	}
}

func TestTraceRecordsContinuesTheSendersTrace(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	records := sluiceotel.TraceRecords(&sluiceotel.TraceConfig{Provider: provider}, sluice.EventAsRecord)
	e := &sluice.Event{Partition: "1", Sequence: 4, Properties: map[string]any{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
	if list, err := records(t.Context(), e); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if s := spans.Ended()[0]; s.Parent().SpanID().String() != "b7ad6b7169203331" || s.SpanContext().TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("parent %v in trace %v", s.Parent().SpanID(), s.SpanContext().TraceID())
	}
}

// BenchmarkObserve is what a batch costs: fetched and committed.
func BenchmarkObserve(b *testing.B) {
	o, _ := observer(b, &sluiceotel.Config{})
	o.Observe(driver.Observation{Kind: driver.KindAcquired, Partition: "0", Epoch: 3})
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		o.Observe(driver.Observation{Kind: driver.KindFetched, Partition: "0", To: sluice.Position{Sequence: i}, Events: 1000, Bytes: 1 << 20, Lag: 5, Enqueued: now})
		o.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: "0", To: sluice.Position{Sequence: i}, Events: 1000, Duration: time.Millisecond, Lag: 5})
	}
}

// BenchmarkCollect is what a scrape costs at a thousand partitions.
func BenchmarkCollect(b *testing.B) {
	o, reader := observer(b, &sluiceotel.Config{})
	for i := range 1000 {
		for _, x := range life[:12] {
			x.Partition = fmt.Sprint(i)
			o.Observe(x)
		}
	}
	var all metricdata.ResourceMetrics
	b.ReportAllocs()
	for b.Loop() {
		if err := reader.Collect(context.Background(), &all); err != nil {
			b.Fatal(err)
		}
	}
}
