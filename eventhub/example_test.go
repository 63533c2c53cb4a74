package eventhub_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/eventhub"
)

// A source is passed to sluice.New. It can also be read directly.
func Example() {
	ctx := context.Background()
	server, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 2}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	send(ctx, server.ConnectionString(), "first", "second")

	source, err := eventhub.New(server.ConnectionString(), "flights", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close(ctx)
	reader, err := source.Open(ctx, "0", driver.Origin, 1)
	if err != nil {
		log.Fatal(err)
	}
	for n := 0; n < 2; {
		events, err := reader.Read(ctx, 100)
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range events {
			fmt.Printf("%d: %s\n", e.Sequence, e.Body)
		}
		n += len(events)
	}
	// Output:
	// 0: first
	// 1: second
}

// Authentication with Entra ID: as a managed identity on Azure, elsewhere as the user
// of the az command.
func ExampleNewWithCredential() {
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		log.Fatal(err)
	}
	source, err := eventhub.NewWithCredential("contoso.servicebus.windows.net", "flights", credential, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(source.Group())
	// Output: contoso.servicebus.windows.net/flights/$Default
}

func send(ctx context.Context, connection string, bodies ...string) {
	producer, err := azeventhubs.NewProducerClientFromConnectionString(connection, "flights", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close(ctx)
	batch, err := producer.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr("0")})
	if err != nil {
		log.Fatal(err)
	}
	for _, body := range bodies {
		if err := batch.AddEventData(&azeventhubs.EventData{Body: []byte(body)}, nil); err != nil {
			log.Fatal(err)
		}
	}
	if err := producer.SendEventDataBatch(ctx, batch, nil); err != nil {
		log.Fatal(err)
	}
}
