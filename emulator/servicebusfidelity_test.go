package emulator_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice/emulator"
)

// What a receiver gets of a message is what Azure gives it: the sender's header and
// delivery annotations, the lock token, and no number of an earlier queue.
func TestBusWholeMessage(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, nil)
	c := busClient(t, srv.ConnectionString())
	sent := &azservicebus.AMQPAnnotatedMessage{
		Header:              &azservicebus.AMQPAnnotatedMessageHeader{Durable: true, Priority: 100},
		DeliveryAnnotations: map[any]any{"own": "delivery", "x-opt-lock-token": "forged"},
		MessageAnnotations:  map[any]any{"own": "message", "x-opt-enqueue-sequence-number": int64(9)},
		Body:                azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("one"), []byte("two")}},
	}
	must(t, busSender(t, c, "orders").SendAMQPAnnotatedMessage(testContext(t), sent, nil))
	ms, err := busReceiver(t, c, "orders", nil).ReceiveMessages(testContext(t), 1, nil)
	must(t, err)
	got := ms[0].RawAMQPMessage
	if !got.Header.Durable || got.Header.Priority != 100 {
		t.Errorf("header %+v", got.Header)
	}
	if got.DeliveryAnnotations["own"] != "delivery" || got.DeliveryAnnotations["x-opt-lock-token"] == nil || got.DeliveryAnnotations["x-opt-lock-token"] == "forged" {
		t.Errorf("delivery annotations %v", got.DeliveryAnnotations)
	}
	if got.MessageAnnotations["own"] != "message" || len(got.MessageAnnotations) != 4 || ms[0].EnqueuedSequenceNumber != nil {
		t.Errorf("message annotations %v", got.MessageAnnotations)
	}
	if len(got.Body.Data) != 2 {
		t.Errorf("body %v", got.Body)
	}
}

// A message without a body is a message.
func TestBusMessageWithoutBody(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, nil)
	c := busClient(t, srv.ConnectionString())
	must(t, busSender(t, c, "orders").SendAMQPAnnotatedMessage(testContext(t), &azservicebus.AMQPAnnotatedMessage{ApplicationProperties: map[string]any{"only": "this"}}, nil))
	ms, err := busReceiver(t, c, "orders", nil).ReceiveMessages(testContext(t), 1, nil)
	must(t, err)
	if ms[0].ApplicationProperties["only"] != "this" || ms[0].Body != nil {
		t.Errorf("received %+v", ms[0])
	}
}

// A client learns from the answer to its token that an entity doesn't exist.
func TestBusUnknownEntities(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, nil)
	c := busClient(t, srv.ConnectionString())
	for _, name := range []string{"unknown", "orders/Subscriptions/s"} {
		if err := busSender(t, c, name).SendMessage(testContext(t), &azservicebus.Message{}, nil); code(err) != azservicebus.CodeNotFound {
			t.Errorf("send to %s: %v", name, err)
		}
	}
	if _, err := busReceiver(t, c, "news/unknown", nil).ReceiveMessages(testContext(t), 1, nil); code(err) != azservicebus.CodeNotFound {
		t.Errorf("receive from an unknown subscription: %v", err)
	}
	if _, err := c.AcceptSessionForQueue(testContext(t), "unknown", "s", nil); code(err) != azservicebus.CodeNotFound {
		t.Errorf("accept a session of an unknown queue: %v", err)
	}
	sendText(t, busSender(t, c, "news"), "known")
	receiveText(t, busReceiver(t, c, "news/one", nil), "known")
}

// A cleared session state reads as none, and sessions are listed by the time of their
// state.
func TestBusSessionStates(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{Sessions: true}, nil)
	c := busClient(t, srv.ConnectionString())
	for _, id := range []string{"kept", "cleared"} {
		s, err := c.AcceptSessionForQueue(testContext(t), "orders", id, nil)
		must(t, err)
		must(t, s.SetSessionState(testContext(t), []byte("state"), nil))
		if id == "cleared" {
			must(t, s.SetSessionState(testContext(t), nil, nil))
			if state, err := s.GetSessionState(testContext(t), nil); state != nil || err != nil {
				t.Errorf("a cleared state is %v, %v", state, err)
			}
		}
		must(t, s.Close(context.Background()))
	}
	sendSession(t, busSender(t, c, "orders"), "message only", "a")
	listed := func(options *azservicebus.ListSessionsOptions) (all []string) {
		for p := c.NewListSessionsForQueuePager("orders", options); p.More(); {
			page, err := p.NextPage(testContext(t))
			must(t, err)
			all = append(all, page.Sessions...)
		}
		return all
	}
	before, after := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if all := listed(nil); !slices.Equal(all, []string{"kept", "message only"}) {
		t.Errorf("all sessions: %q", all)
	}
	if some := listed(&azservicebus.ListSessionsOptions{SessionStateUpdatedAfter: &before}); !slices.Equal(some, []string{"kept"}) {
		t.Errorf("sessions with a state since an hour ago: %q", some)
	}
	if none := listed(&azservicebus.ListSessionsOptions{SessionStateUpdatedAfter: &after}); len(none) != 0 {
		t.Errorf("sessions with a state from the future: %q", none)
	}
}
