package kafkasender_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/proof/kafkatest"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/sender/kafkasender"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// realNetwork is the way to real brokers.
func realNetwork() *network { return &network{connect: new(net.Dialer).DialContext} }

// readReal reads a topic of real brokers up to its present end.
func readReal(t testing.TB, c *kafkatest.Cluster, topic string) (records []*kgo.Record) {
	t.Helper()
	ends, err := c.Admin().ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	reader, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for left > 0 {
		fetched := reader.PollFetches(t.Context())
		if err := fetched.Err0(); err != nil {
			t.Fatal(err)
		}
		fetched.EachRecord(func(r *kgo.Record) { records = append(records, r) })
		left -= int64(fetched.NumRecords())
	}
	return records
}

func accept(t testing.TB, transport sender.Transport, b sender.Batch) {
	t.Helper()
	if outcome, err := transport.Send(t.Context(), b); outcome != sender.OutcomeAccepted || err != nil {
		t.Fatalf("outcome %d: %v", outcome, err)
	}
}

// TestBrokerRecords compares what a broker stores with what was sent, by each codec.
func TestBrokerRecords(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	c := kafkatest.Shared(t)
	client := realNetwork().client(t, c.Brokers()...)
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		topic := kafkatest.Topic(t, 1)
		transport := newTransport(t, client, topic, &kafkasender.Config{Compression: []kgo.CompressionCodec{codec}})
		b, want, sent := batchOf(t, transport, "0"), []recordCase{}, time.Now()
		for _, c := range recordCases() {
			want = append(want, c)
			if err := b.Add(&c.message); err != nil {
				t.Fatal(err)
			}
		}
		accept(t, transport, b)
		got := readReal(t, c, topic)
		if len(got) != len(want) {
			t.Fatalf("%s: %d records, want %d", name, len(got), len(want))
		}
		for i := range got {
			want[i].check(t, got[i], sent)
		}
	}
}

// TestBrokerLimits fills batches up to what the topic takes: the broker takes that, and not a byte
// more.
func TestBrokerLimits(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	const limit = 20_000
	client := realNetwork().client(t, kafkatest.Shared(t).Brokers()...)
	topic := kafkatest.Topic(t, 1, fmt.Sprint("max.message.bytes=", limit))
	plain := []kgo.CompressionCodec{kgo.NoCompression()}
	transport := newTransport(t, client, topic, &kafkasender.Config{Compression: plain})
	if n, err := transport.MaxBatchBytes(t.Context()); n != limit || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	fill := func(transport sender.Transport) sender.Batch {
		b := batchOf(t, transport, "0")
		for b.Bytes() < limit/2 {
			if err := b.Add(&sender.Message{Key: "k", Properties: map[string]any{"p": 1}, Body: make([]byte, 100)}); err != nil {
				t.Fatal(err)
			}
		}
		m := sender.Message{Body: make([]byte, limit)}
		for b.Add(&m) != nil {
			m.Body = m.Body[1:]
		}
		return b
	}
	full := fill(transport)
	accept(t, transport, full)
	larger := newTransport(t, client, topic, &kafkasender.Config{Compression: plain, MaxBytes: limit + 1})
	overfull := fill(larger)
	if full.Bytes() != limit || overfull.Bytes() != limit+1 {
		t.Fatalf("batches of %d and %d bytes", full.Bytes(), overfull.Bytes())
	}
	if outcome, err := larger.Send(t.Context(), overfull); outcome != sender.OutcomeTooLarge || err == nil {
		t.Errorf("outcome %d, %v", outcome, err)
	}
	// The sender learns what the broker takes, and packs again.
	blind := newTransport(t, client, topic, &kafkasender.Config{Compression: plain, MaxBytes: 10 * limit})
	report, err := sender.New(blind, nil).SendAll(t.Context(), func(yield func(sender.Message) bool) {
		for i := range 1000 {
			if !yield(sender.Message{Key: "k", MessageID: strconv.Itoa(i), Body: make([]byte, 200)}) {
				return
			}
		}
	})
	if err != nil || report.Messages != 1000 || report.TooLarge == 0 {
		t.Errorf("%+v: %v", report, err)
	}
}

// TestBrokerLostAnswers loses answers of a real broker: each batch is stored once, in order. After
// a batch whose outcome is unknown, the broker refuses a late arrival of that batch.
func TestBrokerLostAnswers(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	c, way, topic := kafkatest.Shared(t), realNetwork(), kafkatest.Topic(t, 1)
	transport := newTransport(t, way.client(t, c.Brokers()...), topic, nil)
	const n = 30
	chance := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		b := batchOf(t, transport, "0", message(i))
		if chance.IntN(2) == 0 {
			way.loseAnswers()
		}
		accept(t, transport, b)
	}
	second := batchOf(t, transport, "0", message(n))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before, comeBack := way.lost.Load(), way.loseAllAnswers()
	// It is given up after it was stored, and answers to it and to another attempt were lost.
	stored := suite.Spawn(t, func() error {
		defer cancel()
		return awaitEnd(t.Context(), c, topic, n+1, func() bool { return way.lost.Load() >= before+2 })
	})
	outcome, err := transport.Send(ctx, second)
	comeBack()
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	if outcome != sender.OutcomeUnknown {
		t.Fatalf("outcome %d, %v, want %d", outcome, err, sender.OutcomeUnknown)
	}
	arrive := kafkasender.Late(transport, second)
	accept(t, transport, batchOf(t, transport, "0", message(n+1)))
	if err := arrive(t.Context()); !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Errorf("the late batch: %v", err)
	}
	records := readReal(t, c, topic)
	if len(records) != n+2 {
		need.Verdict(t)
		t.Fatalf("%d records, want %d", len(records), n+2)
	}
	for i, r := range records {
		if string(r.Value) != fmt.Sprint("body ", i) {
			need.Verdict(t)
			t.Errorf("record %d is %s", i, r.Value)
		}
	}
}

