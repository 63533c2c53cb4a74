//go:build linux

package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
)

// compare reads the topic by a client that is not Sluice's, first all records and then those of
// committed transactions.
func (c *cluster) compare(ctx context.Context, done *effects, check *history.Checker, r *Report) error {
	ends, err := c.ends(ctx)
	if err != nil {
		return err
	}
	records, places := int64(0), map[int64]string{} // places are those of each record, also if its transaction has aborted
	err = c.readAll(ctx, ends, kgo.ReadUncommitted(), func(r *kgo.Record) {
		records++
		var f flight
		if json.Unmarshal(r.Value, &f) == nil { // else it is reported below
			places[f.N] += fmt.Sprintf("(partition %d, offset %d, producer %d, epoch %d, leader epoch %d)", r.Partition, r.Offset, r.ProducerID, r.ProducerEpoch, r.LeaderEpoch)
		}
	})
	if err != nil {
		return err
	}
	seen := make([]int, c.ledger.next)
	next := make([]int64, len(ends)) // the numbers before it were checked
	agree := make([]func(int64, []byte) (int64, bool), len(ends))
	for p := range ends {
		id := fmt.Sprint(p)
		agree[p] = done.partition(id, r.breach)
		check.Add(history.Record{Kind: history.Sent, Partition: id, From: -1, To: ends[p] - 1})
	}
	void := func(p int, end int64) {
		if end > next[p] {
			check.Add(history.Record{Kind: history.Void, Partition: fmt.Sprint(p), From: next[p] - 1, To: end - 1})
		}
		next[p] = end
	}
	err = c.readAll(ctx, ends, kgo.ReadCommitted(), func(record *kgo.Record) {
		void(int(record.Partition), record.Offset)
		next[record.Partition]++
		r.Events++
		if n, ok := agree[record.Partition](record.Offset, record.Value); ok && n < int64(len(seen)) {
			seen[n]++
		}
	})
	if err != nil {
		return err
	}
	numbers := int64(0)
	for p, end := range ends {
		void(p, end)
		numbers += end
	}
	c.ledger.compare(seen, places, r.breach)
	count := c.ledger.count()
	r.detail("transactions committed, aborted, of unknown outcome", "%d, %d, %d", count[committed], count[aborted], count[unknown])
	r.detail("records of aborted transactions in the log", "%d", records-r.Events)
	r.detail("numbers without an event", "%d", numbers-r.Events)
	if all := len(c.ledger.transactions); count[aborted] < all/abortedEvery/2 {
		r.lack("%d of %d transactions have aborted", count[aborted], all)
	}
	if records == r.Events {
		r.lack("no record of an aborted transaction is in the log")
	}
	return nil
}

// readAll calls see with all records of the topic before the ends.
func (c *cluster) readAll(ctx context.Context, ends []int64, isolation kgo.IsolationLevel, see func(*kgo.Record)) error {
	starts := map[int32]kgo.Offset{}
	for p, end := range ends {
		if end > 0 {
			starts[int32(p)] = kgo.NewOffset().At(0)
		}
	}
	client, err := c.client(c.world.clean.log, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.topic: starts}), kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, fmt.Errorf("the topic was not read within 5 minutes"))
	defer cancel()
	for len(starts) > 0 {
		fetches := client.PollFetches(ctx)
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("read the topic: %w", err)
		}
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			for _, r := range f.Records {
				if !r.Attrs.IsControl() && r.Offset < ends[r.Partition] {
					see(r)
				}
				if r.Offset == ends[r.Partition]-1 {
					delete(starts, r.Partition)
				}
			}
		})
	}
	return nil
}
