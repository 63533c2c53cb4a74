package pipeline

import (
	"testing"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/sender"
)

// A file with websocket: true reads, and sends to hubs and to Service Bus, over WebSockets.
func TestWebSocketTargets(t *testing.T) {
	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	h := &hub{namespace: namespace{connection: srv.ConnectionString(), websocket: true}, name: "flights"}
	if err := h.check(t.Context()); err != nil {
		t.Error(err)
	}
	out, err := h.transport()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close(t.Context())
	if _, err := out.NewBatch(t.Context(), sender.Message{}.Key); err != nil {
		t.Error(err)
	}

	bus, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders"}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	e := &serviceBusEntity{namespace: namespace{connection: bus.ConnectionString(), websocket: true}, name: "orders"}
	if err := e.check(t.Context()); err != nil {
		t.Error(err)
	}
}