// awaitEnd waits until partition 0 ends at a number, and a condition holds.
func awaitEnd(ctx context.Context, c *kafkatest.Cluster, topic string, want int64, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		ends, err := c.Admin().ListEndOffsets(ctx, topic)
		if end, known := ends.Lookup(topic, 0); err == nil && known && end.Offset >= want && ok() {
			return nil
		}
		if err := clock.Sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("wait until topic %s ends at %d: %w", topic, want, err)
		}
	}
}

// TestBrokerRefusedBatch has a broker refuse a batch, and later accept another. Should the first
// one arrive late, it is refused: it is not taken for the other one, as if it was stored.
func TestBrokerRefusedBatch(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	c, topic := kafkatest.Shared(t), kafkatest.Topic(t, 1, "max.message.bytes=1000")
	transport := newTransport(t, realNetwork().client(t, c.Brokers()...), topic,
		&kafkasender.Config{MaxBytes: 10_000, Compression: []kgo.CompressionCodec{kgo.NoCompression()}})
	large := func(text string) sender.Batch {
		return batchOf(t, transport, "0", sender.Message{Body: []byte(strings.Repeat(text, 1000))})
	}
	first, second := large("a"), large("b")
	if outcome, err := transport.Send(t.Context(), first); outcome != sender.OutcomeTooLarge {
		t.Fatalf("outcome %d, %v, want %d", outcome, err, sender.OutcomeTooLarge)
	}
	arrive := kafkasender.Late(transport, first)
	limit := "10000"
	answers, err := c.Admin().AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &limit}}, topic)
	if err != nil || answers[0].Err != nil {
		t.Fatal(answers, err)
	}
	suite.Eventually(t, "the broker takes large batches", func() bool {
		outcome, err := transport.Send(t.Context(), second)
		if outcome != sender.OutcomeAccepted && outcome != sender.OutcomeTooLarge {
			t.Fatal(outcome, err)
		}
		return outcome == sender.OutcomeAccepted
	})
	if err := arrive(t.Context()); !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Errorf("the late batch: %v", err)
	}
	if records := readReal(t, c, topic); len(records) != 1 || records[0].Value[0] != 'b' {
		need.Verdict(t)
		t.Errorf("%d records stored, want that of the second batch alone", len(records))
	}
}

