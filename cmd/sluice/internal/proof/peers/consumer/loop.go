package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
)

// runLoop is the consumer that one writes without Sluice: it reads all partitions with franz-go,
// and for each of them copies a batch of rows and stores the offset after it in one transaction. It
// is as fast as we could make it: franz-go's default of 1 MiB of a partition in a fetch makes it a
// fifth slower. It has no leases and no fencing, so two processes must not run at the same time; no
// dead letters and no retries; and it does not notice a topic that was created again or a log that
// was truncated.
func runLoop(ctx context.Context, j *job) error {
	pool, err := openPool(ctx, j)
	if err != nil {
		return err
	}
	defer pool.Close()
	offsets, err := storedOffsets(ctx, pool, j.partitions)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(j.brokers...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{j.topic: offsets}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxPartitionBytes(4<<20),
	)
	if err != nil {
		return err
	}
	defer client.Close()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var writers sync.WaitGroup
	fetched := make([]chan []*kgo.Record, j.partitions)
	for p := range fetched {
		fetched[p] = make(chan []*kgo.Record, 2) // the next records are fetched while a batch is written
		writers.Go(func() {
			if err := write(ctx, pool, int32(p), fetched[p]); err != nil {
				cancel(fmt.Errorf("partition %d: %w", p, err))
			}
		})
	}
	poll(ctx, client, fetched, cancel)
	writers.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func openPool(ctx context.Context, j *job) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(j.database)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns = int32(j.partitions), int32(j.partitions)
	return pgxpool.NewWithConfig(ctx, cfg)
}

// storedOffsets returns the offset at which each partition continues.
func storedOffsets(ctx context.Context, pool *pgxpool.Pool, partitions int) (map[int32]kgo.Offset, error) {
	if _, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS progress (hub_partition integer PRIMARY KEY, next_offset bigint)`); err != nil {
		return nil, err
	}
	offsets := map[int32]kgo.Offset{}
	for p := range int32(partitions) {
		var next int64
		err := pool.QueryRow(ctx, `INSERT INTO progress VALUES ($1, 0)
			ON CONFLICT (hub_partition) DO UPDATE SET next_offset = progress.next_offset RETURNING next_offset`, p).Scan(&next)
		if err != nil {
			return nil, err
		}
		offsets[p] = kgo.NewOffset().At(next)
	}
	return offsets, nil
}

// poll passes on what was fetched, until ctx ends. It closes the channels.
func poll(ctx context.Context, client *kgo.Client, fetched []chan []*kgo.Record, fail context.CancelCauseFunc) {
	defer func() {
		for _, c := range fetched {
			close(c)
		}
	}()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			fail(err)
			return
		}
		fetches.EachPartition(func(t kgo.FetchTopicPartition) {
			if len(t.Records) == 0 {
				return
			}
			select {
			case fetched[t.Partition] <- t.Records:
			case <-ctx.Done():
			}
		})
	}
}

// enough is how many records a batch has if more were fetched. A whole fetch has about
// 3,700 in the comparison, as many as a transaction of Sluice.
const enough = 2000

// write writes a partition's records in batches. What one fetch has brought is not divided.
func write(ctx context.Context, pool *pgxpool.Pool, partition int32, fetched <-chan []*kgo.Record) error {
	for batch := range fetched {
		batch = more(batch, fetched)
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			err := insert(ctx, tx, len(batch), func(i int) (int32, int64, []byte) { return partition, batch[i].Offset, batch[i].Value })
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `UPDATE progress SET next_offset = $2 WHERE hub_partition = $1`, partition, batch[len(batch)-1].Offset+1)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// more adds what else was fetched until the batch has enough.
func more(batch []*kgo.Record, fetched <-chan []*kgo.Record) []*kgo.Record {
	for len(batch) < enough {
		select {
		case records, ok := <-fetched:
			if !ok {
				return batch
			}
			batch = append(batch, records...)
		default:
			return batch
		}
	}
	return batch
}
