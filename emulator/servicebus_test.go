package emulator_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/emulator"
)

// startBus runs a Service Bus for the length of a test, with the queue "orders" and the topic
// "news".
func startBus(t testing.TB, queue emulator.ServiceBusQueue, cfg *emulator.ServiceBusConfig) *emulator.ServiceBus {
	t.Helper()
	queue.Name = "orders"
	srv, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{queue},
		[]emulator.ServiceBusTopic{{Name: "news", Subscriptions: []emulator.ServiceBusQueue{{Name: "one"}, {Name: "two"}}}}, cfg)
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

func busClient(t testing.TB, connection string) *azservicebus.Client {
	t.Helper()
	c, err := azservicebus.NewClientFromConnectionString(connection, &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func busSender(t testing.TB, c *azservicebus.Client, entity string) *azservicebus.Sender {
	t.Helper()
	s, err := c.NewSender(entity, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func busReceiver(t testing.TB, c *azservicebus.Client, queue string, options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	t.Helper()
	var r *azservicebus.Receiver
	var err error
	if topic, subscription, ok := strings.Cut(queue, "/"); ok {
		r, err = c.NewReceiverForSubscription(topic, subscription, options)
	} else {
		r, err = c.NewReceiverForQueue(queue, options)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sendText(t testing.TB, s *azservicebus.Sender, texts ...string) {
	t.Helper()
	for _, text := range texts {
		must(t, s.SendMessage(testContext(t), &azservicebus.Message{Body: []byte(text)}, nil))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// receiveText receives as many messages as there are texts, and expects these.
func receiveText(t testing.TB, r *azservicebus.Receiver, want ...string) (all []*azservicebus.ReceivedMessage) {
	t.Helper()
	for len(all) < len(want) {
		ms, err := r.ReceiveMessages(testContext(t), len(want)-len(all), nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ms...)
	}
	var got []string
	for _, m := range all {
		got = append(got, string(m.Body))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("received %q, not %q", got, want)
	}
	return all
}

func wantCounts(t testing.TB, srv *emulator.ServiceBus, path string, active, dead int64) {
	t.Helper()
	c, err := srv.Counts(path)
	if err != nil || c.Active != active || c.DeadLetters != dead {
		t.Fatalf("%s has %d messages and %d dead letters, not %d and %d: %v", path, c.Active, c.DeadLetters, active, dead, err)
	}
}

func code(err error) azservicebus.Code {
	var e *azservicebus.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

var deadLetters = &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}

func TestBusMessage(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, nil)
	c := busClient(t, srv.ConnectionString())
	before := time.Now().Add(-time.Second)
	must(t, busSender(t, c, "orders").SendMessage(testContext(t), &azservicebus.Message{
		Body: []byte("body"), MessageID: to.Ptr("id"), CorrelationID: to.Ptr("correlation"), ContentType: to.Ptr("text/plain"), Subject: to.Ptr("subject"),
		PartitionKey: to.Ptr("key"), SessionID: to.Ptr("key"), ReplyTo: to.Ptr("reply"), To: to.Ptr("to"), TimeToLive: to.Ptr(time.Hour),
		ApplicationProperties: map[string]any{"text": "ü", "number": int64(1) << 40, "yes": true},
	}, nil))
	r := busReceiver(t, c, "orders", nil)
	m := receiveText(t, r, "body")[0]
	if m.MessageID != "id" || *m.CorrelationID != "correlation" || *m.ContentType != "text/plain" || *m.Subject != "subject" || *m.PartitionKey != "key" ||
		*m.SessionID != "key" || *m.ReplyTo != "reply" || *m.To != "to" || *m.TimeToLive != time.Hour || *m.SequenceNumber != 1 || m.DeliveryCount != 1 {
		t.Errorf("received %+v", m)
	}
	if m.EnqueuedTime.Before(before) || !m.ExpiresAt.Equal(m.EnqueuedTime.Add(time.Hour)) || time.Until(*m.LockedUntil) > time.Minute || m.LockToken == [16]byte{} {
		t.Errorf("enqueued %s, expires %s, locked until %s by %x", m.EnqueuedTime, m.ExpiresAt, m.LockedUntil, m.LockToken)
	}
	if p := m.ApplicationProperties; len(p) != 3 || p["text"] != "ü" || p["number"] != int64(1)<<40 || p["yes"] != true {
		t.Errorf("application properties %v", p)
	}
	wantCounts(t, srv, "orders", 1, 0)
	must(t, r.CompleteMessage(testContext(t), m, nil))
	wantCounts(t, srv, "orders", 0, 0)
	if err := r.CompleteMessage(testContext(t), &azservicebus.ReceivedMessage{LockToken: m.LockToken}, nil); code(err) != azservicebus.CodeLockLost {
		t.Errorf("completed a second time: %v", err)
	}
}

func TestBusSettle(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{MaxDeliveries: 3}, nil)
	c := busClient(t, srv.ConnectionString())
	s, r, dead := busSender(t, c, "orders"), busReceiver(t, c, "orders", nil), busReceiver(t, c, "orders", deadLetters)
	sendText(t, s, "a")
	m := receiveText(t, r, "a")[0]
	must(t, r.AbandonMessage(testContext(t), m, &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"tries": "one"}}))
	m = receiveText(t, r, "a")[0]
	if m.DeliveryCount != 2 || m.ApplicationProperties["tries"] != "one" {
		t.Fatalf("delivery %d of the abandoned message, with %v", m.DeliveryCount, m.ApplicationProperties)
	}
	until := *m.LockedUntil
	must(t, r.RenewMessageLock(testContext(t), m, nil))
	if m.LockedUntil.Before(until) {
		t.Fatalf("renewed from %s to %s", until, m.LockedUntil)
	}
	must(t, r.DeadLetterMessage(testContext(t), m, &azservicebus.DeadLetterOptions{
		Reason: to.Ptr("odd"), ErrorDescription: to.Ptr("very odd"), PropertiesToModify: map[string]any{"tries": "two"},
	}))
	wantCounts(t, srv, "orders", 0, 1)
	d := receiveText(t, dead, "a")[0]
	if *d.DeadLetterReason != "odd" || *d.DeadLetterErrorDescription != "very odd" || d.ApplicationProperties["tries"] != "two" || d.DeliveryCount != 2 {
		t.Fatalf("dead letter %v, delivery %d", d.ApplicationProperties, d.DeliveryCount)
	}
	must(t, dead.CompleteMessage(testContext(t), d, nil))

	// By the management link, as after the receiver's link was lost.
	sendText(t, s, "b", "c")
	for i := range 3 {
		m = receiveText(t, r, "b")[0]
		if m.DeliveryCount != uint32(i+1) {
			t.Fatalf("delivery %d is the %dth", m.DeliveryCount, i+1)
		}
		must(t, r.AbandonMessage(testContext(t), &azservicebus.ReceivedMessage{LockToken: m.LockToken}, nil))
	}
	if err := r.RenewMessageLock(testContext(t), m, nil); code(err) != azservicebus.CodeLockLost {
		t.Fatalf("renewed a lost lock: %v", err)
	}
	if err := r.CompleteMessage(testContext(t), m, nil); code(err) != azservicebus.CodeLockLost {
		t.Fatalf("completed by a lost lock: %v", err)
	}
	m = receiveText(t, r, "c")[0]
	must(t, r.DeadLetterMessage(testContext(t), &azservicebus.ReceivedMessage{LockToken: m.LockToken}, &azservicebus.DeadLetterOptions{Reason: to.Ptr("why")}))
	both := receiveText(t, dead, "b", "c")
	if *both[0].DeadLetterReason != "MaxDeliveryCountExceeded" || *both[1].DeadLetterReason != "why" {
		t.Fatalf("dead letters for %q and %q", *both[0].DeadLetterReason, *both[1].DeadLetterReason)
	}
}

func TestBusLockExpiry(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{Lock: 200 * time.Millisecond}, nil)
	c := busClient(t, srv.ConnectionString())
	r := busReceiver(t, c, "orders", nil)
	sendText(t, busSender(t, c, "orders"), "a")
	first := receiveText(t, r, "a")[0]
	second := receiveText(t, r, "a")[0] // waits for the lock to expire
	if second.DeliveryCount < 2 || second.LockToken == first.LockToken {
		t.Fatalf("delivery %d", second.DeliveryCount)
	}
	if err := r.CompleteMessage(testContext(t), first, nil); code(err) != azservicebus.CodeLockLost {
		t.Fatalf("completed by a lost lock: %v", err)
	}
}

func TestBusTimeToLive(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{KeepExpired: true}, nil)
	c := busClient(t, srv.ConnectionString())
	must(t, busSender(t, c, "orders").SendMessage(testContext(t), &azservicebus.Message{Body: []byte("a"), TimeToLive: to.Ptr(100 * time.Millisecond)}, nil))
	d := receiveText(t, busReceiver(t, c, "orders", deadLetters), "a")[0]
	if *d.DeadLetterReason != "TTLExpiredException" {
		t.Fatalf("dead letter for %q", *d.DeadLetterReason)
	}
}

func TestBusPeekAndDelete(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, nil)
	c := busClient(t, srv.ConnectionString())
	s := busSender(t, c, "orders")
	batch, err := s.NewMessageBatch(testContext(t), nil)
	must(t, err)
	var want []string
	for i := range 300 {
		want = append(want, fmt.Sprint(i))
		must(t, batch.AddMessage(&azservicebus.Message{Body: []byte(want[i])}, nil))
	}
	must(t, s.SendMessageBatch(testContext(t), batch, nil))
	wantCounts(t, srv, "orders", 300, 0)
	r := busReceiver(t, c, "orders", &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	for i := 0; i < 300; i += 100 {
		ms, err := r.PeekMessages(testContext(t), 100, nil)
		if err != nil || len(ms) != 100 || string(ms[99].Body) != want[i+99] || *ms[99].SequenceNumber != int64(i+100) {
			t.Fatalf("peeked %d messages: %v", len(ms), err)
		}
	}
	if ms, err := r.PeekMessages(testContext(t), 1, nil); err != nil || len(ms) != 0 {
		t.Fatalf("peeked %d messages beyond the last: %v", len(ms), err)
	}
	if ms := receiveText(t, r, want...); ms[0].RawAMQPMessage.DeliveryAnnotations == nil {
		t.Error("a deleted message has no section of delivery annotations")
	}
	wantCounts(t, srv, "orders", 0, 0)
}

func TestBusTopic(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, nil)
	c := busClient(t, srv.ConnectionString())
	sendText(t, busSender(t, c, "news"), "a", "b")
	r := busReceiver(t, c, "news/one", nil)
	ms := receiveText(t, r, "a", "b")
	must(t, r.CompleteMessage(testContext(t), ms[0], nil))
	must(t, r.DeadLetterMessage(testContext(t), ms[1], nil))
	wantCounts(t, srv, "news/Subscriptions/one", 0, 1)
	wantCounts(t, srv, "news/Subscriptions/two", 2, 0)
	receiveText(t, busReceiver(t, c, "news/one", deadLetters), "b")
	receiveText(t, busReceiver(t, c, "news/two", nil), "a", "b")
}

func TestBusSizes(t *testing.T) {
	for _, premium := range []bool{false, true} {
		limit := 256 << 10
		if premium {
			limit = 1 << 20
		}
		srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{Premium: premium})
		c := busClient(t, srv.ConnectionString())
		s := busSender(t, c, "orders")
		fits := bytes.Repeat([]byte("x"), limit-200)
		must(t, s.SendMessage(testContext(t), &azservicebus.Message{Body: fits}, nil))
		if err := s.SendMessage(testContext(t), &azservicebus.Message{Body: append(fits, fits[:200]...)}, nil); !errors.Is(err, azservicebus.ErrMessageTooLarge) {
			t.Errorf("premium %t: sent a message above the limit: %v", premium, err)
		}
		batch, err := s.NewMessageBatch(testContext(t), nil)
		must(t, err)
		n := 0
		for batch.AddMessage(&azservicebus.Message{Body: fits[:1000]}, nil) == nil {
			n++
		}
		if n < limit/1200 || n > limit/1000 {
			t.Errorf("premium %t: %d messages fit", premium, n)
		}
		must(t, s.SendMessageBatch(testContext(t), batch, nil))
		wantCounts(t, srv, "orders", int64(1+n), 0)
		r := busReceiver(t, c, "orders", nil)
		ms, err := r.ReceiveMessages(testContext(t), 1, nil)
		if err != nil || len(ms) != 1 || !bytes.Equal(ms[0].Body, fits) {
			t.Errorf("premium %t: received %d messages: %v", premium, len(ms), err)
		}
	}
}

