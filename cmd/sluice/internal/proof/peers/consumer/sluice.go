package main

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/kafka"
	"github.com/sluice-go/sluice/pgstore"
)

// runSluice consumes with the defaults of Sluice, except that it acquires its
// partitions quickly and starts them together, as the peers do, and that its leases are
// as short as the peers' sessions.
func runSluice(ctx context.Context, j *job) (err error) {
	client, err := kafka.Open(j.brokers, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close(context.WithoutCancel(ctx))) }()
	source, err := client.Source(j.topic, j.group, nil)
	if err != nil {
		return err
	}
	store, err := pgstore.Open(ctx, j.database, &pgstore.Config{LeaseFor: leaseFor})
	if err != nil {
		return err
	}
	defer store.Close()
	consumer, err := sluice.New(startTogether(source, j.partitions), store.Leases(), sluice.Transactional(store, j.writeBatch), &sluice.Config{
		LeaseFor: leaseFor, AssignEvery: 100 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = consumer.Stop(stopping) // Run returns what went wrong
	}()
	return consumer.Run(context.WithoutCancel(ctx))
}

func (j *job) writeBatch(ctx context.Context, tx pgx.Tx, b sluice.Batch) error {
	partition, err := strconv.ParseInt(b.Partition, 10, 32)
	if err != nil {
		return err
	}
	if j.keyed {
		rows := make([][]any, len(b.Events))
		for i, e := range b.Events {
			rows[i] = []any{int32(partition), e.Sequence, string(e.Body)}
		}
		return pgstore.Upsert(ctx, tx, "events", []string{"hub_partition", "sequence_number", "body"}, rows, driver.Keyed{Key: []string{"hub_partition", "sequence_number"}})
	}
	return insert(ctx, tx, len(b.Events), func(i int) (int32, int64, []byte) {
		return int32(partition), b.Events[i].Sequence, b.Events[i].Body
	})
}

// togetherSource opens no partition until all are about to be opened.
type togetherSource struct {
	driver.Source
	left atomic.Int32
	all  chan struct{}
}

func startTogether(s driver.Source, partitions int) *togetherSource {
	t := &togetherSource{Source: s, all: make(chan struct{})}
	t.left.Store(int32(partitions))
	return t
}

func (t *togetherSource) Open(ctx context.Context, partition string, after driver.Position, epoch int64) (driver.Reader, error) {
	if t.left.Add(-1) == 0 {
		close(t.all)
	}
	select {
	case <-t.all:
		return t.Source.Open(ctx, partition, after, epoch)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
