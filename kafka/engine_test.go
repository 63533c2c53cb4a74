package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/proof/kafkatest"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/sluicetest"
)

// consumer is a consumer of a topic on a real broker, with a store in memory.
type consumer struct {
	source *Source
	store  *sluicetest.Store

	mu      sync.Mutex
	stopped map[string]error // why a partition is halted
}

// hurry is how many times as fast as the tests' the time of a consumer runs: it tries a halted
// partition again every ten seconds, and describes the topic every minute.
const hurry = 20

// fast is the time of a consumer.
type fast struct{ clock.System }

func (f fast) Elapsed() time.Duration { return hurry * f.System.Elapsed() }

func (f fast) Sleep(ctx context.Context, d time.Duration) error { return f.System.Sleep(ctx, d/hurry) }

// consume runs a consumer, which is stopped at the test's end.
func consume(t *testing.T, c *cluster, store *sluicetest.Store) *consumer {
	t.Helper()
	return consumeFrom(t, c.source(t, nil), store)
}

func consumeFrom(t *testing.T, source *Source, store *sluicetest.Store) *consumer {
	t.Helper()
	run := &consumer{source: source, store: store, stopped: map[string]error{}}
	handler := sluice.Each(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
		return tx.Insert("events", fmt.Sprintf("%s/%d %s", e.Partition, e.Sequence, e.Body))
	})
	cfg := &sluice.Config{Clock: fast{clock.New()}, LeaseFor: 4 * time.Minute, RenewEvery: time.Minute, Observer: driver.ObserverFunc(run.observe)}
	consumer, err := sluice.New(run.source, &sluicetest.Leases{}, sluice.Transactional(store, handler), cfg)
	suite.NoError(t, "new", err)
	ended := suite.Spawn(t, func() error { return consumer.Run(t.Context()) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := consumer.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	return run
}

func (r *consumer) observe(o driver.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch o.Kind {
	case driver.KindHalted:
		r.stopped[o.Partition] = o.Err
	case driver.KindOpened:
		delete(r.stopped, o.Partition)
	}
}

// halted waits until a partition is halted, and returns why.
func (r *consumer) halted(t *testing.T, partition string) (err error) {
	t.Helper()
	eventually(t, "partition "+partition+" is halted", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		err = r.stopped[partition]
		return err != nil
	})
	return err
}

// rows are what has taken effect, sorted.
func (r *consumer) rows() (list []string) {
	for _, row := range r.store.Rows("events") {
		list = append(list, row.(string))
	}
	slices.Sort(list)
	return list
}

// wants waits for so many effects, and returns them. Each event has one.
func (r *consumer) wants(t *testing.T, n int) []string {
	t.Helper()
	eventually(t, fmt.Sprintf("%d events are done", n), func() bool { return len(r.store.Rows("events")) >= n })
	list := r.rows()
	if once := slices.Compact(slices.Clone(list)); len(once) != n || len(list) != n {
		t.Fatalf("%d effects of %d events, want %d of as many: %q", len(list), len(once), n, list)
	}
	return list
}

// awaitCheckpoint waits until a checkpoint is at a number.
func (r *consumer) awaitCheckpoint(t *testing.T, partition string, number int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("the checkpoint of partition %s is %d", partition, number), func() bool {
		list, err := r.store.Read(t.Context(), r.source.Group())
		return err == nil && slices.ContainsFunc(list, func(c sluice.Checkpoint) bool {
			return c.Partition == partition && c.Position.Sequence == number
		})
	})
}

// set moves a checkpoint, as `sluice checkpoints set` does.
func (r *consumer) set(t *testing.T, partition string, start driver.Start) {
	t.Helper()
	topic, err := r.source.Describe(t.Context())
	suite.NoError(t, "describe", err)
	to, err := r.source.Seek(t.Context(), partition, start, 1)
	suite.NoError(t, "seek", err)
	_, err = r.store.Reset(t.Context(), topic.Group, partition, topic.Incarnation, to, "set")
	suite.NoError(t, "reset", err)
}

// eventually waits for a condition longer than the suites do: a broker may be slow.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	const patience = 3 * time.Minute
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("after %v: still not: %s", patience, what)
		}
	}
}

// texts sends events with such bodies.
func (c *cluster) texts(t *testing.T, partition int, bodies ...string) {
	t.Helper()
	suite.NoError(t, "append", c.append(t.Context(), strconv.Itoa(partition), sluicetest.Bodies(bodies...)...))
}

// A topic is deleted and created again while a consumer runs. Both partitions halt, and name both
// topic ids; no event of the new topic takes effect, not even where the old checkpoint has the
// number of one, until the checkpoint is set.
func TestTopicRecreated(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	topic := kafkatest.Topic(t, 2)
	c := newCluster(t, kafkatest.Shared(t).Brokers(), topic)
	run := consume(t, c, &sluicetest.Store{})
	c.texts(t, 0, numbered("old", 5)...)
	c.texts(t, 1, numbered("old", 3)...)
	run.wants(t, 8)
	before, err := run.source.Describe(t.Context())
	suite.NoError(t, "describe", err)

	suite.NoError(t, "delete", kafkatest.Shared(t).DeleteTopic(t.Context(), topic))
	suite.NoError(t, "create", kafkatest.Shared(t).CreateTopic(t.Context(), topic, 2))
	c.texts(t, 0, numbered("new", 9)...)
	c.texts(t, 1, "new0 ")
	after, err := c.source(t, nil).Describe(t.Context())
	suite.NoError(t, "describe", err)
	for p := range 2 {
		got, ok := errors.AsType[*driver.RecreatedError](run.halted(t, strconv.Itoa(p)))
		want := driver.RecreatedError{Topic: topic, Partition: strconv.Itoa(p), Had: before.Incarnation, Has: after.Incarnation}
		if !ok || *got != want || want.Had == want.Has {
			t.Errorf("partition %d is halted by %v, want %v", p, got, &want)
		}
	}
	run.wants(t, 8)
	run.set(t, "0", driver.Start{Kind: driver.StartEarliest})
	if rows := run.wants(t, 17); !slices.Contains(rows, "0/8 new8 ") {
		t.Errorf("rows %q", rows)
	}
}

