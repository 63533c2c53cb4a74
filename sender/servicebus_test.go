package sender_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/sender"
)

const queue = "orders"

func startBus(t testing.TB, cfg *emulator.ServiceBusConfig) *emulator.ServiceBus {
	t.Helper()
	srv, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: queue}},
		[]emulator.ServiceBusTopic{{Name: "news", Subscriptions: []emulator.ServiceBusQueue{{Name: "all"}}}}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the emulator: %v", err)
		}
	})
	return srv
}

func openBus(t testing.TB, connection, entity string, cfg *sender.ServiceBusConfig) *sender.ServiceBus {
	t.Helper()
	b, err := sender.OpenServiceBus(connection, entity, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("close the transport: %v", err)
		}
	})
	return b
}

// received receives n messages from a queue, or from a subscription
// (topic/subscription).
func received(t testing.TB, connection, entity string, n int64) (all []*azservicebus.ReceivedMessage) {
	t.Helper()
	eachReceived(t, connection, entity, n, func(m *azservicebus.ReceivedMessage) { all = append(all, m) })
	return all
}

func eachReceived(t testing.TB, connection, entity string, n int64, do func(*azservicebus.ReceivedMessage)) {
	t.Helper()
	ctx := testContext(t)
	c, err := azservicebus.NewClientFromConnectionString(connection, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	var r *azservicebus.Receiver
	options := &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
	if topic, subscription, ok := strings.Cut(entity, "/"); ok {
		r, err = c.NewReceiverForSubscription(topic, subscription, options)
	} else {
		r, err = c.NewReceiverForQueue(entity, options)
	}
	if err != nil {
		t.Fatal(err)
	}
	for n > 0 {
		more, err := r.ReceiveMessages(ctx, int(min(n, 1000)), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range more {
			do(m)
		}
		n -= int64(len(more))
	}
}

// sessions is the same messages with sessions instead of keys.
func (f traffic) sessions() traffic {
	f.inSessions = true
	return f
}

// eachPeeked peeks all messages of the queue.
func eachPeeked(t testing.TB, srv *emulator.ServiceBus, do func(*azservicebus.ReceivedMessage)) {
	t.Helper()
	ctx := testContext(t)
	c, err := azservicebus.NewClientFromConnectionString(srv.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	r, err := c.NewReceiverForQueue(queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	for {
		messages, err := r.PeekMessages(ctx, 1000, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(messages) == 0 {
			return
		}
		for _, m := range messages {
			do(m)
		}
	}
}

// busInventory returns how often each message is in the queue. It checks that
// each is as sent, and that those of a session or key are in order, except
// duplicates.
func busInventory(t testing.TB, srv *emulator.ServiceBus, f traffic) map[int64]int {
	t.Helper()
	times, last := map[int64]int{}, map[string]int64{}
	eachPeeked(t, srv, func(m *azservicebus.ReceivedMessage) {
		i, err := strconv.ParseInt(m.MessageID, 10, 64)
		if err != nil {
			t.Fatalf("a message of id %s", m.MessageID)
		}
		times[i]++
		want := f.message(i)
		if !bytes.Equal(m.Body, want.Body) || *m.ContentType != want.ContentType || len(m.ApplicationProperties) != len(want.Properties) {
			t.Fatalf("message %d arrived changed", i)
		}
		if text(m.SessionID) != want.SessionID || text(m.PartitionKey) != want.Key {
			t.Fatalf("message %d has the session %q and the key %q", i, text(m.SessionID), text(m.PartitionKey))
		}
		group := want.SessionID + want.Key
		if i < last[group] && times[i] == 1 && group != "" {
			t.Fatalf("message %d of %s came after %d", i, group, last[group])
		}
		last[group] = max(last[group], i)
	})
	return times
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// TestQueue sends messages with sessions, with keys and with neither to a queue:
// all are stored once, in order by session or key.
func TestQueue(t *testing.T) {
	mix := traffic{count: 3000, keys: 200, size: fixed(2000)}
	for name, f := range map[string]traffic{"sessions": mix.sessions(), "keys": mix, "keyless": {count: 3000, size: fixed(2000)}} {
		t.Run(name, func(t *testing.T) {
			srv := startBus(t, nil)
			report, err := sender.New(openBus(t, srv.ConnectionString(), queue, nil), nil).SendAll(testContext(t), f.all())
			if err != nil || report.Messages != f.count || report.Retries+report.TooLarge > 0 {
				t.Fatalf("%+v: %v", report, err)
			}
			checkReport(t, report, busInventory(t, srv, f))
			if fewest := report.Bytes / (256 << 10); report.Batches > fewest+1+4 { // each writer has one that isn't full
				t.Errorf("%d batches for %d bytes", report.Batches, report.Bytes)
			}
		})
	}
}

// TestTopic sends to a topic whose name is in the connection string.
func TestTopic(t *testing.T) {
	srv := startBus(t, nil)
	mix := traffic{count: 500, keys: 20, size: fixed(100)}
	report, err := sender.New(openBus(t, srv.ConnectionString()+";EntityPath=news", "", nil), nil).SendAll(testContext(t), mix.all())
	if err != nil || report.Messages != mix.count {
		t.Fatalf("%+v: %v", report, err)
	}
	if n := len(received(t, srv.ConnectionString(), "news/all", mix.count)); n != 500 {
		t.Errorf("%d messages", n)
	}
}

// TestQueueOrdered sends messages with sessions, keys and neither: they arrive in
// the order of the sequence, in full batches.
func TestQueueOrdered(t *testing.T) {
	srv := startBus(t, nil)
	mix := traffic{count: 2000, keys: 50, size: fixed(2000)}
	all := func(yield func(sender.Message) bool) {
		for i := range mix.count {
			m := mix.message(i)
			switch i % 3 {
			case 0:
				m.Key = ""
			case 1:
				m.SessionID, m.Key = m.Key, ""
			}
			if !yield(m) {
				return
			}
		}
	}
	report, err := sender.New(openBus(t, srv.ConnectionString(), queue, nil), &sender.Config{Ordered: true}).SendAll(testContext(t), all)
	if err != nil || report.Messages != mix.count {
		t.Fatalf("%+v: %v", report, err)
	}
	for i, m := range received(t, srv.ConnectionString(), queue, mix.count) {
		if m.MessageID != strconv.Itoa(i) {
			t.Fatalf("message %s in place %d", m.MessageID, i)
		}
	}
	if fewest := report.Bytes/(256<<10) + 1; report.Batches > fewest {
		t.Errorf("%d batches for %d bytes", report.Batches, report.Bytes)
	}
}

// TestQueueBatches checks the service's rules for batches: the number of
// messages, and one session only if the queue is partitioned.
func TestQueueBatches(t *testing.T) {
	srv := startBus(t, nil)
	tiny := traffic{count: 10_000, size: fixed(1)}
	s := sender.New(openBus(t, srv.ConnectionString(), queue, &sender.ServiceBusConfig{Writers: 1}), nil)
	bare := func(yield func(sender.Message) bool) {
		for range tiny.count {
			if !yield(sender.Message{}) {
				return
			}
		}
	}
	if report, err := s.SendAll(testContext(t), bare); err != nil || report.Batches < 3 || report.Messages != tiny.count {
		t.Errorf("%+v: %v", report, err)
	}
	if a := srv.IncomingStats(queue); a.TooLarge > 0 || a.Messages < 3 {
		t.Errorf("arrived: %+v", a)
	}

	b := openBus(t, srv.ConnectionString(), queue, &sender.ServiceBusConfig{Partitioned: true})
	batch, err := b.NewBatch(testContext(t), "0")
	if err != nil {
		t.Fatal(err)
	}
	for i, session := range []string{"a", "a", "b", "a", ""} {
		err := batch.Add(&sender.Message{SessionID: session, Body: []byte("x")})
		if wrong := session != "a"; wrong != errors.Is(err, sender.ErrTooLarge) || !wrong && err != nil {
			t.Errorf("message %d of session %q: %v", i, session, err)
		}
	}
	if batch.Len() != 3 {
		t.Errorf("%d messages", batch.Len())
	}
}

// TestQueueRejected has some messages that the service wouldn't take: all others
// are stored.
func TestQueueRejected(t *testing.T) {
	srv := startBus(t, nil)
	mix := traffic{count: 1000, keys: 40, size: func(r *rand.Rand) int { return r.IntN(3000) }}.sessions()
	long := strings.Repeat("x", 129)
	wrong := map[int64]func(*sender.Message){
		0:   func(m *sender.Message) { m.Body = make([]byte, 256<<10) },
		500: func(m *sender.Message) { m.Properties = map[string]any{"what": struct{}{}} },
		510: func(m *sender.Message) { m.Properties = map[string]any{"text": strings.Repeat("x", 33<<10)} },
		520: func(m *sender.Message) {
			m.Properties = map[string]any{"a": long, "b": make([]byte, 30<<10), "c": make([]byte, 20<<10), "d": make([]byte, 20<<10)}
		},
		530: func(m *sender.Message) { m.SessionID = long },
		540: func(m *sender.Message) { m.SessionID, m.Key = "", long },
		550: func(m *sender.Message) { m.MessageID = long },
		560: func(m *sender.Message) { m.Key = "another" },
	}
	var want []sender.IndexRange
	report, err := sender.New(openBus(t, srv.ConnectionString(), queue, nil), nil).SendAll(testContext(t), func(yield func(sender.Message) bool) {
		for i := range mix.count {
			m := mix.message(i)
			if spoil := wrong[i]; spoil != nil {
				spoil(&m)
				want = append(want, sender.IndexRange{First: i, Last: i})
			}
			if !yield(m) {
				return
			}
		}
	})
	if !slices.Equal(report.Rejected, want) || len(want) != len(wrong) {
		t.Fatalf("refused: %v, want %v", report.Rejected, want)
	}
	var refused *sender.RejectedError
	if !errors.As(err, &refused) || refused.Index != 0 || refused.Size < 256<<10 || refused.Size > 257<<10 || !errors.Is(refused, sender.ErrTooLarge) {
		t.Errorf("error: %v", err)
	}
	if len(report.Unsent)+len(report.Unknown) > 0 {
		t.Errorf("%+v", report)
	}
	checkReport(t, report, busInventory(t, srv, mix))
}

// TestQueueEnvelope sends a batch whose first message differs from the others in
// everything that the batch's envelope repeats.
func TestQueueEnvelope(t *testing.T) {
	srv := startBus(t, nil)
	s := sender.New(openBus(t, srv.ConnectionString(), queue, &sender.ServiceBusConfig{Writers: 1}), nil)
	const n = 50
	before := srv.IncomingStats(queue)
	report, err := s.SendAll(testContext(t), func(yield func(sender.Message) bool) {
		for i := range n {
			m := sender.Message{SessionID: strings.Repeat("s", n-i), ContentType: strings.Repeat("c", i+1), Body: []byte("x")}
			if !yield(m) {
				return
			}
		}
	})
	if wire := srv.IncomingStats(queue).Bytes - before.Bytes; err != nil || report.Batches != 1 || wire != report.Bytes {
		t.Errorf("%+v, %d on the wire: %v", report.Stats, wire, err)
	}
	for i, m := range received(t, srv.ConnectionString(), queue, n) {
		if len(text(m.SessionID)) != n-i || len(text(m.ContentType)) != i+1 {
			t.Errorf("message %d: session %q, type %q", i, text(m.SessionID), text(m.ContentType))
		}
	}
}

func TestUnknownQueue(t *testing.T) {
	srv := startBus(t, nil)
	s := sender.New(openBus(t, srv.ConnectionString(), "nowhere", nil), nil)
	if report, err := s.SendAll(testContext(t), traffic{count: 1, size: fixed(1)}.all()); !errors.Is(err, sender.ErrPermanent) || fmt.Sprint(report.Unsent) != "[{0 0}]" {
		t.Errorf("%+v: %v", report, err)
	}
	if _, err := sender.OpenServiceBus(srv.ConnectionString(), "", nil); err == nil {
		t.Error("opened without a name")
	}
	if _, err := sender.OpenServiceBus("rubbish", queue, nil); err == nil {
		t.Error("opened rubbish")
	}
}

// TestQueueWantsSessions sends messages without sessions to a queue that requires
// them: each of them is rejected, and no other.
func TestQueueWantsSessions(t *testing.T) {
	srv, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: queue, Sessions: true}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	b := openBus(t, srv.ConnectionString(), queue, nil)
	report, err := sender.New(b, nil).SendAll(testContext(t), traffic{count: 10, size: fixed(1)}.all())
	if err == nil || !errors.Is(err, sender.ErrPermanent) || report.Messages+report.Retries != 0 || len(report.Unknown) > 0 {
		t.Errorf("%+v: %v", report, err)
	}
	messages := []*sender.Message{{SessionID: "a"}, {SessionID: "a"}, {}, {SessionID: "b"}, {}}
	for i, err := range submitAll(newSink(t, b, nil), messages) {
		if refused := messages[i].SessionID == ""; refused != errors.Is(err, sluice.ErrRejected) || !refused && err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if counts, err := srv.Counts(queue); err != nil || counts.Active != 3 {
		t.Errorf("%+v, %v", counts, err)
	}
}

// TestQueueLargeMessages sends messages to the premium tier of which some fit into no
// batch: these are sent alone, and one that the queue doesn't take is rejected.
func TestQueueLargeMessages(t *testing.T) {
	srv := startBus(t, &emulator.ServiceBusConfig{Premium: true, AsAzure: &emulator.AsAzure{ServiceBus: emulator.ServiceBusAsAzure{LargeMessages: 4 << 10}}})
	sizes := []int{100, 3 << 20, 200, 5 << 20, 300, 2 << 20, 2 << 20}
	messages := func(yield func(sender.Message) bool) {
		for i, n := range sizes {
			if !yield(sender.Message{MessageID: strconv.Itoa(i), SessionID: "s", Body: bytes.Repeat([]byte{byte(i)}, n), Properties: map[string]any{"size": int64(n)}}) {
				return
			}
		}
	}
	b := openBus(t, srv.ConnectionString(), queue, &sender.ServiceBusConfig{Writers: 1})
	report, err := sender.New(b, nil).SendAll(testContext(t), messages)
	var refused *sender.RejectedError
	if !errors.As(err, &refused) || refused.Index != 3 || refused.Size < 5<<20 || !errors.Is(refused, sender.ErrTooLarge) || fmt.Sprint(report.Rejected) != "[{3 3}]" {
		t.Fatalf("%+v: %v", report, err)
	}
	all := slices.Collect(func(yield func(*sender.Message) bool) {
		messages(func(m sender.Message) bool { return yield(&m) })
	})
	for i, err := range submitAll(newSink(t, b, nil), all) {
		if tooLarge := i == 3; tooLarge != (errors.Is(err, sluice.ErrRejected) && errors.Is(err, sender.ErrTooLarge)) || !tooLarge && err != nil {
			t.Errorf("message %d of the sink: %v", i, err)
		}
	}
	times := make(map[string]int)
	for _, m := range received(t, srv.ConnectionString(), queue, int64(2*(len(sizes)-1))) {
		i, err := strconv.Atoi(m.MessageID)
		if err != nil || len(m.Body) != sizes[i] || m.Body[0] != byte(i) || text(m.SessionID) != "s" || m.ApplicationProperties["size"] != int64(sizes[i]) {
			t.Fatalf("message %s of %d bytes, session %q, %v", m.MessageID, len(m.Body), text(m.SessionID), m.ApplicationProperties)
		}
		times[m.MessageID]++
	}
	if len(times) != len(sizes)-1 {
		t.Errorf("received %v", times)
	}
}
