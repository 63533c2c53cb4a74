package eventhub

import (
	"bytes"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"

	sdk "github.com/Azure/go-amqp"
)

// typical is an event of 1 KB as the emulator and Azure deliver those of most senders.
func typical(tb testing.TB) []byte {
	tb.Helper()
	text := func(s string) *string { return &s }
	encoded, err := (&sdk.Message{
		Annotations: sdk.Annotations{
			"x-opt-sequence-number": int64(123456), "x-opt-offset": "4611686018427387904", "x-opt-enqueued-time": time.UnixMilli(1790000000123),
			"x-opt-partition-key": "aircraft-4711",
		},
		Properties:            &sdk.MessageProperties{MessageID: "7d5c1c3e-7d5e-4a48-9d3f-0d6f7b1c9d11", CorrelationID: "4711-17", ContentType: text("application/json")},
		ApplicationProperties: map[string]any{"type": "position", "version": int64(3), "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		Data:                  [][]byte{bytes.Repeat([]byte("x"), 1000)},
	}).MarshalBinary()
	if err != nil {
		tb.Fatal(err)
	}
	return encoded
}

// plain is an event of 1 KB without properties.
func plain(tb testing.TB) []byte {
	tb.Helper()
	encoded, err := (&sdk.Message{
		Annotations: sdk.Annotations{"x-opt-sequence-number": int64(123456), "x-opt-offset": "4611686018427387904", "x-opt-enqueued-time": time.UnixMilli(1790000000123)},
		Data:        [][]byte{bytes.Repeat([]byte("x"), 1000)},
	}).MarshalBinary()
	if err != nil {
		tb.Fatal(err)
	}
	return encoded
}

// TestDecodeAllocations bounds the allocations of an event, without its own and the message's: one
// for all texts, and of properties one for each value and two for the map.
func TestDecodeAllocations(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload []byte
		want    float64
	}{{"plain", plain(t), 1}, {"typical", typical(t), 5}} {
		var e driver.Event
		got := testing.AllocsPerRun(1000, func() {
			e = driver.Event{}
			if _, err := decodeEvent(&e, c.payload, "3"); err != nil {
				t.Fatal(err)
			}
		})
		bySDK := testing.AllocsPerRun(1000, func() {
			if _, err := fromSDK(c.payload); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%s: %.0f allocations, by the SDK %.0f", c.name, got, bySDK)
		if got > c.want {
			t.Errorf("%s: %.0f allocations, want at most %.0f", c.name, got, c.want)
		}
	}
}

// BenchmarkDecode decodes an event of 1 KB from a message of its own, as a receiver does, beside
// the SDK's decoding of it with convert.
func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct {
		name    string
		payload []byte
	}{{"plain", plain(b)}, {"typical", typical(b)}} {
		b.Run(c.name+"/own", func(b *testing.B) {
			b.ReportAllocs()
			began := cpu()
			for b.Loop() {
				var e driver.Event
				if _, err := decodeEvent(&e, bytes.Clone(c.payload), "3"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpu()-began)/float64(b.N), "cpu-ns/op")
		})
		b.Run(c.name+"/sdk", func(b *testing.B) {
			b.ReportAllocs()
			began := cpu()
			for b.Loop() {
				if _, err := fromSDK(c.payload); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpu()-began)/float64(b.N), "cpu-ns/op")
		})
	}
}