// A topic is given partitions while a consumer of all partitions runs: it takes them, within a
// minute of its time.
func TestPartitionsAdded(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	topic := kafkatest.Topic(t, 1)
	c := newCluster(t, kafkatest.Shared(t).Brokers(), topic)
	run := consume(t, c, &sluicetest.Store{})
	c.texts(t, 0, numbered("before", 3)...)
	run.wants(t, 3)
	suite.NoError(t, "add", kafkatest.Shared(t).AddPartitions(t.Context(), topic, 3))
	for p := range 3 {
		c.texts(t, p, numbered("after", 2)...)
	}
	if rows := run.wants(t, 9); !slices.Contains(rows, "2/0 after0 ") {
		t.Errorf("rows %q", rows)
	}
}

// Compaction removes events before and behind a checkpoint. Each that is left takes effect once; a
// new consumer sees the last event of each key; and its checkpoint reaches the end.
func TestConsumerOfCompactedTopic(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	topic := kafkatest.Topic(t, 1, "cleanup.policy=compact", "segment.ms=100", "min.cleanable.dirty.ratio=0.001", "max.compaction.lag.ms=100", "min.compaction.lag.ms=0")
	c := newCluster(t, kafkatest.Shared(t).Brokers(), topic)
	keyed := func(round int) {
		var events []*driver.Event
		for key := range 10 {
			events = append(events, &driver.Event{Key: fmt.Sprint(key), Body: fmt.Appendf(nil, "%d:%d", key, round)})
		}
		suite.NoError(t, "append", c.append(t.Context(), "0", events...))
	}
	live := consume(t, c, &sluicetest.Store{})
	const rounds = 20
	for round := range rounds {
		keyed(round)
		live.wants(t, 10*(round+1)) // before the next round makes the broker remove these
	}
	// A new segment makes what is before it eligible, once its time has come.
	left := func() (n int) {
		suite.NoError(t, "append", c.append(t.Context(), "0", &driver.Event{Key: "last", Body: []byte("last")}))
		bounds, err := live.source.Bounds(t.Context(), "0")
		suite.NoError(t, "bounds", err)
		n, _ = c.count(t, bounds.Last.Sequence)
		return n
	}
	eventually(t, "the topic is compacted", func() bool { return left() < 20 })
	late := consume(t, c, &sluicetest.Store{})
	bounds, err := late.source.Bounds(t.Context(), "0")
	suite.NoError(t, "bounds", err)
	late.awaitCheckpoint(t, "0", bounds.Last.Sequence)
	live.awaitCheckpoint(t, "0", bounds.Last.Sequence)
	for _, run := range []*consumer{late, live} {
		rows := run.rows()
		if once := slices.Compact(slices.Clone(rows)); len(once) != len(rows) {
			t.Errorf("%d effects of %d events", len(rows), len(once))
		}
		for key := range 10 {
			want := fmt.Sprintf(" %d:%d", key, rounds-1)
			if !slices.ContainsFunc(rows, func(row string) bool { return strings.HasSuffix(row, want) }) {
				t.Errorf("the last event of key %d is missing: %q", key, rows)
			}
		}
	}
	if n := len(late.rows()); n >= 10*rounds {
		t.Errorf("a new consumer has handled %d events, so nothing was compacted", n)
	}
}

// count reads a partition by franz-go up to a number, and counts its records.
func (c *cluster) count(t *testing.T, last int64) (n int, read int64) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.brokers...), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.topic: {0: kgo.NewOffset().At(0)}}))
	suite.NoError(t, "client", err)
	defer client.Close()
	for read < last {
		fetches := client.PollFetches(suite.Context(t))
		suite.NoError(t, "poll", fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { n, read = n+1, r.Offset })
	}
	return n, read
}

// DeleteRecords removes events that a stopped consumer has not read, and of another partition only
// such that it has. The first halts and names exactly those, the other goes on.
func TestDeleteRecordsPastCheckpoint(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	topic := kafkatest.Topic(t, 2)
	c := newCluster(t, kafkatest.Shared(t).Brokers(), topic)
	store := &sluicetest.Store{}
	t.Run("before", func(t *testing.T) {
		run := consume(t, c, store)
		c.texts(t, 0, numbered("done", 5)...)
		c.texts(t, 1, numbered("done", 5)...)
		run.wants(t, 10)
	})
	c.texts(t, 0, numbered("unread", 5)...)
	c.texts(t, 1, numbered("unread", 5)...)
	suite.NoError(t, "delete", kafkatest.Shared(t).DeleteRecords(t.Context(), topic, 0, 8))
	suite.NoError(t, "delete", kafkatest.Shared(t).DeleteRecords(t.Context(), topic, 1, 5))
	run := consume(t, c, store)
	got, ok := errors.AsType[*driver.RetentionError](run.halted(t, "0"))
	if want := (driver.RetentionError{Partition: "0", After: 4, First: 8}); !ok || *got != want {
		t.Errorf("partition 0 is halted by %v, want %v", got, &want)
	}
	run.wants(t, 15)
	run.set(t, "0", driver.Start{Kind: driver.StartSequence, Sequence: 8})
	if rows := run.wants(t, 17); slices.Contains(rows, "0/7 unread2 ") || !slices.Contains(rows, "0/8 unread3 ") {
		t.Errorf("rows %q", rows)
	}
}
