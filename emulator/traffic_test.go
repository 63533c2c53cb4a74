package emulator_test

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice/emulator"
)

// What the servers count as arrived is what the clients say of their batches, byte by byte.
func TestIncomingStats(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	p := producer(t, srv, "h")
	bus := startBus(t, emulator.ServiceBusQueue{}, nil)
	s := busSender(t, busClient(t, bus.ConnectionString()), "orders")
	var hubs, queues emulator.IncomingStats
	for n := 1; n <= 100_000; n *= 10 {
		b, err := p.NewEventDataBatch(testContext(t), to0())
		must(t, err)
		for range 3 {
			must(t, b.AddEventData(&azeventhubs.EventData{Body: make([]byte, n)}, nil))
		}
		must(t, p.SendEventDataBatch(testContext(t), b, nil))
		hubs.Messages, hubs.Bytes, hubs.Largest = hubs.Messages+1, hubs.Bytes+int64(b.NumBytes()), int64(b.NumBytes())
		m, err := s.NewMessageBatch(testContext(t), nil)
		must(t, err)
		for range 2 {
			must(t, m.AddMessage(&azservicebus.Message{Body: make([]byte, n)}, nil))
		}
		must(t, s.SendMessageBatch(testContext(t), m, nil))
		queues.Messages, queues.Bytes, queues.Largest = queues.Messages+1, queues.Bytes+int64(m.NumBytes()), int64(m.NumBytes())
	}
	if got := srv.IncomingStats("H"); got != hubs {
		t.Errorf("of %+v, %+v arrived", hubs, got)
	}
	if got := bus.IncomingStats("orders"); got != queues {
		t.Errorf("of %+v, %+v arrived", queues, got)
	}
	if w := srv.Traffic(); w.Received <= hubs.Bytes || w.Received > hubs.Bytes+hubs.Bytes/50+10_000 || w.Sent < 1000 || w.Sent > 10_000 {
		t.Errorf("%d bytes of batches, and on the wire %+v", hubs.Bytes, w)
	}
	if got := srv.IncomingStats("nowhere"); got != (emulator.IncomingStats{}) {
		t.Errorf("%+v arrived at a hub that isn't there", got)
	}
}
