package sender_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/sender"
)

// benchKeys are many enough for every partition to have some.
const (
	benchKeys       = 1000
	benchPartitions = 4
)

// BenchmarkSendAll compares SendAll, with keys and without, with the loop that
// the client library's documentation has: fill a batch, send it, begin the next.
// Both send to an embedded hub in the same process.
func BenchmarkSendAll(b *testing.B) {
	for _, size := range []int{100, 1000} {
		body := make([]byte, size)
		keys := make([]string, benchKeys)
		for i := range keys {
			keys[i] = fmt.Sprintf("key-%d", i)
		}
		messages := func(n int, keyed bool) func(yield func(sender.Message) bool) {
			return func(yield func(sender.Message) bool) {
				for i := range n {
					m := sender.Message{Body: body}
					if keyed {
						m.Key = keys[i%benchKeys]
					}
					if !yield(m) {
						return
					}
				}
			}
		}
		perSecond := func(b *testing.B) {
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		}
		for _, keyed := range []bool{true, false} {
			name := fmt.Sprintf("%dB/SendAll", size)
			if !keyed {
				name += "WithoutKeys"
			}
			b.Run(name, func(b *testing.B) {
				s := sender.New(open(b, start(b, benchPartitions, nil), nil), nil)
				b.SetBytes(int64(size))
				b.ResetTimer()
				report, err := s.SendAll(b.Context(), messages(b.N, keyed))
				if err != nil || report.Messages != int64(b.N) {
					b.Fatalf("%d of %d accepted: %v", report.Messages, b.N, err)
				}
				perSecond(b)
			})
		}
		b.Run(fmt.Sprintf("%dB/ClientLibrary", size), func(b *testing.B) {
			srv := start(b, benchPartitions, nil)
			client, err := azeventhubs.NewProducerClientFromConnectionString(srv.ConnectionString(), hub, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close(b.Context())
			b.SetBytes(int64(size))
			b.ResetTimer()
			if err := loop(b, client, messages(b.N, false)); err != nil {
				b.Fatal(err)
			}
			perSecond(b)
		})
	}
}

// loop is the client library's, as written by hand.
func loop(b *testing.B, client *azeventhubs.ProducerClient, messages func(func(sender.Message) bool)) error {
	ctx := b.Context()
	batch, err := client.NewEventDataBatch(ctx, nil)
	if err != nil {
		return err
	}
	for m := range messages {
		event := azeventhubs.EventData{Body: m.Body}
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
	if batch.NumEvents() == 0 {
		return nil
	}
	return client.SendEventDataBatch(ctx, batch, nil)
}
