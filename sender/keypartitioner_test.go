package sender_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sender"
)

// byLength is a transport whose service hashes a key to its length.
type byLength struct{ *sender.Estimator }

func (byLength) PartitionOf(key string, n int) int { return len(key) % n }

// TestKeyPartitioner checks that keys go where the transport's own hash says, an
// empty key too.
func TestKeyPartitioner(t *testing.T) {
	messages := make([]*sender.Message, 200)
	for i := range messages {
		m := &sender.Message{Key: string(slices.Repeat([]byte("k"), i%7)), MessageID: strconv.Itoa(i)}
		m.EmptyKey = m.Key == ""
		messages[i] = m
	}
	for name, send := range map[string]func(transport sender.Transport) error{
		"SendAll": func(transport sender.Transport) error {
			_, err := sender.New(transport, nil).SendAll(t.Context(), func(yield func(sender.Message) bool) {
				for _, m := range messages {
					if !yield(*m) {
						return
					}
				}
			})
			return err
		},
		"Sink": func(transport sender.Transport) error {
			for _, err := range submitAll(newSink(t, transport, nil), messages) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	} {
		h := &sizeUnawareHub{limit: 1 << 20}
		e, err := sender.NewEstimator(h, &sender.EstimatorConfig{MaxMessages: 10})
		if err != nil {
			t.Fatal(err)
		}
		if err := send(byLength{e}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		n := 0
		for partition, list := range h.stored {
			for _, m := range list {
				if n++; partition != []string{"a", "b", "c", "d"}[len(m.Key)%4] {
					t.Errorf("%s: key %q is in partition %s", name, m.Key, partition)
				}
				if !m.EmptyKey && m.Key == "" {
					t.Errorf("%s: message %s has lost its empty key", name, m.MessageID)
				}
			}
		}
		if n != len(messages) {
			t.Errorf("%s: %d messages stored", name, n)
		}
	}
}

// TestKafkaOnly checks that other services refuse what only Kafka can store.
func TestKafkaOnly(t *testing.T) {
	srv, bus := start(t, 1, nil), startBus(t, nil)
	for name, transport := range map[string]sender.Transport{"hub": open(t, srv, nil), "queue": openBus(t, bus.ConnectionString(), queue, nil)} {
		b, err := transport.NewBatch(testContext(t), "0")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []sender.Message{{EmptyKey: true}, {Key: "k", Headers: []sluice.Header{{Name: "a"}}}} {
			if err := b.Add(&m); err == nil || b.Len() != 0 {
				t.Errorf("%s takes %+v: %v", name, m, err)
			}
		}
	}
}