// TestBrokerRejects sends a message without a key to a compacted topic: a sink rejects that message
// and no other.
func TestBrokerRejects(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	client := realNetwork().client(t, kafkatest.Shared(t).Brokers()...)
	topic := kafkatest.Topic(t, 1, "cleanup.policy=compact")
	sink := newSink(t, newTransport(t, client, topic, nil), nil)
	results := make(chan error, 20)
	for i := range 20 {
		m := &sender.Message{EmptyKey: true, Body: []byte("b")}
		want := i == 7
		if want {
			m.EmptyKey, m.Properties = false, map[string]any{}
			stamp.Stamp{ID: stamp.CausationID{Source: "raw@1", Partition: "0", Sequence: 1}, Low: -1}.SetTo(m.Properties) // any partition by its id
		}
		sink.Submit(t.Context(), m, func(r driver.WriteResult) {
			if errors.Is(r.Err, sluice.ErrRejected) != want {
				results <- fmt.Errorf("message %d: %w", i, r.Err)
				return
			}
			results <- nil
		})
	}
	for range 20 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// TestBrokersKilled kills the brokers of a cluster by turns while messages are sent. Each is stored
// once, and those of a key are in order.
func TestBrokersKilled(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	const partitions, n = 4, 10_000
	c := kafkatest.New(t, &kafkatest.Config{Brokers: 3})
	topic := c.Topic(t, partitions)
	transport := newTransport(t, realNetwork().client(t, c.Brokers()...), topic, &kafkasender.Config{MaxMessages: 50})
	begun, killed := make(chan struct{}), make(chan error, 1)
	go func() {
		<-begun
		killed <- killEach(t.Context(), c, topic, partitions)
	}()
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	report, err := sender.New(transport, &sender.Config{Attempts: 60, RetryMax: time.Second}).SendAll(t.Context(), func(yield func(sender.Message) bool) {
		for i, done := 0, false; i < n || !done; i++ {
			if i == n/2 {
				close(begun)
			}
			if i > n/2 {
				select {
				case err := <-killed:
					if done = true; err != nil {
						t.Error(err)
					}
				case <-pace.C:
				}
			}
			if !yield(message(i)) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	last, count := map[string]int{}, int64(0)
	for _, r := range readReal(t, c, topic) {
		i, err := strconv.Atoi(strings.TrimPrefix(string(r.Value), "body "))
		if err != nil {
			t.Fatal(err)
		}
		if before, known := last[string(r.Key)]; known && i != before+37 || !known && i >= 37 {
			need.Verdict(t)
			t.Fatalf("key %s: message %d comes after %d", r.Key, i, before)
		}
		last[string(r.Key)] = i
		count++
	}
	if count != report.Messages {
		need.Verdict(t)
	}
	if count != report.Messages || len(report.Unknown)+len(report.Unsent) > 0 {
		t.Errorf("%d messages stored; %+v", count, report)
	}
	t.Logf("%d messages in %d batches, %d retries", report.Messages, report.Batches, report.Retries)
}

// killEach kills each broker, and restarts it once the partitions have other leaders.
func killEach(ctx context.Context, c *kafkatest.Cluster, topic string, partitions int) error {
	for _, broker := range []int{1, 2, 3} {
		if err := c.Kill(broker); err != nil {
			return err
		}
		for p := range partitions {
			if err := awaitOtherLeader(ctx, c, topic, p, broker); err != nil {
				return err
			}
		}
		if err := c.Restart(broker); err != nil {
			return err
		}
		for p := range partitions {
			if err := c.AwaitSynced(ctx, topic, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitOtherLeader waits until a partition is led by another broker than this one.
func awaitOtherLeader(ctx context.Context, c *kafkatest.Cluster, topic string, partition, broker int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		at, err := c.Partition(ctx, topic, partition)
		if err == nil && at.Leader > 0 && int(at.Leader) != broker {
			return nil
		}
	}
	return fmt.Errorf("partition %d has no other leader than broker %d", partition, broker)
}

// TestBrokerChain runs a chain of stages over a real broker. The first stage is killed again and
// again, and loses answers: after each portion of the events was sent, and after each step of
// effects.
func TestBrokerChain(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	const events, portion, step, patience = 2000, 100, 50, 3 * time.Minute
	key := []byte("a key of the stages in this test")
	c := kafkatest.Shared(t)
	raw, clean := kafkatest.Topic(t, 2), kafkatest.Topic(t, 3)
	way := realNetwork()
	client := way.client(t, c.Brokers()...)
	input := newTransport(t, client, raw, nil)
	send := func(from int) {
		t.Helper()
		report, err := sender.New(input, nil).SendAll(t.Context(), func(yield func(sender.Message) bool) {
			for i := range portion {
				if m := message(from + i); !yield(m) {
					return
				}
			}
		})
		if err != nil || report.Messages != portion {
			t.Fatal(report, err)
		}
	}
	split := func(_ context.Context, e *sluice.Event) ([]*sender.Message, error) {
		return []*sender.Message{{Body: e.Body}, {Key: e.Key, Body: append([]byte("again "), e.Body...)}}, nil
	}
	first := stage{from: raw, to: clean, key: key, split: split}
	start := func(owner string) (kill func()) {
		return first.start(t, client, sluice.Config{Owner: owner, LeaseFor: 3 * time.Second, AssignEvery: 50 * time.Millisecond})
	}
	last := &sluicetest.Store{}
	insert := sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
		return tx.Insert("effects", string(e.Body))
	})
	consumer, err := sluice.New(sourceOf(t, client, clean, "store"), &sluicetest.Leases{}, sluice.Transactional(last, insert),
		&sluice.Config{StampsFrom: []stamp.Source{{Topic: raw, Key: key}}})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- consumer.Run(t.Context()) }()
	kill := start("0")
	pace := time.NewTicker(150 * time.Millisecond)
	defer pace.Stop()
	sent, strikes, before, progress := 0, 0, 0, time.Now()
	for time.Since(progress) < patience {
		done := len(last.Rows("effects"))
		if done >= 2*events {
			break
		}
		if done >= 2*sent {
			send(sent)
			sent += portion
			before = done - step
		}
		if done >= before+step {
			before, progress = done, time.Now()
			way.loseAnswers()
			if strikes++; strikes%5 == 0 {
				kill()
				kill = start(strconv.Itoa(strikes))
			}
		}
		<-pace.C
	}
	t.Logf("answers were lost %d times", strikes)
	kill()
	if err := errors.Join(consumer.Stop(t.Context()), <-ran); err != nil {
		t.Error(err)
	}
	late := t.Failed() || len(last.Rows("effects")) < 2*events // not done within patience
	times := map[string]int{}
	for _, row := range last.Rows("effects") {
		times[row.(string)]++
	}
	for i := range events {
		for _, body := range [][]byte{message(i).Body, append([]byte("again "), message(i).Body...)} {
			if n := times[string(body)]; n != 1 {
				if n > 1 || !late {
					need.Verdict(t)
				}
				t.Errorf("%q has its effect %d times", body, n)
			}
		}
	}
}
