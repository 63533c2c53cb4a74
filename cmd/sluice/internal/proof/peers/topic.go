//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kgo"
)

// bodySize is that of an event in bytes.
const bodySize = 1000

// body makes an event's body: JSON, most of it text that no compression shortens much.
func body(random *rand.Rand, n int) []byte {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -"
	b := fmt.Appendf(make([]byte, 0, bodySize), `{"number":%d,"device":"gauge-%04d","payload":"`, n, n%10_000)
	for len(b) < bodySize-2 {
		b = append(b, letters[random.IntN(len(letters))])
	}
	return append(b, `"}`...)
}

func records(topic string, random *rand.Rand, from, n int) []*kgo.Record {
	list := make([]*kgo.Record, n)
	for i := range list {
		number := from + i
		list[i] = &kgo.Record{Topic: topic, Partition: int32(number % partitions), Key: fmt.Appendf(nil, "gauge-%04d", number%10_000), Value: body(random, number)}
	}
	return list
}

// fill writes so many events to a new topic, without transactions.
func (l *lab) fill(ctx context.Context, topic string, events int) error {
	if err := l.broker.CreateTopic(ctx, topic, partitions); err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(l.broker.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer client.Close()
	random := rand.New(rand.NewPCG(1, 2))
	const together = 5000
	for n := 0; n < events; n += together {
		if err := client.ProduceSync(ctx, records(topic, random, n, min(together, events-n))...).FirstErr(); err != nil {
			return fmt.Errorf("fill topic %s: %w", topic, err)
		}
	}
	return nil
}

// fillInTransactions writes so many events to a new topic, of which a tenth is aborted.
func (l *lab) fillInTransactions(ctx context.Context, topic string, events int) error {
	if err := l.broker.CreateTopic(ctx, topic, partitions); err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(l.broker.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.TransactionalID("peers"))
	if err != nil {
		return err
	}
	defer client.Close()
	random := rand.New(rand.NewPCG(3, 4))
	const together = 500
	for n := 0; n < events; n += together {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		err := client.ProduceSync(ctx, records(topic, random, n, min(together, events-n))...).FirstErr()
		commit := kgo.TransactionEndTry(n/together%10 != 9)
		if err := errors.Join(err, client.EndTransaction(ctx, commit)); err != nil {
			return fmt.Errorf("fill topic %s in transactions: %w", topic, err)
		}
	}
	return nil
}

// place is where an event is.
type place struct {
	partition int32
	offset    int64
}

// committed reads the places of all committed events of a topic.
func (l *lab) committed(ctx context.Context, topic string) (map[place]struct{}, error) {
	ends, err := l.broker.Admin().ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(l.broker.Brokers()...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords()) // so that each partition's last offset comes
	if err != nil {
		return nil, err
	}
	defer client.Close()
	all := map[place]struct{}{}
	done := map[int32]bool{}
	for len(done) < partitions {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				all[place{r.Partition, r.Offset}] = struct{}{}
			}
			// The last marker may have been written after the end was asked for.
			if end, _ := ends.Lookup(topic, r.Partition); r.Offset >= end.Offset-1 {
				done[r.Partition] = true
			}
		})
	}
	return all, nil
}
