package kafka_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"os"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-go/sluice/kafka"
)

// startKafka starts a Kafka in memory, with records in a topic of one partition.
func startKafka(topic string, bodies ...string) (brokers []string) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	if err != nil {
		log.Fatal(err)
	}
	producer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic(topic))
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()
	for _, body := range bodies {
		if err := producer.ProduceSync(context.Background(), kgo.StringRecord(body)).FirstErr(); err != nil {
			log.Fatal(err)
		}
	}
	return cluster.ListenAddrs()
}

// A source is passed to sluice.New. It can also be read directly.
func Example() {
	ctx := context.Background()
	brokers := startKafka("flights", "first", "second")
	client, err := kafka.Open(brokers, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	source, err := client.Source("flights", "to-postgres", nil)
	if err != nil {
		log.Fatal(err)
	}
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

func ExampleOpen() {
	client, err := kafka.Open([]string{"kafka-1.example.com:9093", "kafka-2.example.com:9093"}, &kafka.Config{
		TLS:            &tls.Config{},
		Authentication: kafka.SCRAM512("sluice", os.Getenv("KAFKA_PASSWORD")),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(context.Background())
}

// Event Hubs speaks Kafka's protocol too.
func ExampleEntraID() {
	var credential azcore.TokenCredential // such as that of azidentity.NewDefaultAzureCredential
	client, err := kafka.Open([]string{"contoso.servicebus.windows.net:9093"}, &kafka.Config{
		TLS:            &tls.Config{},
		Authentication: kafka.EntraID(credential),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(context.Background())
}

func ExampleParseURL() {
	address, err := kafka.ParseURL("kafka+tls://kafka-1.example.com:9093,kafka-2.example.com:9093/flights")
	fmt.Println(address.Brokers, address.TLS, address.Topic, err)
	// Output: [kafka-1.example.com:9093 kafka-2.example.com:9093] true flights <nil>
}
