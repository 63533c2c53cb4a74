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
	"github.com/sluice-go/sluice/internal/partitionkey"
	"github.com/sluice-go/sluice/sender"
)

// benchKeys is large enough for each partition to have keys.
const (
	benchKeys       = 1000
	benchPartitions = 4
)

// sendFunc sends n messages.
type sendFunc func(n int) error

// BenchmarkSendAll compares SendAll with the loop in the documentation of the
// client libraries: fill a batch, send it, begin the next. With keys, the loop
// has a batch for each partition and sets the key of each event, as SendAll does.
// The two take turns to send to an embedded server in the same process.
func BenchmarkSendAll(b *testing.B) {
	for _, size := range []int{100, 1000} {
		body, keys := make([]byte, size), make([]string, benchKeys)
		for i := range keys {
			keys[i] = fmt.Sprintf("key-%d", i)
		}
		for name, keyed := range map[string]bool{"keys": true, "keyless": false} {
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
				compare(b, size, withSendAll(b, open(b, srv, nil), body, key), loop)
			})
			b.Run(fmt.Sprintf("queue/%dB/%s", size, name), func(b *testing.B) {
				// A topic without subscriptions keeps no messages.
				srv, err := emulator.StartServiceBus(nil, []emulator.ServiceBusTopic{{Name: "void"}}, nil)
				if err != nil {
					b.Fatal(err)
				}
				defer srv.Close()
				compare(b, size, withSendAll(b, openBus(b, srv.ConnectionString(), "void", nil), body, key), busLoop(b, srv, body, key))
			})
		}
	}
}

// rounds is how often each sendFunc has its turn.
const rounds = 6

// compare has each of the two send b.N messages, in turns.
func compare(b *testing.B, size int, ours, loop sendFunc) {
	b.SetBytes(int64(size))
	b.ResetTimer()
	var took [2]time.Duration
	for round := range rounds {
		n := b.N/rounds + 1
		for i, send := range []sendFunc{ours, loop} {
			began := time.Now()
			if err := send(n); err != nil {
				b.Fatalf("sender %d in round %d: %v", i, round, err)
			}
			took[i] += time.Since(began)
		}
	}
	n := float64(rounds * (b.N/rounds + 1))
	b.ReportMetric(n/took[0].Seconds(), "events/s")
	b.ReportMetric(n/took[1].Seconds(), "loop-events/s")
	b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "ratio")
}

// withSendAll sends with SendAll.
func withSendAll(b *testing.B, t sender.Transport, body []byte, key func(int) string) sendFunc {
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

// hubLoop sends with a loop over the batches of the client library.
func hubLoop(b *testing.B, srv *emulator.Server, body []byte) sendFunc {
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
func keyedHubLoop(b *testing.B, srv *emulator.Server, body []byte, key func(int) string) sendFunc {
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
			p := partitionkey.EventHubsPartition(k, benchPartitions)
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

// busLoop sends with a loop over the batches of the client library for Service
// Bus.
func busLoop(b *testing.B, srv *emulator.ServiceBus, body []byte, key func(int) string) sendFunc {
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
