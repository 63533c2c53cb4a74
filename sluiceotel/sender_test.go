package sluiceotel_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/sluice-go/sluice/sluiceotel"
)

func TestSender(t *testing.T) {
	reader := metric.NewManualReader()
	s, err := sluiceotel.NewSender("ns.example.net", "flights", &sluiceotel.SenderConfig{System: "servicebus", Meter: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	s.Sent(10, time.Second, nil)
	s.Sent(5, time.Second, nil)
	s.Sent(3, time.Minute, context.DeadlineExceeded)
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	note := func(name string, attributes []string, v float64) { got[fmt.Sprint(name, attributes)] = v }
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				note(m.Name, texts(p.Attributes.ToSlice()), float64(p.Value))
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				note(m.Name, texts(p.Attributes.ToSlice()), p.Sum)
			}
		}
	}
	const fixed = "messaging.destination.name=flights messaging.operation.name=send messaging.operation.type=send messaging.system=servicebus server.address=ns.example.net]"
	compare(t, got, map[string]float64{
		"messaging.client.sent.messages[" + fixed: 15, "messaging.client.sent.messages[error.type=timeout " + fixed: 3,
		"messaging.client.operation.duration[" + fixed: 2, "messaging.client.operation.duration[error.type=timeout " + fixed: 60,
	})
}
