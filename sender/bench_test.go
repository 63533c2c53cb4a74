package sender_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/keyhash"
	"github.com/sluice-go/sluice/sender"
)

// benchKeys are many enough for every partition to have some.
const (
	benchKeys       = 1000
	benchPartitions = 4
)

// contestant sends n messages.
type contestant func(n int) error

// BenchmarkSendAll compares SendAll with the loop that the client libraries'
// documentation has: fill a batch, send it, begin the next. With keys, that loop
// has a batch for each partition and puts the key on each event, as SendAll
// does. Both send to an embedded server in the same process, by turns.
func BenchmarkSendAll(b *testing.B) {
	for _, size := range []int{100, 1000} {
		body, keys := make([]byte, size), make([]string, benchKeys)
		for i := range keys {
			keys[i] = fmt.Sprintf("key-%d", i)
		}
		for name, keyed := range map[string]bool{"keys": true, "loose": false} {
			key := func(i int) string {
				if keyed {
					return keys[i%benchKeys]
				}
				return ""
			}
			b.Run(fmt.Sprintf("hub/%dB/%s", size, name), func(b *testing.B) {
				srv := start(b, benchPartitions, nil)
				loop := hubLoop(b, srv, body)
				if keyed {
					loop = keyedHubLoop(b, srv, body, key)
				}
				compare(b, size, ours(b, open(b, srv, nil), body, key), loop)
			})
			b.Run(fmt.Sprintf("queue/%dB/%s", size, name), func(b *testing.B) {
				// A topic nobody has subscribed to: the messages need no memory.
				srv, err := emulator.StartServiceBus(nil, []emulator.ServiceBusTopic{{Name: "void"}}, nil)
				if err != nil {
					b.Fatal(err)
				}
				defer srv.Close()
				compare(b, size, ours(b, openBus(b, srv.ConnectionString(), "void", nil), body, key), busLoop(b, srv, body, key))
			})
		}
	}
}

// rounds is how often the contestants take turns.
const rounds = 6

// compare has both send b.N messages, by turns.
func compare(b *testing.B, size int, ours, loop contestant) {
	b.SetBytes(int64(size))
	b.ResetTimer()
	var took [2]time.Duration
	for round := range rounds {
		n := b.N/rounds + 1
		for i, send := range []contestant{ours, loop} {
			began := time.Now()
			if err := send(n); err != nil {
				b.Fatalf("contestant %d in round %d: %v", i, round, err)
			}
			took[i] += time.Since(began)
		}
	}
	n := float64(rounds * (b.N/rounds + 1))
	b.ReportMetric(n/took[0].Seconds(), "events/s")
	b.ReportMetric(n/took[1].Seconds(), "loop-events/s")
	b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "ratio")
}

// ours sends by SendAll.
func ours(b *testing.B, t sender.Transport, body []byte, key func(int) string) contestant {
	s := sender.New(t, nil)
	return func(n int) error {
		report, err := s.SendAll(b.Context(), func(yield func(sender.Message) bool) {
			for i := range n {
				if !yield(sender.Message{Key: key(i), Body: body}) {
					return
				}
			}
		})
		if err == nil && report.Messages != int64(n) {
			err = fmt.Errorf("%d of %d accepted", report.Messages, n)
		}
		return err
	}
}

func hubClient(b *testing.B, srv *emulator.Server) *azeventhubs.ProducerClient {
	client, err := azeventhubs.NewProducerClientFromConnectionString(srv.ConnectionString(), hub, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close(context.Background()) })
	return client
}

// hubLoop is the client library's, as written by hand.
func hubLoop(b *testing.B, srv *emulator.Server, body []byte) contestant {
	client := hubClient(b, srv)
	return func(n int) error {
		ctx := b.Context()
		batch, err := client.NewEventDataBatch(ctx, nil)
		if err != nil {
			return err
		}
		for range n {
			event := azeventhubs.EventData{Body: body}
			err := batch.AddEventData(&event, nil)
			if errors.Is(err, azeventhubs.ErrEventDataTooLarge) {
				if err = client.SendEventDataBatch(ctx, batch, nil); err != nil {
					return err
				}
				if batch, err = client.NewEventDataBatch(ctx, nil); err != nil {
					return err
				}
				err = batch.AddEventData(&event, nil)
			}
			if err != nil {
				return err
			}
		}
		return client.SendEventDataBatch(ctx, batch, nil)
	}
}

// keyedHubLoop keeps a batch for each partition.
func keyedHubLoop(b *testing.B, srv *emulator.Server, body []byte, key func(int) string) contestant {
	client := hubClient(b, srv)
	return func(n int) error {
		ctx := b.Context()
		var batches [benchPartitions]*azeventhubs.EventDataBatch
		begin := func(p int) (err error) {
			id := fmt.Sprint(p)
			batches[p], err = client.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: &id})
			return err
		}
		for p := range batches {
			if err := begin(p); err != nil {
				return err
			}
		}
		for i := range n {
			k := key(i)
			p := keyhash.Partition(k, benchPartitions)
			event := azeventhubs.AMQPAnnotatedMessage{
				Body:               azeventhubs.AMQPAnnotatedMessageBody{Data: [][]byte{body}},
				MessageAnnotations: map[any]any{"x-opt-partition-key": k},
			}
			err := batches[p].AddAMQPAnnotatedMessage(&event, nil)
			if errors.Is(err, azeventhubs.ErrEventDataTooLarge) {
				if err = client.SendEventDataBatch(ctx, batches[p], nil); err != nil {
					return err
				}
				if err = begin(p); err != nil {
					return err
				}
				err = batches[p].AddAMQPAnnotatedMessage(&event, nil)
			}
			if err != nil {
				return err
			}
		}
		for _, batch := range batches {
			if batch.NumEvents() > 0 {
				if err := client.SendEventDataBatch(ctx, batch, nil); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// busLoop is that of Service Bus' client library.
func busLoop(b *testing.B, srv *emulator.ServiceBus, body []byte, key func(int) string) contestant {
	client, err := azservicebus.NewClientFromConnectionString(srv.ConnectionString(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close(context.Background()) })
	s, err := client.NewSender("void", nil)
	if err != nil {
		b.Fatal(err)
	}
	return func(n int) error {
		ctx := b.Context()
		batch, err := s.NewMessageBatch(ctx, nil)
		if err != nil {
			return err
		}
		for i := range n {
			message := azservicebus.Message{Body: body}
			if k := key(i); k != "" {
				message.PartitionKey = &k
			}
			if batch.NumMessages() == 4500 {
				err = azservicebus.ErrMessageTooLarge
			} else {
				err = batch.AddMessage(&message, nil)
			}
			if errors.Is(err, azservicebus.ErrMessageTooLarge) {
				if err = s.SendMessageBatch(ctx, batch, nil); err != nil {
					return err
				}
				if batch, err = s.NewMessageBatch(ctx, nil); err != nil {
					return err
				}
				err = batch.AddMessage(&message, nil)
			}
			if err != nil {
				return err
			}
		}
		return s.SendMessageBatch(ctx, batch, nil)
	}
}
