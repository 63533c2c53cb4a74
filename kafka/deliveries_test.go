package kafka

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/kafkatest"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/sqlstore"
)

// target is a delivery over a store, and the effects in it. Several consumers may use it, one after
// the other.
type target struct {
	delivery sluice.Delivery
	leases   driver.LeaseStore
	effects  func(t *testing.T) []string // of events, in no order
}

// effect is the effect of an event.
func effect(partition string, number int64, key string, body []byte) string {
	return fmt.Sprintf("%s/%d %s=%s", partition, number, key, body)
}

// targets make a target for a test, by the name of the delivery. need, if there is one, skips a
// test where the target's server is not installed.
var targets = map[string]struct {
	need func(testing.TB)
	open func(t *testing.T) target
}{
	"Transactional into SQLite":     {nil, intoSQLite},
	"Transactional into PostgreSQL": {need.Postgres, intoPostgreSQL},
	"AtLeastOnce":                   {nil, intoSink},
	"Replay":                        {nil, intoMemory},
}

func intoSQLite(t *testing.T) target {
	store, err := sqlstore.OpenSQLite(filepath.Join(t.TempDir(), "effects.db"), nil)
	suite.NoError(t, "open SQLite", err)
	t.Cleanup(func() { store.Close() })
	_, err = store.DB().Exec("CREATE TABLE effects (effect TEXT)")
	suite.NoError(t, "create a table", err)
	handler := sluice.Each(func(ctx context.Context, tx *sqlstore.Tx, e *sluice.Event) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?)", effect(e.Partition, e.Sequence, e.Key, e.Body))
		return err
	})
	return target{sluice.Transactional(store, handler), store.Leases(), func(t *testing.T) (list []string) {
		rows, err := store.DB().QueryContext(t.Context(), "SELECT effect FROM effects")
		suite.NoError(t, "query", err)
		defer rows.Close()
		for rows.Next() {
			var text string
			suite.NoError(t, "scan", rows.Scan(&text))
			list = append(list, text)
		}
		suite.NoError(t, "rows", rows.Err())
		return list
	}}
}

// intoSink writes each event under its place in the log, so that a repetition changes nothing.
func intoSink(t *testing.T) target {
	var mu sync.Mutex
	stored := map[string]bool{}
	sink, err := sluice.Workers(8, func(_ context.Context, e *sluice.Event) error {
		mu.Lock()
		defer mu.Unlock()
		stored[effect(e.Partition, e.Sequence, e.Key, e.Body)] = true
		return nil
	})
	suite.NoError(t, "sink", err)
	cfg := &sluice.AtLeastOnceConfig{CheckpointEvery: 50 * time.Millisecond}
	return target{sluice.AtLeastOnce(&sluicetest.Store{}, sluice.EventAsRecord, sink, cfg), &sluicetest.Leases{}, func(*testing.T) (list []string) {
		mu.Lock()
		defer mu.Unlock()
		for text := range stored {
			list = append(list, text)
		}
		return list
	}}
}

// intoMemory keeps what the present owner has applied.
func intoMemory(t *testing.T) target {
	var mu sync.Mutex
	memory := map[string][]string{}
	last := map[string]int64{}
	return target{sluice.Replay(sluice.Replayer{
		Apply: func(_ context.Context, b sluice.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range b.Events {
				if at, ok := last[e.Partition]; ok && e.Sequence <= at {
					need.Verdict(t)
					t.Errorf("partition %s: event %d is applied after event %d", e.Partition, e.Sequence, at)
				}
				last[e.Partition] = e.Sequence
				memory[e.Partition] = append(memory[e.Partition], effect(e.Partition, e.Sequence, e.Key, e.Body))
			}
			return nil
		},
		Released: func(lease sluice.Lease, _ error) {
			mu.Lock()
			defer mu.Unlock()
			delete(memory, lease.Partition)
			delete(last, lease.Partition)
		},
	}), &sluicetest.Leases{}, func(*testing.T) (list []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, texts := range memory {
			list = append(list, texts...)
		}
		return list
	}}
}

