package kafkasender_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/sender/kafkasender"
)

func message(i int) sender.Message {
	return sender.Message{Key: fmt.Sprint("key-", i%37), MessageID: fmt.Sprint(i), Body: fmt.Appendf(nil, "body %d", i)}
}

// TestPartitions sends keys with this package and by franz-go: the same keys go to the same
// partitions, and those of a key keep their order.
func TestPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, partitions = 3000, 7
		c := start(t, partitions)
		report, err := sender.New(c.transport(t, nil), nil).SendAll(t.Context(), func(yield func(sender.Message) bool) {
			for i := range n {
				if !yield(message(i)) {
					return
				}
			}
		})
		if err != nil || report.Messages != n || report.Batches > 2*partitions {
			t.Fatalf("%+v: %v", report, err)
		}
		theirs := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
		last := map[string]int{}
		for _, r := range c.stored(t, n) {
			if want := theirs.Partition(&kgo.Record{Key: r.Key}, partitions); int(r.Partition) != want {
				t.Errorf("key %q is in partition %d, franz-go sends it to %d", r.Key, r.Partition, want)
			}
			var i int
			fmt.Sscanf(string(r.Value), "body %d", &i)
			if before, known := last[string(r.Key)]; known && i != before+37 {
				t.Fatalf("key %s: %d after %d", r.Key, i, before)
			}
			last[string(r.Key)] = i
		}
	})
}

// recordCase is a message and what is stored of it.
type recordCase struct {
	message sender.Message
	want    kgo.Record
}

func recordCases() map[string]recordCase {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	header := func(pairs ...string) (list []kgo.RecordHeader) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, kgo.RecordHeader{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return list
	}
	return map[string]recordCase{
		"null value": {sender.Message{Key: "k"}, kgo.Record{Key: []byte("k")}},
		"empty":      {sender.Message{Body: []byte{}}, kgo.Record{Value: []byte{}}},
		"empty key":  {sender.Message{EmptyKey: true, Body: []byte("b")}, kgo.Record{Key: []byte{}, Value: []byte("b")}},
		"bytes":      {sender.Message{Key: "\xff\x00", Body: []byte{0, 255}}, kgo.Record{Key: []byte("\xff\x00"), Value: []byte{0, 255}}},
		"fields": {
			sender.Message{MessageID: "i", CorrelationID: "c", ContentType: "text/plain", Body: []byte("b")},
			kgo.Record{Value: []byte("b"), Headers: header("message-id", "i", "correlation-id", "c", "content-type", "text/plain")},
		},
		"properties": {
			sender.Message{Body: []byte("b"), Properties: map[string]any{
				"text": "ü", "bytes": []byte{0, 255}, "int": -7, "int8": int8(-8), "int16": int16(-16), "int32": int32(-32), "int64": int64(-64), "uint": uint(7),
				"uint8": uint8(8), "uint16": uint16(16), "uint32": uint32(32), "uint64": uint64(1<<64 - 1), "float32": float32(0.1), "float64": 1e300,
				"yes": true, "no": false, "at": at, "null": nil, "none": []byte(nil), "span": time.Second,
			}},
			kgo.Record{Value: []byte("b"), Headers: slices.Concat(
				header("at", "2026-01-02T03:04:05.000006Z", "bytes", "\x00\xff", "float32", "0.1", "float64", "1e+300", "int", "-7", "int16", "-16", "int32", "-32",
					"int64", "-64", "int8", "-8", "no", "false", "none", ""), []kgo.RecordHeader{{Key: "null"}},
				header("span", "1s", "text", "ü", "uint", "7", "uint16", "16", "uint32", "32", "uint64", "18446744073709551615", "uint8", "8", "yes", "true"))},
		},
		"headers": {
			sender.Message{Body: []byte("b"), MessageID: "mine", Properties: map[string]any{"both": "property", "message-id": "left out"}, Headers: []sluice.Header{
				{Name: "b", Value: []byte("1")}, {Name: "a"}, {Name: "b", Value: []byte{}}, {Name: "both", Value: []byte("header")}, {Name: "message-id", Value: []byte("theirs")},
				{Name: "content-type", Value: []byte("kept")},
			}},
			kgo.Record{Value: []byte("b"), Headers: slices.Concat(header("b", "1"), []kgo.RecordHeader{{Key: "a"}},
				header("b", "", "content-type", "kept", "message-id", "mine", "both", "property"))},
		},
	}
}

// check compares what is stored with what is wanted.
func (c *recordCase) check(t *testing.T, r *kgo.Record, sent time.Time) {
	t.Helper()
	if len(r.Headers) == 0 {
		r.Headers = nil
	}
	if !reflect.DeepEqual(r.Key, c.want.Key) || !reflect.DeepEqual(r.Value, c.want.Value) || !reflect.DeepEqual(r.Headers, c.want.Headers) {
		t.Errorf("stored key %q, value %q, headers\n%q, want %q, %q,\n%q", r.Key, r.Value, r.Headers, c.want.Key, c.want.Value, c.want.Headers)
	}
	if r.Timestamp.Before(sent.Truncate(time.Millisecond)) || r.Timestamp.After(time.Now()) {
		t.Errorf("stored with time %v", r.Timestamp)
	}
}

