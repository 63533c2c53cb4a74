package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// What is larger than the limit is refused, by the client if it knows the limit, else by the
// server; what just fits is taken.
func TestMessageLimit(t *testing.T) {
	for _, limit := range []int{0, 256 << 10} {
		srv := start(t, one("h", 1), &emulator.Config{MaxMessageBytes: limit})
		if limit == 0 {
			limit = 1 << 20
		}
		p := producer(t, srv, "h")
		batch, err := p.NewEventDataBatch(testContext(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		tooLarge := &azeventhubs.EventData{Body: make([]byte, limit)}
		if err := batch.AddEventData(tooLarge, nil); !errors.Is(err, azeventhubs.ErrEventDataTooLarge) {
			t.Errorf("an event above the limit of %d: %v", limit, err)
		}
		if err := batch.AddEventData(&azeventhubs.EventData{Body: make([]byte, limit-200)}, nil); err != nil {
			t.Errorf("an event below the limit of %d: %v", limit, err)
		}
		if err := p.SendEventDataBatch(testContext(t), batch, nil); err != nil {
			t.Errorf("a batch of one event below the limit of %d: %v", limit, err)
		}
		if _, err := p.NewEventDataBatch(testContext(t), &azeventhubs.EventDataBatchOptions{MaxBytes: uint64(limit) + 1}); err == nil {
			t.Errorf("a batch larger than the limit of %d was begun", limit)
		}

		s := session(t, srv)
		l := sender(t, s, "h")
		if l.MaxMessageSize() != uint64(limit) {
			t.Errorf("the link's limit is %d, want %d", l.MaxMessageSize(), limit)
		}
		fits := &amqp.Message{Data: [][]byte{make([]byte, limit-8)}} // descriptor and size
		if err := l.Send(testContext(t), fits, nil); err != nil {
			t.Errorf("a message of exactly %d bytes: %v", limit, err)
		}
		pc := partition(t, consumer(t, srv, "h", "$Default", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest})
		for _, size := range []int{limit - 200, limit - 8} {
			if got := receive(t, pc, 1); len(got[0].Body) != size {
				t.Errorf("got %d bytes of %d", len(got[0].Body), size)
			}
		}
	}
	for _, limit := range []int{-1, 1<<20 + 1} {
		if srv, err := emulator.Start(one("h", 1), &emulator.Config{MaxMessageBytes: limit}); err == nil {
			srv.Close()
			t.Errorf("started with a limit of %d", limit)
		}
	}
}

// Old events go, and a reader goes on.
func TestRetention(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	const retention = 5 * time.Second
	var p *azeventhubs.ProducerClient
	var reader *azeventhubs.PartitionClient
	read := func(ctx context.Context, n int) ([]*azeventhubs.ReceivedEventData, error) { // until they are removed
		ctx, cancel := context.WithTimeout(ctx, retention)
		defer cancel()
		events, err := reader.ReceiveEvents(ctx, n, nil)
		if err == nil && len(events) != n {
			err = fmt.Errorf("got %d events, want %d", len(events), n)
		}
		return events, err
	}
	retryIfSlow(t, retention, func(ctx context.Context) error {
		srv := start(t, one("h", 2), &emulator.Config{Retention: retention})
		p = producer(t, srv, "h")
		send(t, p, to0(), numbered(0, 10)...)
		reader = partition(t, consumer(t, srv, "h", "$Default", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest})
		_, err := read(ctx, 10)
		return err
	})
	for ctx := testContext(t); ; {
		props, err := p.GetPartitionProperties(ctx, "0", nil)
		if err != nil {
			t.Fatal(err)
		}
		if props.IsEmpty {
			if props.BeginningSequenceNumber != 10 || props.LastEnqueuedSequenceNumber != 9 {
				t.Errorf("properties %+v", props)
			}
			break
		}
	}
	number := 10
	retryIfSlow(t, retention, func(ctx context.Context) error {
		send(t, p, to0(), fmt.Sprint("new ", number))
		number++
		events, err := read(ctx, 1)
		if err == nil && string(events[0].Body) != fmt.Sprint("new ", events[0].SequenceNumber) {
			t.Errorf("got %q, number %d, want the new event", events[0].Body, events[0].SequenceNumber)
		}
		return err
	})
}
