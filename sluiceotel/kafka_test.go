package sluiceotel_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluiceotel"
)

// texts are attributes as text, sorted.
func texts(list []attribute.KeyValue) []string {
	var all []string
	for _, a := range list {
		all = append(all, fmt.Sprintf("%s=%s", a.Key, a.Value.String()))
	}
	slices.Sort(all)
	return all
}

// TestNamesOfTheConventions: the names in the tests and the documentation are those of the
// conventions' own package. A later version may rename them.
func TestNamesOfTheConventions(t *testing.T) {
	for _, c := range []struct {
		have string
		want attribute.Key
	}{
		{"messaging.system", semconv.MessagingSystemKey},
		{"messaging.destination.name", semconv.MessagingDestinationNameKey},
		{"messaging.destination.partition.id", semconv.MessagingDestinationPartitionIDKey},
		{"messaging.consumer.group.name", semconv.MessagingConsumerGroupNameKey},
		{"messaging.operation.name", semconv.MessagingOperationNameKey},
		{"messaging.operation.type", semconv.MessagingOperationTypeKey},
		{"messaging.batch.message_count", semconv.MessagingBatchMessageCountKey},
		{"messaging.kafka.offset", semconv.MessagingKafkaOffsetKey},
		{"messaging.kafka.message.key", semconv.MessagingKafkaMessageKeyKey},
		{"messaging.kafka.message.tombstone", semconv.MessagingKafkaMessageTombstoneKey},
		{"messaging.client.consumed.messages", attribute.Key(messagingconv.ClientConsumedMessages{}.Name())},
		{"messaging.client.sent.messages", attribute.Key(messagingconv.ClientSentMessages{}.Name())},
		{"messaging.client.operation.duration", attribute.Key(messagingconv.ClientOperationDuration{}.Name())},
		{"server.address", semconv.ServerAddressKey},
		{"error.type", semconv.ErrorTypeKey},
		{"_OTHER", attribute.Key(semconv.ErrorTypeOther.Value.AsString())},
		{"servicebus", attribute.Key(semconv.MessagingSystemServiceBus.Value.AsString())},
		{"messaging.process.duration", attribute.Key(messagingconv.ProcessDuration{}.Name())},
		{sluiceotel.Kafka, attribute.Key(semconv.MessagingSystemKafka.Value.AsString())},
		{sluiceotel.EventHubs, attribute.Key(semconv.MessagingSystemEventHubs.Value.AsString())},
	} {
		if attribute.Key(c.have) != c.want {
			t.Errorf("%s is %s in the conventions", c.have, c.want)
		}
	}
}

// TestKafkaAttributes: spans and metrics have the names that OpenTelemetry's conventions give them
// for Kafka.
func TestKafkaAttributes(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	cfg := &sluiceotel.TraceConfig{Provider: trace.NewTracerProvider(trace.WithSpanProcessor(spans)), System: sluiceotel.Kafka}
	parent := map[string]any{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	tombstone := &sluice.Event{Partition: "1", Sequence: 41, Key: "a", Properties: parent}
	binary := &sluice.Event{Partition: "1", Sequence: 42, Key: "\xff", Body: []byte{}}
	empty := &sluice.Event{Partition: "1", Sequence: 43, EmptyKey: true, Body: []byte("x")}

	h := sluiceotel.Trace(cfg, func(context.Context, int, sluice.Batch) error { return nil })
	if err := h(t.Context(), 0, sluice.Batch{Group: group, Partition: "1", Events: []*sluice.Event{tombstone, binary}}); err != nil {
		t.Fatal(err)
	}
	records := sluiceotel.TraceRecords(cfg, sluice.EventAsRecord)
	for _, e := range []*sluice.Event{tombstone, binary, empty} {
		if _, err := records(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	ended := spans.Ended()
	if links := ended[0].Links(); len(links) != 1 || fmt.Sprint(texts(links[0].Attributes)) != "[messaging.kafka.message.key=a messaging.kafka.message.tombstone=true messaging.kafka.offset=41]" {
		t.Errorf("links %+v", links)
	}
	for i, want := range [][]string{
		{"messaging.destination.name=flights", "messaging.consumer.group.name=g", "messaging.destination.partition.id=1", "messaging.batch.message_count=2"},
		{"messaging.kafka.offset=41", "messaging.kafka.message.key=a", "messaging.kafka.message.tombstone=true"},
		{"messaging.kafka.offset=42"},
		{"messaging.kafka.offset=43", "messaging.kafka.message.key="},
	} {
		got := texts(ended[i].Attributes())
		for _, a := range append(want, "messaging.system=kafka", "messaging.operation.type=process") {
			if !slices.Contains(got, a) {
				t.Errorf("span %d has %v, and not %s", i, got, a)
			}
		}
	}
	if got := texts(ended[2].Attributes()); slices.ContainsFunc(got, func(a string) bool {
		return a == "messaging.kafka.message.tombstone=true" || a == "messaging.kafka.message.key=\xff"
	}) {
		t.Errorf("an empty value and a binary key are %v", got)
	}

	o, reader := observer(t, &sluiceotel.Config{System: sluiceotel.Kafka})
	o.Observe(driver.Observation{Kind: driver.KindFetched, Partition: "1", Events: 1})
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
			if system, _ := sum.DataPoints[0].Attributes.Value("messaging.system"); system.AsString() != "kafka" {
				t.Errorf("%s is of the system %q", m.Name, system.AsString())
			}
		}
	}
}
