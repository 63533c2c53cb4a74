package emulator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// busAsAzure starts a namespace with these behaviours, and returns a client and a sender.
func busAsAzure(t *testing.T, azure emulator.ServiceBusAsAzure, premium bool) (*emulator.ServiceBus, *azservicebus.Client, *azservicebus.Sender) {
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{AsAzure: &emulator.AsAzure{ServiceBus: azure}, Premium: premium, TLSListen: "127.0.0.1:0"})
	c := busClient(t, srv.ConnectionString())
	return srv, c, busSender(t, c, "orders")
}

func TestBusMessageQuotas(t *testing.T) {
	_, c, s := busAsAzure(t, emulator.ServiceBusAsAzure{MessageID: true, Properties: true}, false)
	id := func(n int) *azservicebus.Message {
		return &azservicebus.Message{MessageID: to.Ptr(strings.Repeat("é", n))}
	}
	properties := func(n, size int) *azservicebus.Message {
		m := &azservicebus.Message{ApplicationProperties: map[string]any{}}
		for i := range n {
			m.ApplicationProperties[string(rune('a'+i))] = strings.Repeat("x", size)
		}
		return m
	}
	for _, m := range []*azservicebus.Message{id(128), properties(3, 20<<10)} {
		must(t, s.SendMessage(testContext(t), m, nil))
	}
	refused := func(m *azservicebus.Message, want string) {
		t.Helper()
		b, err := s.NewMessageBatch(testContext(t), nil)
		must(t, err)
		must(t, b.AddMessage(m, nil))
		for _, err := range []error{s.SendMessage(testContext(t), m, nil), s.SendMessageBatch(testContext(t), b, nil)} {
			if err == nil || !strings.Contains(err.Error(), want) { // the library wraps neither condition
				t.Errorf("%v, not %s", err, want)
			}
		}
	}
	refused(id(129), "com.microsoft:argument-out-of-range")
	refused(properties(1, 33<<10), "amqp:invalid-field")
	refused(properties(4, 20<<10), "amqp:invalid-field")
	if _, err := s.ScheduleMessages(testContext(t), []*azservicebus.Message{id(129)}, time.Now().Add(time.Hour), nil); err == nil {
		t.Error("scheduled a message whose id is too long")
	}
	receiveText(t, busReceiver(t, c, "orders", nil), "", "")
}

// On the premium tier a single message can be larger than a batch, and the library learns
// both limits from the link.
func TestBusLargeMessages(t *testing.T) {
	_, c, s := busAsAzure(t, emulator.ServiceBusAsAzure{LargeMessages: 4 << 10}, true)
	b, err := s.NewMessageBatch(testContext(t), nil)
	must(t, err)
	large := &azservicebus.Message{Body: bytes.Repeat([]byte("large"), 600_000)}
	if err := b.AddMessage(large, nil); !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		t.Fatalf("add 3 MB to a batch: %v", err)
	}
	must(t, s.SendMessage(testContext(t), large, nil))
	ms, err := busReceiver(t, c, "orders", nil).ReceiveMessages(testContext(t), 1, nil)
	must(t, err)
	if !bytes.Equal(ms[0].Body, large.Body) {
		t.Fatalf("received %d bytes", len(ms[0].Body))
	}
	b, err = s.NewMessageBatch(testContext(t), &azservicebus.MessageBatchOptions{MaxBytes: 4 << 20})
	must(t, err)
	must(t, b.AddMessage(large, nil))
	wantCondition(t, "a batch of 3 MB", s.SendMessageBatch(testContext(t), b, nil), amqp.ErrCondMessageSizeExceeded)
	if err := s.SendMessage(testContext(t), &azservicebus.Message{Body: make([]byte, 5<<20)}, nil); !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		t.Fatalf("send 5 MB: %v", err)
	}
}

