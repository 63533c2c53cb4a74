// Command consumer is two of the programs that package peers compares: Sluice, and
// the loop that one writes without it. Both use the same libraries for Kafka and for
// PostgreSQL, and write the same rows with the same function.
//
//	consumer sluice|loop
//
// The environment says what to read and where to write: see [job]. It runs until
// SIGTERM.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// leaseFor is how long the partitions of a consumer that was killed stay unread:
// the session timeout of the peers that have a consumer group.
const leaseFor = 6 * time.Second

// job is what the environment says.
type job struct {
	brokers    []string
	topic      string
	group      string
	partitions int
	database   string
	keyed      bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	of := map[string]func(context.Context, *job) error{"sluice": runSluice, "loop": runLoop}
	if len(args) != 1 || of[args[0]] == nil {
		return errors.New("usage: consumer sluice|loop")
	}
	j := &job{
		brokers: strings.Split(os.Getenv("KAFKA_BROKERS"), ","), topic: os.Getenv("KAFKA_TOPIC"),
		group: os.Getenv("KAFKA_GROUP"), database: os.Getenv("DATABASE_URL"), keyed: os.Getenv("INSERT_MODE") == "upsert",
	}
	if j.partitions, err = strconv.Atoi(os.Getenv("PARTITIONS")); err != nil {
		return fmt.Errorf("PARTITIONS: %w", err)
	}
	finish, err := profile(os.Getenv("PROFILES"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finish()) }()
	return of[args[0]](ctx, j)
}

// insert writes n rows to the table of the comparison by COPY.
func insert(ctx context.Context, tx pgx.Tx, n int, row func(int) (partition int32, offset int64, body []byte)) error {
	rows := pgx.CopyFromSlice(n, func(i int) ([]any, error) {
		partition, offset, body := row(i)
		return []any{partition, offset, body}, nil
	})
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"events"}, []string{"hub_partition", "sequence_number", "body"}, rows)
	return err
}
