//go:build kafka

package kafkasender_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/proof/kafkatest"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/sender/kafkasender"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Run(m)) }

// realNetwork is the way to real brokers.
func realNetwork() *network { return &network{through: new(net.Dialer).DialContext} }

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

// TestBrokerLostAnswers loses answers of a real broker: each batch is stored once, in order. After a
// batch whose outcome is unknown, the broker refuses a late arrival of that batch.
func TestBrokerLostAnswers(t *testing.T) {
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
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	comeBack := losing(way)
	outcome, err := transport.Send(ctx, second)
	comeBack()
	if outcome != sender.OutcomeUnknown {
		t.Fatalf("outcome %d, %v", outcome, err)
	}
	arrive := kafkasender.Late(transport, second)
	accept(t, transport, batchOf(t, transport, "0", message(n+1)))
	if err := arrive(t.Context()); !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Errorf("the late batch: %v", err)
	}
	records := readReal(t, c, topic)
	if len(records) != n+2 {
		t.Fatalf("%d records, want %d", len(records), n+2)
	}
	for i, r := range records {
		if string(r.Value) != fmt.Sprint("body ", i) {
			t.Errorf("record %d is %s", i, r.Value)
		}
	}
}

// losing loses every answer until its result is called.
func losing(n *network) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				n.loseAnswers()
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// TestBrokerRejects sends a message without a key to a compacted topic: a sink rejects that message
// and no other.
func TestBrokerRejects(t *testing.T) {
	client := realNetwork().client(t, kafkatest.Shared(t).Brokers()...)
	topic := kafkatest.Topic(t, 1, "cleanup.policy=compact")
	sink := newSink(t, newTransport(t, client, topic, nil), nil)
	results := make(chan error, 20)
	for i := range 20 {
		m := &sender.Message{EmptyKey: true, Body: []byte("b")}
		want := i == 7
		if want {
			m.EmptyKey, m.Properties = false, map[string]any{}
			sluice.Stamp{ID: sluice.CausationID{Source: "raw@1", Partition: "0", Sequence: 1}, Low: -1}.SetTo(m.Properties) // any partition by its id
		}
		sink.Submit(t.Context(), m, func(r sluice.WriteResult) {
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
			t.Fatalf("key %s: message %d comes after %d", r.Key, i, before)
		}
		last[string(r.Key)] = i
		count++
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
// again, and loses answers.
func TestBrokerChain(t *testing.T) {
	const events = 2000
	key := []byte("a key of the stages in this test")
	c := kafkatest.Shared(t)
	raw, clean := kafkatest.Topic(t, 2), kafkatest.Topic(t, 3)
	way := realNetwork()
	client := way.client(t, c.Brokers()...)
	report, err := sender.New(newTransport(t, client, raw, nil), nil).SendAll(t.Context(), func(yield func(sender.Message) bool) {
		for i := range events {
			if m := message(i); !yield(m) {
				return
			}
		}
	})
	if err != nil || report.Messages != events {
		t.Fatal(report, err)
	}
	split := func(_ context.Context, e *sluice.Event) ([]*sender.Message, error) {
		return []*sender.Message{{Body: e.Body}, {Key: e.Key, Body: append([]byte("again "), e.Body...)}}, nil
	}
	between, leases := &sluicetest.Store{}, &sluicetest.Leases{}
	stage := func(owner string) (kill func()) {
		sink := sender.NewSink(newTransport(t, client, clean, nil), &sender.SinkConfig{StampKey: key, Timeout: 3 * time.Second})
		consumer, err := sluice.New(sourceOf(t, client, raw, "clean"), leases, sluice.AtLeastOnce(between, sender.Stamped(split), sink, nil),
			&sluice.Config{Owner: owner, LeaseFor: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() { defer close(ran); consumer.Run(ctx) }()
		return func() {
			cancel()
			<-ran
			sink.Close(context.Background())
		}
	}
	last := &sluicetest.Store{}
	insert := sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
		return tx.Insert("effects", string(e.Body))
	})
	consumer, err := sluice.New(sourceOf(t, client, clean, "store"), &sluicetest.Leases{}, sluice.Transactional(last, insert),
		&sluice.Config{StampsFrom: []sluice.StampSource{{Topic: raw, Key: key}}})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- consumer.Run(t.Context()) }()
	kill := stage("0")
	pace := time.NewTicker(150 * time.Millisecond)
	defer pace.Stop()
	deadline := time.Now().Add(5 * time.Minute)
	for i := 1; len(last.Rows("effects")) < 2*events && time.Now().Before(deadline); i++ {
		<-pace.C
		way.loseAnswers()
		if i%5 == 0 {
			kill()
			kill = stage(strconv.Itoa(i))
		}
	}
	kill()
	if err := errors.Join(consumer.Stop(t.Context()), <-ran); err != nil {
		t.Error(err)
	}
	times := map[string]int{}
	for _, row := range last.Rows("effects") {
		times[row.(string)]++
	}
	for i := range events {
		for _, body := range [][]byte{message(i).Body, append([]byte("again "), message(i).Body...)} {
			if n := times[string(body)]; n != 1 {
				t.Errorf("%q has its effect %d times", body, n)
			}
		}
	}
}