// run runs a consumer until stop is called.
func (to *target) run(t *testing.T, s *Source) (stop func()) {
	t.Helper()
	cfg := &sluice.Config{LeaseFor: 6 * time.Second, RenewEvery: 2 * time.Second, AssignEvery: 50 * time.Millisecond, MaxBatch: 20, Observer: driver.ObserverFunc(func(driver.Observation) {})}
	consumer, err := sluice.New(s, to.leases, to.delivery, cfg)
	suite.NoError(t, "new", err)
	ctx := context.WithoutCancel(t.Context()) // it is stopped after the test's context has ended
	ended := suite.Spawn(t, func() error { return consumer.Run(ctx) })
	stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := consumer.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Every delivery brings each event of a committed transaction into its target, and none of an
// aborted one, while the consumers change.
func TestDeliveries(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	deliver(t, newCluster(t, kafkatest.Shared(t).Brokers(), kafkatest.Topic(t, 2)), func() {})
}

// The same on three brokers, of which one is killed that leads a partition.
func testDeliveries(t *testing.T, three *kafkatest.Cluster) {
	topic := three.Topic(t, 2)
	killed := 0
	deliver(t, newCluster(t, three.Brokers(), topic), func() {
		p, err := three.Partition(t.Context(), topic, 0)
		suite.NoError(t, "find the leader", err)
		killed = int(p.Leader)
		suite.NoError(t, "kill the leader", three.Kill(killed))
	})
	suite.NoError(t, "restart", three.Restart(killed))
	suite.NoError(t, "sync", three.AwaitSynced(t.Context(), topic, 0))
}

// deliver writes transactions, of which each delivery has a consumer. In the middle of them it
// calls trouble and replaces the consumers. It compares the effects with what another client reads.
func deliver(t *testing.T, c *cluster, trouble func()) {
	const transactions = 30
	all := map[string]target{}
	for name, c := range targets {
		installed := c.need == nil
		if !installed { // a subtest skips, and the others are tested
			t.Run(name, func(t *testing.T) { c.need(t); installed = true })
		}
		if installed {
			all[name] = c.open(t)
		}
	}
	stop := consumeAll(t, c, all)
	aborted := 0
	for n := range transactions {
		if n == transactions/2 {
			stop()
			trouble()
			consumeAll(t, c, all)
		}
		if !c.transact(t, n) {
			aborted++
		}
	}
	want, records := c.committed(t)
	if len(want) == 0 || aborted == 0 || records == len(want) {
		t.Fatalf("%d records, %d of them committed, %d transactions aborted: this shows nothing", records, len(want), aborted)
	}
	slices.Sort(want)
	for name, to := range all {
		t.Run(name, func(t *testing.T) {
			var got []string
			eventually(t, "all events have taken effect", func() bool { got = to.effects(t); return len(got) >= len(want) })
			slices.Sort(got)
			if !slices.Equal(got, want) {
				need.Verdict(t)
				t.Errorf("effects %q, want %q", got, want)
			}
		})
	}
}

// consumeAll runs a consumer of each delivery until stop is called.
func consumeAll(t *testing.T, c *cluster, all map[string]target) (stop func()) {
	t.Helper()
	var stops []func()
	for _, to := range all {
		stops = append(stops, to.run(t, c.source(t, nil)))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// transact writes a transaction into both partitions, and reports whether it should have committed.
// Every fourth aborts. Where a broker was killed its outcome may be unknown.
func (c *cluster) transact(t *testing.T, n int) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionalID("transact "+c.topic), kgo.TransactionTimeout(20*time.Second), kgo.MetadataMinAge(100*time.Millisecond))
	suite.NoError(t, "client", err)
	defer client.Close()
	suite.NoError(t, "begin", client.BeginTransaction())
	var records []*kgo.Record
	for i := range 2 * (1 + n%7) {
		records = append(records, &kgo.Record{Topic: c.topic, Partition: int32(i % 2), Key: fmt.Append(nil, i%3), Value: fmt.Appendf(nil, "%d.%d", n, i)})
	}
	try := kgo.TransactionEndTry(n%4 != 3)
	if err := errors.Join(client.ProduceSync(ctx, records...).FirstErr(), client.EndTransaction(ctx, try)); err != nil {
		t.Logf("transaction %d: %v", n, err)
	}
	return bool(try)
}

// committed reads the topic by franz-go, once all transactions have ended: the effects that there
// must be, and how many records there are, aborted ones too.
func (c *cluster) committed(t *testing.T) (list []string, all int) {
	t.Helper()
	ends := map[int32]int64{}
	eventually(t, "all transactions have ended", func() bool {
		last, err1 := c.admin.ListEndOffsets(t.Context(), c.topic)
		stable, err2 := c.admin.ListCommittedOffsets(t.Context(), c.topic)
		for p := range int32(2) {
			end, _ := last.Lookup(c.topic, p)
			committed, ok := stable.Lookup(c.topic, p)
			if !ok || errors.Join(err1, err2, end.Err, committed.Err) != nil || end.Offset != committed.Offset {
				return false
			}
			ends[p] = end.Offset
		}
		return true
	})
	for _, isolation := range []kgo.IsolationLevel{kgo.ReadUncommitted(), kgo.ReadCommitted()} {
		list, all = nil, max(all, len(list))
		c.read(t, ends, isolation, func(r *kgo.Record) {
			list = append(list, effect(fmt.Sprint(r.Partition), r.Offset, string(r.Key), r.Value))
		})
	}
	return list, all
}

// read reads the topic up to the ends of its partitions.
func (c *cluster) read(t *testing.T, ends map[int32]int64, isolation kgo.IsolationLevel, see func(*kgo.Record)) {
	t.Helper()
	starts := map[int32]kgo.Offset{}
	for p := range ends {
		starts[p] = kgo.NewOffset().At(0)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.brokers...), kgo.KeepControlRecords(), kgo.FetchIsolationLevel(isolation),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.topic: starts}))
	suite.NoError(t, "client", err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for len(starts) > 0 {
		fetches := client.PollFetches(ctx)
		suite.NoError(t, "poll", ctx.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				see(r)
			}
			if r.Offset == ends[r.Partition]-1 {
				delete(starts, r.Partition)
			}
		})
	}
}