func TestBusRefusals(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{MaxBytes: 1000}, nil)
	c := busClient(t, srv.ConnectionString())
	s := busSender(t, c, "orders")
	wantCondition := func(what string, err error, condition amqp.ErrCond) {
		t.Helper()
		var e *amqp.Error
		if !errors.As(err, &e) || e.Condition != condition {
			t.Errorf("%s: %v, not %s", what, err, condition)
		}
	}
	if err := busSender(t, c, "nowhere").SendMessage(testContext(t), &azservicebus.Message{}, nil); code(err) != azservicebus.CodeNotFound {
		t.Errorf("a queue that isn't there: %v", err)
	}
	_, err := busReceiver(t, c, "news", nil).ReceiveMessages(testContext(t), 1, nil)
	wantCondition("receive from a topic", err, amqp.ErrCondNotAllowed)
	wantCondition("send to a subscription", busSender(t, c, "news/Subscriptions/one").SendMessage(testContext(t), &azservicebus.Message{}, nil), amqp.ErrCondNotAllowed)
	wantCondition("a full queue", s.SendMessage(testContext(t), &azservicebus.Message{Body: make([]byte, 2000)}, nil), amqp.ErrCondResourceLimitExceeded)
	_, err = c.AcceptSessionForQueue(testContext(t), "orders", "session", nil)
	wantCondition("a session", err, amqp.ErrCondNotAllowed)
	_, err = c.AcceptNextSessionForQueue(testContext(t), "orders", nil)
	wantCondition("the next session", err, amqp.ErrCondNotAllowed)
}

