// Command watermill writes events to PostgreSQL with Watermill.
//
// A subscriber of Watermill for Kafka passes on one message of a partition at a
// time: the next one comes when that has been acknowledged. So a transaction that
// must commit before the acknowledgement has one message of each partition at most,
// and this program writes those together.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
)

// waitFor is how long a message waits at most for those of the other partitions.
const waitFor = time.Millisecond

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "watermill:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	partitions, err := strconv.Atoi(os.Getenv("PARTITIONS"))
	if err != nil {
		return fmt.Errorf("PARTITIONS: %w", err)
	}
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))

	settings := kafka.DefaultSaramaSubscriberConfig()
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.IsolationLevel = sarama.ReadCommitted
	settings.Consumer.Group.Session.Timeout = 6 * time.Second
	settings.Consumer.Group.Heartbeat.Interval = 2 * time.Second
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers:               strings.Split(os.Getenv("KAFKA_BROKERS"), ","),
		ConsumerGroup:         os.Getenv("KAFKA_GROUP"),
		OverwriteSaramaConfig: settings,
	}, watermill.NewStdLogger(false, false))
	if err != nil {
		return err
	}
	defer subscriber.Close()
	messages, err := subscriber.Subscribe(ctx, os.Getenv("KAFKA_TOPIC"))
	if err != nil {
		return err
	}
	for {
		batch := next(messages, partitions)
		if len(batch) == 0 {
			return nil
		}
		if err := write(ctx, conn, batch); err != nil {
			return err
		}
		for _, m := range batch {
			m.Ack()
		}
	}
}

// next returns up to most messages. None is the end.
func next(messages <-chan *message.Message, most int) []*message.Message {
	first, ok := <-messages
	if !ok {
		return nil
	}
	batch := []*message.Message{first}
	wait := time.NewTimer(waitFor)
	defer wait.Stop()
	for len(batch) < most {
		select {
		case m, ok := <-messages:
			if !ok {
				return batch
			}
			batch = append(batch, m)
		case <-wait.C:
			return batch
		}
	}
	return batch
}

// write inserts a row for each message with one statement.
func write(ctx context.Context, conn *pgx.Conn, batch []*message.Message) error {
	partitions, offsets, bodies := make([]int32, len(batch)), make([]int64, len(batch)), make([]string, len(batch))
	for i, m := range batch {
		partitions[i], _ = kafka.MessagePartitionFromCtx(m.Context())
		offsets[i], _ = kafka.MessagePartitionOffsetFromCtx(m.Context())
		bodies[i] = string(m.Payload)
	}
	_, err := conn.Exec(ctx, `INSERT INTO events SELECT * FROM unnest($1::integer[], $2::bigint[], $3::text[])`, partitions, offsets, bodies)
	return err
}