func TestBusEntitySizes(t *testing.T) {
	for _, premium := range []bool{false, true} {
		srv, _, _ := busAsAzure(t, emulator.ServiceBusAsAzure{EntitySizes: true, ShortestLock: 5 * time.Second}, premium)
		a := busAdmin(t, srv, srv.AdminConnectionString())
		for size, valid := range map[int32]bool{1024: true, 5 << 10: true, 80 << 10: premium, 1025: false, 512: false} {
			name := fmt.Sprint("q", size)
			_, err := a.CreateQueue(testContext(t), name, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{MaxSizeInMegabytes: &size}})
			_, err2 := a.CreateTopic(testContext(t), name+"t", &admin.CreateTopicOptions{Properties: &admin.TopicProperties{MaxSizeInMegabytes: &size}})
			if (err == nil) != valid || (err2 == nil) != valid {
				t.Errorf("premium %t, %d MB: %v, %v", premium, size, err, err2)
			}
		}
		_, err := a.CreateQueue(testContext(t), "short", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{LockDuration: to.Ptr("PT4S")}})
		wantStatus(t, "a lock of 4 seconds", err, http.StatusBadRequest)
	}
	_, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "q", Lock: time.Second}}, nil,
		&emulator.ServiceBusConfig{AsAzure: &emulator.AsAzure{ServiceBus: emulator.ServiceBusAsAzure{ShortestLock: 5 * time.Second}}})
	if err == nil || !strings.Contains(err.Error(), "queue q: lock duration 1s") {
		t.Errorf("a configured lock of a second: %v", err)
	}
}

func TestBusConnectionQuotas(t *testing.T) {
	srv, c, s := busAsAzure(t, emulator.ServiceBusAsAzure{Connections: 2, Receivers: 2}, false)
	sendText(t, s, "a", "b")
	first := busReceiver(t, c, "orders", nil)
	receiveText(t, first, "a")
	receiveText(t, busReceiver(t, c, "orders", nil), "b")
	_, err := busReceiver(t, c, "orders", nil).ReceiveMessages(testContext(t), 1, nil)
	wantCondition(t, "a third receiver", err, amqp.ErrCondResourceLimitExceeded)
	must(t, first.Close(testContext(t)))
	sendText(t, s, "c")
	receiveText(t, busReceiver(t, c, "orders", nil), "c")
	sendText(t, busSender(t, busClient(t, srv.ConnectionString()), "orders"), "d")
	if err := busSender(t, busClient(t, srv.ConnectionString()), "orders").SendMessage(testContext(t), &azservicebus.Message{}, nil); err == nil {
		t.Error("a third connection was accepted")
	}
}

func TestBusIdle(t *testing.T) {
	need.RealTime(t)
	srv, _, _ := busAsAzure(t, emulator.ServiceBusAsAzure{IdleLink: 50 * time.Millisecond}, false)
	conn, err := amqp.Dial(testContext(t), "amqp://"+srv.Addr(), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	session, err := conn.NewSession(testContext(t), nil)
	must(t, err)
	l := sender(t, session, "orders")
	for end := testContext(t); end.Err() == nil; {
		<-time.After(100 * time.Millisecond)
		if err := l.Send(testContext(t), &amqp.Message{Data: [][]byte{nil}}, nil); err != nil {
			if got := condition(err); got != "amqp:link:detach-forced" || !strings.Contains(err.Error(), "AmqpMessagePublisher.IdleTimerExpired") {
				t.Errorf("%s: %v", got, err)
			}
			return
		}
	}
	t.Error("the idle link was not detached")
}

// Dead letters are an entity like any other; the client writes their name as it likes.
func TestBusIdleDeadLetters(t *testing.T) {
	srv, _, _ := busAsAzure(t, emulator.ServiceBusAsAzure{IdleLink: 50 * time.Millisecond}, false)
	conn, err := amqp.Dial(testContext(t), "amqp://"+srv.Addr(), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	s, err := conn.NewSession(testContext(t), nil)
	must(t, err)
	idle := receiver(t, s, "orders/$DeadLetterQueue", &amqp.ReceiverOptions{Credit: -1})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := idle.Receive(ctx, nil); condition(err) != "amqp:link:detach-forced" {
		t.Errorf("the idle receiver: %v", err)
	}
}

func TestBusRandomBusy(t *testing.T) {
	_, _, s := busAsAzure(t, emulator.ServiceBusAsAzure{RandomBusy: 0.3}, false)
	busy := 0
	for range 200 {
		err := s.SendMessage(testContext(t), &azservicebus.Message{}, nil)
		var e *amqp.Error
		switch {
		case err == nil:
		case errors.As(err, &e) && e.Condition == "com.microsoft:server-busy":
			busy++
		default:
			t.Fatal(err)
		}
	}
	if busy < 30 || busy > 100 {
		t.Errorf("%d of 200 sends were refused", busy)
	}
}
