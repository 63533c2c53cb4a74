package emulator_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

func asAzure(hubs emulator.EventHubsAsAzure) *emulator.Config {
	return &emulator.Config{AsAzure: &emulator.AsAzure{Seed: 1, EventHubs: hubs}}
}

func properties(t *testing.T, c *azeventhubs.ConsumerClient) azeventhubs.PartitionProperties {
	t.Helper()
	props, err := c.GetPartitionProperties(testContext(t), "0", nil)
	if err != nil {
		t.Fatal(err)
	}
	return props
}

func startAt(sequence int64, inclusive bool) *azeventhubs.PartitionClientOptions {
	return &azeventhubs.PartitionClientOptions{StartPosition: azeventhubs.StartPosition{SequenceNumber: &sequence, Inclusive: inclusive}}
}

func atOffset(offset string) *azeventhubs.PartitionClientOptions {
	return &azeventhubs.PartitionClientOptions{StartPosition: azeventhubs.StartPosition{Offset: &offset}}
}

// Runtime information is that of some time ago, while receivers get new events at once.
func TestStaleRuntime(t *testing.T) {
	need.RealTime(t)
	srv := start(t, one("h", 1), asAzure(emulator.EventHubsAsAzure{StaleRuntime: 400 * time.Millisecond}))
	p, c := producer(t, srv, "h"), consumer(t, srv, "h", "$Default", "")
	sent := time.Now()
	send(t, p, to0(), "a", "b")
	receive(t, partition(t, c, "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest}), 2)
	if props := properties(t, c); props.LastEnqueuedSequenceNumber != -1 || !props.IsEmpty {
		if time.Since(sent) < 400*time.Millisecond {
			t.Errorf("at once: %+v", props)
		}
	}
	for properties(t, c).LastEnqueuedSequenceNumber == -1 { // until it is old enough
	}
	if age := time.Since(sent); age < 399*time.Millisecond {
		t.Errorf("runtime information is %v old", age)
	}
	first := receive(t, partition(t, c, "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest}), 2)
	if props := properties(t, c); props.LastEnqueuedOffset != first[1].Offset || !props.LastEnqueuedOn.Equal(*first[1].EnqueuedTime) || props.IsEmpty {
		t.Errorf("later: %+v, the last event has offset %s", props, first[1].Offset)
	}
	send(t, p, to0(), "c")
	if props := properties(t, c); props.LastEnqueuedSequenceNumber != 1 && time.Since(sent) < 800*time.Millisecond {
		t.Errorf("after another event: %+v", props)
	}
}

// A hub as IoT Hub feeds it looks empty for ever.
func TestNoRuntime(t *testing.T) {
	srv := start(t, one("h", 1), asAzure(emulator.EventHubsAsAzure{NoRuntime: true}))
	c := consumer(t, srv, "h", "$Default", "")
	send(t, producer(t, srv, "h"), to0(), "a")
	receive(t, partition(t, c, "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest}), 1)
	if props := properties(t, c); props.LastEnqueuedSequenceNumber != -1 || !props.IsEmpty || props.LastEnqueuedOffset != "-1" {
		t.Errorf("got %+v", props)
	}
}

// A position after the last event gives some earlier ones first, but not always; one before
// it, and latest, are exact.
func TestEarlierEvents(t *testing.T) {
	srv := start(t, one("h", 1), asAzure(emulator.EventHubsAsAzure{EarlierEvents: 3}))
	p := producer(t, srv, "h")
	send(t, p, to0(), numbered(0, 10)...)
	offset := receive(t, partition(t, consumer(t, srv, "h", "$Default", ""), "0", startAt(9, true)), 1)[0].Offset
	s := session(t, srv)
	begin := func(selector string) *amqp.Receiver {
		return receiver(t, s, fromZero, &amqp.ReceiverOptions{Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("amqp.annotation." + selector)}})
	}
	early := make(map[int64]bool)
	for end := int64(9); end < 29; end++ {
		position := fmt.Sprintf("x-opt-sequence-number > '%d'", end)
		if end%2 == 0 {
			position = fmt.Sprintf("x-opt-offset > '%s'", offset)
		}
		after, latest, before := begin(position), begin("x-opt-offset > '@latest'"), begin(fmt.Sprintf("x-opt-sequence-number > '%d'", end-1))
		send(t, p, to0(), "next")
		early[end+1-sequenceOf(next(t, after))] = true
		first := next(t, latest)
		if n := sequenceOf(first); n != end+1 {
			t.Errorf("latest after event %d begins with event %d", end, n)
		}
		offset = first.Annotations["x-opt-offset"].(string)
		if first := sequenceOf(next(t, before)); first != end {
			t.Errorf("after event %d comes event %d", end-1, first)
		}
		for _, r := range []*amqp.Receiver{after, latest, before} {
			if err := r.Close(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(early) != 4 || !early[0] || !early[3] {
		t.Errorf("receivers began so many events early: %v", early)
	}
}

func sequenceOf(m *amqp.Message) int64 { return m.Annotations["x-opt-sequence-number"].(int64) }

// The first sequence number in the runtime information is too low or too high, and differs
// from request to request; receivers begin with the first event all the same.
func TestInexactBeginning(t *testing.T) {
	srv := start(t, one("h", 1), asAzure(emulator.EventHubsAsAzure{InexactBeginning: 2}))
	p, c := producer(t, srv, "h"), consumer(t, srv, "h", "$Default", "")
	if props := properties(t, c); props.BeginningSequenceNumber != 0 {
		t.Errorf("empty: %+v", props)
	}
	send(t, p, to0(), numbered(0, 10)...)
	if err := srv.Trim("h", "0", 5); err != nil {
		t.Fatal(err)
	}
	firsts := make(map[int64]bool)
	for range 50 {
		firsts[properties(t, c).BeginningSequenceNumber] = true
	}
	for first := int64(3); first <= 7; first++ {
		delete(firsts, first)
	}
	if len(firsts) > 0 {
		t.Errorf("beginnings more than 2 away from 5: %v", firsts)
	}
	if e := receive(t, partition(t, c, "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest}), 1)[0]; e.SequenceNumber != 5 {
		t.Errorf("earliest is event %d", e.SequenceNumber)
	}
}

// The namespace answers so many requests for runtime information in a second, then refuses
// them as server-busy.
func TestRuntimeCalls(t *testing.T) {
	need.RealTime(t)
	srv := start(t, one("h", 1), asAzure(emulator.EventHubsAsAzure{RuntimeCalls: 5}))
	c := consumer(t, srv, "h", "$Default", "")
	properties(t, c) // connect
	for {
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // it counts by the clock's seconds
		began := time.Now()
		answered, refused := 0, 0
		for range 20 {
			switch _, err := c.GetPartitionProperties(testContext(t), "0", nil); {
			case err == nil:
				answered++
			case strings.Contains(err.Error(), "503"):
				refused++
			default:
				t.Fatal(err)
			}
		}
		if time.Since(began) > time.Second {
			continue // slow machine
		}
		if answered == 0 || answered > 10 || refused == 0 { // 20 calls may fall in two seconds
			t.Errorf("%d answered, %d refused", answered, refused)
		}
		return
	}
}

// A connection above the namespace's quota is refused, until another closes.
func TestConnectionQuota(t *testing.T) {
	srv := start(t, one("h", 1), asAzure(emulator.EventHubsAsAzure{Connections: 2}))
	one, two := consumer(t, srv, "h", "$Default", ""), consumer(t, srv, "h", "$Default", "")
	properties(t, one)
	properties(t, two)
	_, err := consumer(t, srv, "h", "$Default", "").GetPartitionProperties(testContext(t), "0", nil)
	if err == nil {
		t.Fatal("a third connection was not refused")
	}
	wantText(t, err, "amqp:resource-limit-exceeded", "ConnectionsQuotaExceeded for namespace: ")
	if err := two.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for ctx := testContext(t); ; {
		c := consumer(t, srv, "h", "$Default", "")
		_, err := c.GetPartitionProperties(ctx, "0", nil)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("after another has closed: %v", err)
		}
		// A client that was refused connects again before it returns the error, and may be
		// accepted then: the connection would be taken by a client that nobody uses.
		if err := c.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// A link without messages for the time is detached: a sender that sends nothing, a receiver
// that gives no credit. A receiver that waits for events is not idle, nor is $management.
func TestIdleLink(t *testing.T) {
	need.RealTime(t)
	const limit = 200 * time.Millisecond
	srv := start(t, one("h", 1), asAzure(emulator.EventHubsAsAzure{IdleLink: limit}))
	var waiting, idle *amqp.Receiver
	var requests, l *amqp.Sender
	retryIfSlow(t, limit, func(ctx context.Context) error {
		s := session(t, srv)
		waiting = receiver(t, s, fromZero, &amqp.ReceiverOptions{Credit: 100})
		idle = receiver(t, s, fromZero, &amqp.ReceiverOptions{Credit: -1})
		requests = sender(t, s, "$management")
		l = sender(t, s, "h")
		if err := l.Send(ctx, amqp.NewMessage([]byte("a")), nil); err != nil {
			return err
		}
		_, err := waiting.Receive(ctx, nil) // the server has the credit
		return err
	})
	_, err := idle.Receive(testContext(t), nil)
	if condition(err) != "amqp:link:detach-forced" {
		t.Errorf("the idle receiver: %v", err)
	} else {
		wantText(t, err, "AmqpEventHubConsumer.IdleTimerExpired: Idle timeout: 00:00:00")
	}
	for ctx := testContext(t); ; <-time.After(400 * time.Millisecond) { // twice the limit
		if err := l.Send(ctx, amqp.NewMessage([]byte("c")), nil); condition(err) == "amqp:link:detach-forced" {
			wantText(t, err, "AmqpEventHubPublisher.IdleTimerExpired")
			break
		} else if err != nil || ctx.Err() != nil {
			t.Fatalf("the idle sender: %v", err)
		}
	}
	if err := requests.Close(testContext(t)); err != nil {
		t.Errorf("$management: %v", err)
	}
	retryIfSlow(t, limit, func(ctx context.Context) error {
		return sender(t, session(t, srv), "h").Send(ctx, amqp.NewMessage([]byte("b")), nil)
	})
	for string(next(t, waiting).GetData()) != "b" {
	}
}

// A connection without links is closed; one that never had a link, after a fifth of the time.
func TestIdleConnection(t *testing.T) {
	need.RealTime(t)
	srv := start(t, one("h", 1), asAzure(emulator.EventHubsAsAzure{IdleConnection: time.Second}))
	const fifth = 200 * time.Millisecond
	for _, hasLink := range []bool{false, true} {
		var conn *amqp.Conn
		var began time.Time
		want := fifth
		if hasLink {
			want = time.Second
		}
		retryIfSlow(t, fifth, func(ctx context.Context) (err error) {
			began = time.Now()
			conn, err = amqp.Dial(ctx, "amqp://"+srv.Addr(), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
			if err != nil || !hasLink {
				return err
			}
			s, err := conn.NewSession(ctx, nil)
			if err != nil {
				return err
			}
			l, err := s.NewSender(ctx, "h", nil)
			if err != nil {
				return err
			}
			return l.Close(ctx)
		})
		select {
		case <-conn.Done():
		case <-testContext(t).Done():
			t.Fatal("the connection was not closed")
		}
		if age := time.Since(began); age < want {
			t.Errorf("closed after %v", age)
		}
		wantText(t, conn.Err(), "amqp:connection:forced", fmt.Sprintf("inactive for more than the allowed %d milliseconds", want.Milliseconds()))
	}
}

// Only $Default exists where no consumer groups are configured.
func TestKnownGroups(t *testing.T) {
	srv := start(t, []emulator.Hub{{Name: "h", Partitions: 1}, {Name: "i", Partitions: 1, ConsumerGroups: []string{"app"}}},
		asAzure(emulator.EventHubsAsAzure{KnownGroups: true}))
	for _, hub := range []string{"h", "i"} {
		send(t, producer(t, srv, hub), to0(), "a")
	}
	for _, group := range []struct {
		hub, name string
		known     bool
	}{{"h", "$Default", true}, {"h", "app", false}, {"i", "app", true}, {"i", "$default", true}, {"i", "other", false}} {
		_, err := partition(t, consumer(t, srv, group.hub, group.name, ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest}).ReceiveEvents(testContext(t), 1, nil)
		if group.known != (err == nil) || err != nil && !strings.Contains(err.Error(), "amqp:not-found") {
			t.Errorf("%+v: %v", group, err)
		}
	}
}

// A receiver's name has at most 64 characters.
func TestReceiverName(t *testing.T) {
	srv := start(t, one("h", 1), asAzure(emulator.EventHubsAsAzure{ReceiverName: 64}))
	send(t, producer(t, srv, "h"), to0(), "a")
	for _, name := range []string{strings.Repeat("ä", 64), strings.Repeat("a", 65)} {
		_, err := partition(t, consumer(t, srv, "h", "$Default", name), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest}).ReceiveEvents(testContext(t), 1, nil)
		if tooLong := len([]rune(name)) > 64; tooLong != (err != nil) || err != nil && !strings.Contains(err.Error(), "at most 64 characters") {
			t.Errorf("a name of %d characters: %v", len([]rune(name)), err)
		}
	}
}

// The keys of the events in a batch don't decide its partition.
func TestEnvelopeRouting(t *testing.T) {
	for _, envelope := range []bool{false, true} {
		srv := start(t, one("h", 4), asAzure(emulator.EventHubsAsAzure{EnvelopeRouting: envelope}))
		l := sender(t, session(t, srv), "h")
		inner := &amqp.Message{Annotations: amqp.Annotations{"x-opt-partition-key": "key"}, Data: [][]byte{[]byte("a")}}
		data, err := inner.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			if err := l.Send(testContext(t), &amqp.Message{Format: 0x80013700, Data: [][]byte{data}}, nil); err != nil {
				t.Fatal(err)
			}
		}
		full := 0
		for id := range 4 {
			props, err := producer(t, srv, "h").GetPartitionProperties(testContext(t), fmt.Sprint(id), nil)
			if err != nil {
				t.Fatal(err)
			}
			if !props.IsEmpty {
				full++
			}
		}
		if want := map[bool]int{false: 1, true: 4}[envelope]; full != want {
			t.Errorf("by the envelope alone %v: events in %d partitions, want %d", envelope, full, want)
		}
	}
}

// A receiver whose position or epoch is refused is attached first, and detached a moment later.
func TestLateRefusal(t *testing.T) {
	srv := start(t, one("h", 1), asAzure(emulator.EventHubsAsAzure{LateRefusal: 20 * time.Millisecond}))
	send(t, producer(t, srv, "h"), to0(), "a")
	const address = "h/ConsumerGroups/$Default/Partitions/0"
	receiver(t, session(t, srv), address, &amqp.ReceiverOptions{Properties: map[string]any{"com.microsoft:epoch": int64(2)}})
	for want, options := range map[string]*amqp.ReceiverOptions{
		"The last sequence number in the system is '0'": {Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("amqp.annotation.x-opt-sequence-number > '5'")}},
		"with a higher epoch '2' already exists":        {Properties: map[string]any{"com.microsoft:epoch": int64(1)}},
	} {
		l, err := session(t, srv).NewReceiver(testContext(t), address, options)
		if err != nil {
			t.Errorf("the attach is refused: %v", err)
			continue
		}
		_, err = l.Receive(testContext(t), nil)
		wantText(t, err, want)
	}
}

// The metrics of a receiver in a geo-replicated namespace have an offset to start at.
func TestGeoMetrics(t *testing.T) {
	srv := start(t, one("h", 1), asAzure(emulator.EventHubsAsAzure{Geo: true}))
	send(t, producer(t, srv, "h"), to0(), "a")
	m := next(t, receiver(t, session(t, srv), fromZero, &amqp.ReceiverOptions{DesiredCapabilities: []string{"com.microsoft:enable-receiver-runtime-metric"}}))
	if last := m.DeliveryAnnotations["last_enqueued_offset"]; last != m.Annotations["x-opt-offset"] {
		t.Errorf("the last offset is %v, the last event's %v", last, m.Annotations["x-opt-offset"])
	}
}

// Offsets name the replication epoch. A promotion begins another one; after a forced one,
// earlier offsets are refused. Numeric offsets always are.
func TestGeo(t *testing.T) {
	cfg := asAzure(emulator.EventHubsAsAzure{Geo: true})
	cfg.Control = "127.0.0.1:0"
	srv := start(t, one("h", 1), cfg)
	p, c := producer(t, srv, "h"), consumer(t, srv, "h", "$Default", "")
	if props, err := c.GetEventHubProperties(testContext(t), nil); err != nil || !props.GeoReplicationEnabled {
		t.Errorf("%+v, %v", props, err)
	}
	if got := properties(t, c).LastEnqueuedOffset; got != "1:-1:-1" {
		t.Errorf("the offset of an empty partition is %s", got)
	}
	promote := func(body, want string) {
		t.Helper()
		res, err := http.Post("http://"+srv.ControlAddr()+"/namespace/promote", "application/json", strings.NewReader(body))
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("promote: %+v, %v", res, err)
		}
		defer res.Body.Close()
		text := make([]byte, 100)
		n, _ := res.Body.Read(text)
		if got := strings.TrimSpace(string(text[:n])); got != want {
			t.Errorf("promote: %s, want %s", got, want)
		}
	}
	send(t, p, to0(), "a", "b")
	promote(`{}`, `{"epoch":2}`)
	send(t, producer(t, srv, "h"), to0(), "c")
	c = consumer(t, srv, "h", "$Default", "")
	events := receive(t, partition(t, c, "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest}), 3)
	for i, epoch := range []int{1, 1, 2} {
		if o := strings.Split(events[i].Offset, ":"); len(o) != 3 || o[0] != fmt.Sprint(epoch) || o[2] != fmt.Sprint(i) {
			t.Errorf("event %d has offset %s", i, events[i].Offset)
		}
	}
	if got := receive(t, partition(t, c, "0", atOffset(events[0].Offset)), 2); got[0].SequenceNumber != 1 {
		t.Errorf("after a planned promotion, %s gives event %d", events[0].Offset, got[0].SequenceNumber)
	}
	if got := properties(t, c).LastEnqueuedOffset; got != events[2].Offset {
		t.Errorf("the last offset is %s in the runtime information, and %s in the event", got, events[2].Offset)
	}
	if got := receive(t, partition(t, c, "0", atOffset("2:-1:-1")), 1); got[0].SequenceNumber != 0 {
		t.Errorf("after the offset of an empty partition comes event %d", got[0].SequenceNumber)
	}
	refused := func(offset string) {
		t.Helper()
		_, err := partition(t, consumer(t, srv, "h", "$Default", ""), "0", atOffset(offset)).ReceiveEvents(testContext(t), 1, nil)
		if err == nil {
			t.Fatalf("offset %s was not refused", offset)
		}
		wantText(t, err, "com.microsoft:georeplication:invalid-offset", offset)
	}
	for _, offset := range []string{"0", "2:0:0", "4:-1:-1", "3:0:2", "1:0:x"} {
		refused(offset)
	}
	promote(`{"forced": true}`, `{"epoch":3}`)
	send(t, producer(t, srv, "h"), to0(), "d")
	refused(events[2].Offset)
	last := receive(t, partition(t, consumer(t, srv, "h", "$Default", ""), "0", startAt(2, false)), 1)[0]
	if !strings.HasPrefix(last.Offset, "3:") {
		t.Errorf("the last offset is %s", last.Offset)
	}
	if _, err := start(t, one("h", 1), nil).Promote(false); err == nil {
		t.Error("promoted a namespace that isn't geo-replicated")
	}
}

// A share of the operations is refused as server-busy, the same ones for the same seed.
func TestRandomBusy(t *testing.T) {
	var first string
	for range 2 {
		srv := start(t, one("h", 1), asAzure(emulator.EventHubsAsAzure{RandomBusy: 0.2}))
		s := session(t, srv)
		var l *amqp.Sender
		for l == nil {
			l, _ = s.NewSender(testContext(t), "h", nil)
		}
		outcomes := ""
		for range 100 {
			switch err := l.Send(testContext(t), amqp.NewMessage([]byte("a")), nil); {
			case err == nil:
				outcomes += "."
			case strings.Contains(err.Error(), "com.microsoft:server-busy"):
				outcomes += "x"
			default:
				t.Fatal(err)
			}
		}
		if n := strings.Count(outcomes, "x"); n < 5 || n > 40 {
			t.Errorf("%d of 100 were refused", n)
		}
		if first == "" {
			first = outcomes
		}
		if outcomes != first {
			t.Errorf("the same seed gave %s and %s", first, outcomes)
		}
	}
}
