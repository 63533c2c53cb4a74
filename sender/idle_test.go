package sender

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator"
)

// A transport that was idle for so long that the service may have closed its connection
// opens another one before it sends, so no answer seems to be lost. Otherwise a batch
// would be reported as unknown although it was never sent.
func TestIdleTransportReconnects(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	bus, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders"}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	hub, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	toBus, err := OpenServiceBus(bus.ConnectionString(), "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer toBus.Close(context.Background())
	toHub, err := OpenEventHub(hub.ConnectionString(), "flights", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer toHub.Close(context.Background())
	for name, service := range map[string]struct {
		transport Transport
		limit     *time.Duration
		drop      func() int
	}{
		"Service Bus": {toBus, &toBus.idleLimit, bus.DropConnections},
		"Event Hubs":  {toHub, &toHub.idleLimit, hub.DropConnections},
	} {
		t.Run(name, func(t *testing.T) {
			send := func() Outcome {
				partitions, err := service.transport.Partitions(ctx)
				if err != nil {
					t.Fatal(err)
				}
				batch, err := service.transport.NewBatch(ctx, partitions[0])
				if err != nil {
					t.Fatal(err)
				}
				if err := batch.Add(&Message{Body: []byte("body")}); err != nil {
					t.Fatal(err)
				}
				outcome, _ := service.transport.Send(ctx, batch)
				return outcome
			}
			if got := send(); got != OutcomeAccepted {
				t.Fatalf("first batch: outcome %d", got)
			}
			if n := service.drop(); n == 0 {
				t.Fatal("there was no connection")
			}
			*service.limit = time.Nanosecond // which has passed
			if got := send(); got != OutcomeAccepted {
				t.Errorf("batch after an idle time: outcome %d", got)
			}
		})
	}
}
