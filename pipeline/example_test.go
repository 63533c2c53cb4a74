package pipeline_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/pipeline"
)

const file = `
source:
  eventhub: {hub: flights, connection: "${EVENTHUB_CONNECTION_STRING}"}
partitions: all
database: ${DATABASE_URL}
target:
  insert:
    table: flights
    create: true
    columns:
      sequence_number: sequence
      origin: body.origin
      delay: {from: body.delay, type: integer}
`

// A consumer made from a pipeline file writes the events of a hub to a table.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "pipeline")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	hub, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 1}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close()
	send(ctx, hub.ConnectionString(), `{"origin":"SAN","delay":12}`, `{"origin":"SMF","delay":0}`)

	database := filepath.Join(dir, "flights.db")
	variables := map[string]string{"EVENTHUB_CONNECTION_STRING": hub.ConnectionString(), "DATABASE_URL": "sqlite:" + database}
	p, err := pipeline.Parse("flights.yaml", []byte(file), func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	})
	if err != nil {
		log.Fatal(err)
	}
	parts, err := p.Open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := parts.Consumer(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx) }()
	for at := int64(-1); at < 1; time.Sleep(10 * time.Millisecond) {
		checkpoints, err := parts.Checkpoints.Read(ctx, p.Group)
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range checkpoints {
			at = c.Position.Sequence
		}
	}
	if err := errors.Join(consumer.Stop(ctx), <-ended, parts.Close(ctx)); err != nil {
		log.Fatal(err)
	}
	printRows(database)
	// Output:
	// 0 SAN 12
	// 1 SMF 0
}

// The error has a line for each mistake, with its place, its key, and what to do.
func ExampleParse_mistake() {
	_, err := pipeline.Parse("flights.yaml", []byte("source: {eventhub: {hub: flights}}\npartitions: some\n"), os.LookupEnv)
	fmt.Println(err)
	// Output:
	// flights.yaml:1:1: target: is missing
	// flights.yaml:1:10: source.eventhub: needs one of connection (write ${EVENTHUB_CONNECTION_STRING}) and namespace (with credential: default)
	// flights.yaml:2:1: partitions: "some": write all, balanced, a whole number from 1 to 4096, or {ordinal: N, of: PROCESSES}
}

func printRows(database string) {
	db, err := sql.Open("sqlite", "file:"+database+"?_pragma=busy_timeout(10000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query("SELECT sequence_number, origin, delay FROM flights ORDER BY sequence_number")
	if err != nil {
		log.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var sequence, delay int64
		var origin string
		if err := rows.Scan(&sequence, &origin, &delay); err != nil {
			log.Fatal(err)
		}
		fmt.Println(sequence, origin, delay)
	}
	if err := rows.Err(); err != nil {
		log.Fatal(err)
	}
}

func send(ctx context.Context, connection string, bodies ...string) {
	producer, err := azeventhubs.NewProducerClientFromConnectionString(connection, "flights", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close(ctx)
	batch, err := producer.NewEventDataBatch(ctx, nil)
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