func TestBusKeys(t *testing.T) {
	keys := []emulator.Key{{Name: "all", Secret: "s1"}, {Name: "send", Secret: "s2", Rights: emulator.Send}, {Name: "listen", Secret: "s3", Rights: emulator.Listen}}
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{Keys: keys})
	use := func(name, secret string) *azservicebus.Client {
		return busClient(t, strings.Replace(srv.ConnectionString(), "SharedAccessKeyName=all;SharedAccessKey=s1", "SharedAccessKeyName="+name+";SharedAccessKey="+secret, 1))
	}
	sendText(t, busSender(t, use("all", "s1"), "orders"), "a")
	sendText(t, busSender(t, use("send", "s2"), "orders"), "b")
	r := busReceiver(t, use("listen", "s3"), "orders", nil)
	ms := receiveText(t, r, "a", "b")
	must(t, r.RenewMessageLock(testContext(t), ms[0], nil))
	must(t, r.CompleteMessage(testContext(t), ms[0], nil))
	refused := func(what string, err error) {
		t.Helper()
		if code(err) != azservicebus.CodeUnauthorizedAccess {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("wrong key", busSender(t, use("all", "s2"), "orders").SendMessage(testContext(t), &azservicebus.Message{}, nil))
	refused("send without the right", busSender(t, use("listen", "s3"), "orders").SendMessage(testContext(t), &azservicebus.Message{}, nil))
	_, err := busReceiver(t, use("send", "s2"), "orders", nil).ReceiveMessages(testContext(t), 1, nil)
	refused("receive without the right", err)
}

func TestBusTLS(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{Listen: "-", TLSListen: "127.0.0.1:0"})
	c, err := azservicebus.NewClientFromConnectionString(srv.ConnectionString(), &azservicebus.ClientOptions{
		TLSConfig: &tls.Config{RootCAs: srv.CertPool(), ServerName: "127.0.0.1"},
	})
	must(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	sendText(t, busSender(t, c, "orders"), "a")
	receiveText(t, busReceiver(t, c, "orders", nil), "a")
}

func TestBusFaults(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, nil)
	c, err := azservicebus.NewClientFromConnectionString(srv.ConnectionString(), &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{RetryDelay: time.Millisecond, MaxRetryDelay: time.Millisecond},
	})
	must(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	s, r := busSender(t, c, "orders"), busReceiver(t, c, "orders", nil)
	for _, f := range []emulator.Fault{
		{Kind: emulator.FaultDrop, On: emulator.OnSend, Times: 1}, {Kind: emulator.FaultDetach, On: emulator.OnSend, Times: 1},
		{Kind: emulator.FaultServerBusy, On: emulator.OnSend, Times: 1},
	} {
		_, err := srv.Faults().Add(f)
		must(t, err)
		sendText(t, s, string(f.Kind)) // the client tries again
	}
	ms := receiveText(t, r, "drop", "detach", "server-busy")
	if n := srv.DropConnections(); n == 0 {
		t.Fatal("no connection to drop")
	}
	for _, m := range ms { // the locks outlive the connection
		must(t, r.CompleteMessage(testContext(t), &azservicebus.ReceivedMessage{LockToken: m.LockToken}, nil))
	}
	wantCounts(t, srv, "orders", 0, 0)
	_, err = srv.Faults().Add(emulator.Fault{Kind: emulator.FaultLoseAnswer, On: emulator.OnSend, Times: 1})
	must(t, err)
	sendText(t, s, "twice")
	receiveText(t, r, "twice", "twice")
}
