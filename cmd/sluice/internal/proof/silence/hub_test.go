//go:build linux

package silence

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/proof/asazure"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
	"github.com/sluice-go/sluice/sluicetest"
)

// The link of a reader of the hub falls silent; other connections work.
func TestHubLink(t *testing.T) { hub(t, func(link *tcplink.Link) { link.SwallowNewest(1) }) }

// All connections to the hub fall silent; new ones work.
func TestHubConnections(t *testing.T) { hub(t, func(link *tcplink.Link) { link.SwallowNewest(10) }) }

func hub(t *testing.T, strike func(link *tcplink.Link)) {
	need.RealTime(t)
	azure := asazure.FreshRuntime() // by which a silent link is noticed
	azure.EventHubs.RandomBusy = 0  // a link that is opened again would be another one than the newest
	server, err := emulator.Start([]emulator.Hub{{Name: group.Topic, Partitions: 1}}, &emulator.Config{AsAzure: azure})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	producer, err := azeventhubs.NewProducerClientFromConnectionString(server.ConnectionString(), group.Topic, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { producer.Close(context.Background()) }) // after the last event: cleanups run in reverse
	every(t, func(n int) error {
		batch, err := producer.NewEventDataBatch(t.Context(), nil)
		if err == nil {
			err = batch.AddEventData(&azeventhubs.EventData{Body: fmt.Append(nil, n)}, nil)
		}
		if err == nil {
			err = producer.SendEventDataBatch(t.Context(), batch, nil)
		}
		return err
	})
	link := tcplink.NewTest(t, server.Addr())
	source, err := eventhub.New(strings.Replace(server.ConnectionString(), server.Addr(), link.Addr(), 1), group.Topic, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close(context.Background())
	delivery := sluice.Transactional(new(sluicetest.Store), func(context.Context, *sluicetest.Tx, sluice.Batch) error { return nil })
	measure(t, newWatch(t), source, new(sluicetest.Leases), delivery, func() { strike(link) })
}