// TestRecords checks what becomes of each part of a message.
func TestRecords(t *testing.T) {
	for name, c := range recordCases() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := start(t, 1)
				transport := cluster.transport(t, nil)
				sent := time.Now()
				if outcome, err := transport.Send(t.Context(), batchOf(t, transport, "0", c.message)); outcome != sender.OutcomeAccepted || err != nil {
					t.Fatal(outcome, err)
				}
				for _, r := range cluster.stored(t, 1) {
					c.check(t, r, sent)
				}
			})
		})
	}
}

func TestRefusedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := start(t, 1).transport(t, &kafkasender.Config{MaxMessages: 1, MaxBytes: 1000})
		b := batchOf(t, transport, "0", sender.Message{Body: []byte("b")})
		size := b.Bytes()
		for name, c := range map[string]struct {
			message sender.Message
			want    string
		}{
			"session": {sender.Message{SessionID: "s"}, "only Service Bus has sessions"},
			"subject": {sender.Message{Subject: "s"}, "only Service Bus has Subject"},
			"struct":  {sender.Message{Properties: map[string]any{"p": struct{}{}}}, `property "p" is a struct {}`},
			"second":  {sender.Message{}, sender.ErrTooLarge.Error()},
		} {
			if err := b.Add(&c.message); err == nil || !strings.Contains(err.Error(), c.want) || b.Len() != 1 || b.Bytes() != size {
				t.Errorf("%s: %v, %d messages of %d bytes", name, err, b.Len(), b.Bytes())
			}
		}
		if err := batchOf(t, transport, "0").Add(&sender.Message{Body: make([]byte, 1000)}); !errors.Is(err, sender.ErrTooLarge) {
			t.Error(err)
		}
		if _, err := transport.NewBatch(t.Context(), "1"); !errors.Is(err, sender.ErrPermanent) {
			t.Error(err)
		}
	})
}

// TestSizes compares the sizes that batches report with those that brokers see.
func TestSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 1)
		var arrived int
		c.observe(func(r *kmsg.ProduceRequest) { arrived = len(r.Topics[0].Partitions[0].Records) })
		transport := c.transport(t, &kafkasender.Config{Compression: []kgo.CompressionCodec{kgo.NoCompression()}})
		random := rand.New(rand.NewPCG(1, 2))
		for range 50 {
			b := batchOf(t, transport, "0")
			for range 1 + random.IntN(200) {
				m := sender.Message{Body: make([]byte, random.IntN(300)), EmptyKey: random.IntN(2) == 0, Properties: map[string]any{}}
				for range random.IntN(4) {
					m.Properties[strings.Repeat("p", random.IntN(100))] = strings.Repeat("v", random.IntN(100))
				}
				if err := b.Add(&m); err != nil {
					t.Fatal(err)
				}
				if alone, err := b.(sender.Sizer).Size(&m); b.Len() == 1 && alone != b.Bytes() || err != nil {
					t.Fatalf("size %d, %v, of a batch with %d bytes", alone, err, b.Bytes())
				}
				time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
			}
			if outcome, err := transport.Send(t.Context(), b); err != nil || outcome != sender.OutcomeAccepted || arrived != b.Bytes() {
				t.Fatalf("outcome %d, %v: a batch of %d bytes arrives with %d", outcome, err, b.Bytes(), arrived)
			}
		}
	})
}

// TestLargestBatch fills batches up to what the topic takes, and a message more is refused.
func TestLargestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 5000
		c := start(t, 1)
		if err := errors.Join(c.DeleteTopic(topic), c.CreateTopic(topic, 1, map[string]string{"max.message.bytes": fmt.Sprint(limit)})); err != nil {
			t.Fatal(err)
		}
		transport := c.transport(t, &kafkasender.Config{Compression: []kgo.CompressionCodec{kgo.NoCompression()}})
		if n, err := transport.MaxBatchBytes(t.Context()); n != limit || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		m := sender.Message{Body: make([]byte, limit)}
		b := batchOf(t, transport, "0")
		size, err := b.(sender.Sizer).Size(&m)
		if err != nil {
			t.Fatal(err)
		}
		m.Body = m.Body[:limit-(size-limit)]
		if err := b.Add(&m); err != nil || b.Bytes() != limit {
			t.Fatalf("%v: %d bytes", err, b.Bytes())
		}
		if outcome, err := transport.Send(t.Context(), b); outcome != sender.OutcomeAccepted {
			t.Error(outcome, err)
		}
		m.Body = make([]byte, len(m.Body)+1)
		if err := batchOf(t, transport, "0").Add(&m); !errors.Is(err, sender.ErrTooLarge) {
			t.Error(err)
		}
		larger := c.transport(t, &kafkasender.Config{MaxBytes: limit + 1, Compression: []kgo.CompressionCodec{kgo.NoCompression()}})
		if outcome, err := larger.Send(t.Context(), batchOf(t, larger, "0", m)); outcome != sender.OutcomeTooLarge || err == nil {
			t.Error(outcome, err)
		}
	})
}
