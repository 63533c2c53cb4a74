package emulator_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice/emulator"
)

func Example() {
	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 4}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	ctx := context.Background()

	producer, err := azeventhubs.NewProducerClientFromConnectionString(srv.ConnectionString(), "flights", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close(ctx)
	batch, err := producer.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr("0")})
	if err != nil {
		log.Fatal(err)
	}
	for _, route := range []string{"HOU MCI", "BWI ABQ"} {
		if err := batch.AddEventData(&azeventhubs.EventData{Body: []byte(route)}, nil); err != nil {
			log.Fatal(err)
		}
	}
	if err := producer.SendEventDataBatch(ctx, batch, nil); err != nil {
		log.Fatal(err)
	}

	consumer, err := azeventhubs.NewConsumerClientFromConnectionString(srv.ConnectionString(), "flights", azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close(ctx)
	partition, err := consumer.NewPartitionClient("0", &azeventhubs.PartitionClientOptions{
		StartPosition: azeventhubs.StartPosition{Earliest: to.Ptr(true)},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer partition.Close(ctx)
	events, err := partition.ReceiveEvents(ctx, 2, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range events {
		fmt.Println(e.SequenceNumber, string(e.Body))
	}
	// Output:
	// 0 HOU MCI
	// 1 BWI ABQ
}

func ExampleStartServiceBus() {
	srv, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders"}}, nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	ctx := context.Background()

	client, err := azservicebus.NewClientFromConnectionString(srv.ConnectionString(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	sender, err := client.NewSender("orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("two coffees")}, nil); err != nil {
		log.Fatal(err)
	}
	receiver, err := client.NewReceiverForQueue("orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range messages {
		fmt.Println(*m.SequenceNumber, string(m.Body))
		if err := receiver.CompleteMessage(ctx, m, nil); err != nil {
			log.Fatal(err)
		}
	}
	counts, err := srv.Counts("orders")
	fmt.Println(counts.Active, err)
	// Output:
	// 1 two coffees
	// 0 <nil>
}

// The first write is throttled; the client library waits and retries.
func ExampleCosmos_Faults() {
	srv, err := emulator.StartCosmos([]emulator.CosmosContainer{{Database: "shop", Name: "orders", KeyPaths: []string{"/customer"}}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	if _, err := srv.Faults().Add(emulator.CosmosFault{
		Kind: emulator.CosmosFaultStatus, Status: http.StatusTooManyRequests, RetryAfter: 10 * time.Millisecond,
		On: emulator.OnCosmosWrite, Times: 1,
	}); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	client, err := azcosmos.NewClientFromConnectionString(srv.ConnectionString(), nil)
	if err != nil {
		log.Fatal(err)
	}
	orders, err := client.NewContainer("shop", "orders")
	if err != nil {
		log.Fatal(err)
	}
	key := azcosmos.NewPartitionKeyString("ada")
	written, err := orders.CreateItem(ctx, key, []byte(`{"id":"1","customer":"ada","coffees":2}`), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(written.RequestCharge, "RU, faults hit:", srv.Faults().List()[0].Hits)
	stats, err := srv.ContainerStats("shop", "orders")
	fmt.Println(stats.Documents, err)
	// Output:
	// 6.28 RU, faults hit: 1
	// 1 <nil>
}
