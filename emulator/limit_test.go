package emulator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/emulator"
)

// What is larger than the limit is refused, by the client if it knows the limit, else by the server; what just fits is taken.
func TestMessageLimit(t *testing.T) {
	for _, limit := range []int{0, 256 << 10} {
		srv := start(t, one("h", 1), &emulator.Config{MaxMessageBytes: limit})
		if limit == 0 {
			limit = 1 << 20
		}
		p := producer(t, srv, "h")
		batch, err := p.NewEventDataBatch(within(t), nil)
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
		if err := p.SendEventDataBatch(within(t), batch, nil); err != nil {
			t.Errorf("a batch of one event below the limit of %d: %v", limit, err)
		}
		if _, err := p.NewEventDataBatch(within(t), &azeventhubs.EventDataBatchOptions{MaxBytes: uint64(limit) + 1}); err == nil {
			t.Errorf("a batch larger than the limit of %d was begun", limit)
		}

		s := session(t, srv)
		l := sender(t, s, "h")
		if l.MaxMessageSize() != uint64(limit) {
			t.Errorf("the link's limit is %d, want %d", l.MaxMessageSize(), limit)
		}
		fits := &amqp.Message{Data: [][]byte{make([]byte, limit-8)}} // descriptor and size
		if err := l.Send(within(t), fits, nil); err != nil {
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
	t.Parallel()
	srv := start(t, one("h", 2), &emulator.Config{Retention: 5 * time.Second})
	p := producer(t, srv, "h")
	send(t, p, to0(), numbered(0, 10)...)
	reader := partition(t, consumer(t, srv, "h", "$Default", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest})
	receive(t, reader, 10)
	for ctx := within(t); ; {
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
	send(t, p, to0(), "new")
	if e := receive(t, reader, 1)[0]; string(e.Body) != "new" || e.SequenceNumber != 10 {
		t.Errorf("got %q, number %d, want the new event", e.Body, e.SequenceNumber)
	}
}
