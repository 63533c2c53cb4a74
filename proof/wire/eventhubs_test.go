package wire

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/eventhub"
)

// worlds returns how many worlds a test runs, from which seed on.
func worlds(t *testing.T, usual int) (from uint64, n int) {
	from, n = 1, usual
	if s := os.Getenv("SLUICE_WIRE_WORLDS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	if s := os.Getenv("SLUICE_SEED"); s != "" {
		var err error
		if from, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return from, n
}

// runWorlds runs worlds in virtual time. Where they are many, each of the lies must have been told.
func runWorlds(t *testing.T, usual int, start func(t *testing.T, n *network) broker, lies ...string) {
	from, n := worlds(t, usual)
	told := map[string]int{}
	for i := range n {
		seed := from + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for lie, times := range run(t, seed, start) {
					told[lie] += times
				}
			})
		})
	}
	t.Log(told)
	for _, lie := range lies {
		if n >= 50 && told[lie] == 0 {
			t.Errorf("no lie of the kind %q in %d worlds", lie, n)
		}
	}
}

type eventHubs struct {
	server   *emulator.Server
	address  string
	producer *azeventhubs.ProducerClient
}

func (b *eventHubs) protocol() protocol { return amqp{} }

func (b *eventHubs) open(n *network, prefetchBytes int) (source, error) {
	cfg := &eventhub.Config{PrefetchBytes: prefetchBytes, WebSocket: func(ctx context.Context, _ string) (net.Conn, error) { return n.dial(ctx, b.address) }}
	return eventhub.New(b.server.ConnectionString(), "hub", cfg)
}

func (b *eventHubs) send(ctx context.Context, partition int, body string) error {
	batch, err := b.producer.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(strconv.Itoa(partition))})
	if err != nil {
		return err
	}
	if err := batch.AddEventData(&azeventhubs.EventData{Body: []byte(body)}, nil); err != nil {
		return err
	}
	return b.producer.SendEventDataBatch(ctx, batch, nil)
}

func (b *eventHubs) close() {
	b.producer.Close(context.Background())
	b.server.Close()
}

func startEventHubs(t *testing.T, n *network) broker {
	l, err := n.listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &eventHubs{address: l.Addr().String()}
	if b.server, err = emulator.Start([]emulator.Hub{{Name: "hub", Partitions: partitions}}, &emulator.Config{Listener: l}); err != nil {
		t.Fatal(err)
	}
	b.producer, err = azeventhubs.NewProducerClientFromConnectionString(b.server.ConnectionString(), "hub", &azeventhubs.ProducerClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azeventhubs.WebSocketConnParams) (net.Conn, error) {
			return n.connect(ctx, b.address, nil)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestEventHubs: the driver of Event Hubs, whatever the broker's answers are, loses nothing,
// applies nothing twice, makes no dead letter and gets on when the lies end.
func TestEventHubs(t *testing.T) {
	runWorlds(t, 12, startEventHubs, "cut", "stall", "late", "replay", "empty", "many empty", "split", "mix")
}
