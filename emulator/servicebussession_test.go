package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

func sendSession(t testing.TB, s *azservicebus.Sender, session string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		must(t, s.SendMessage(testContext(t), &azservicebus.Message{Body: []byte(text), SessionID: &session}, nil))
	}
}

func wantCondition(t testing.TB, what string, err error, condition amqp.ErrCond) {
	t.Helper()
	var e *amqp.Error
	if !errors.As(err, &e) || e.Condition != condition {
		t.Errorf("%s: %v, not %s", what, err, condition)
	}
}

// The messages of a session go to its holder only, in order.
func TestBusSessions(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{Sessions: true}, nil)
	c, ctx := busClient(t, srv.ConnectionString()), testContext(t)
	s := busSender(t, c, "orders")
	sendSession(t, s, "red", "r1", "r2")
	sendSession(t, s, "blue", "b1")
	sendSession(t, s, "red", "r3")
	wantCondition(t, "a message without a session", s.SendMessage(ctx, &azservicebus.Message{}, nil), amqp.ErrCondNotAllowed)
	_, err := busReceiver(t, c, "orders", nil).ReceiveMessages(ctx, 1, nil)
	wantCondition(t, "a receiver without a session", err, amqp.ErrCondNotAllowed)

	red, err := c.AcceptNextSessionForQueue(ctx, "orders", nil)
	must(t, err)
	if left := time.Until(red.LockedUntil()); red.SessionID() != "red" || left < 50*time.Second || left > time.Minute {
		t.Fatalf("session %q, locked for %s", red.SessionID(), left)
	}
	_, err = c.AcceptSessionForQueue(ctx, "orders", "red", nil)
	wantCondition(t, "a session that is held", err, "com.microsoft:session-cannot-be-locked")
	var got []string
	for len(got) < 3 {
		ms, err := red.ReceiveMessages(ctx, 3, nil)
		must(t, err)
		for _, m := range ms {
			got = append(got, string(m.Body))
			must(t, red.CompleteMessage(ctx, m, nil))
		}
	}
	if !slices.Equal(got, []string{"r1", "r2", "r3"}) {
		t.Fatalf("received %q", got)
	}
	if state, err := red.GetSessionState(ctx, nil); err != nil || state != nil {
		t.Fatalf("state %q, %v", state, err)
	}
	must(t, red.SetSessionState(ctx, []byte("done"), nil))
	must(t, red.RenewSessionLock(ctx, nil))
	must(t, red.Close(ctx))

	blue, err := c.AcceptNextSessionForQueue(ctx, "orders", nil)
	must(t, err)
	ms, err := blue.ReceiveMessages(ctx, 1, nil)
	if err != nil || blue.SessionID() != "blue" || string(ms[0].Body) != "b1" || *ms[0].SessionID != "blue" {
		t.Fatalf("session %q has %d messages: %v", blue.SessionID(), len(ms), err)
	}
	must(t, blue.Close(ctx)) // with a message that isn't settled
	again, err := c.AcceptSessionForQueue(ctx, "orders", "blue", nil)
	must(t, err)
	if ms, err = again.ReceiveMessages(ctx, 1, nil); err != nil || ms[0].DeliveryCount != 2 {
		t.Fatalf("received %d messages: %v", len(ms), err)
	}
	must(t, again.DeadLetterMessage(ctx, ms[0], nil))
	wantCounts(t, srv, "orders", 0, 1)
	receiveText(t, busReceiver(t, c, "orders", deadLetters), "b1")

	red, err = c.AcceptSessionForQueue(ctx, "orders", "red", nil)
	must(t, err)
	if state, err := red.GetSessionState(ctx, nil); err != nil || string(state) != "done" {
		t.Fatalf("state %q, %v", state, err)
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := c.AcceptNextSessionForQueue(short, "orders", nil); err == nil {
		t.Fatal("there was another session")
	}
}

// Who waits for the next session gets one as soon as there is.
func TestBusNextSession(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{Sessions: true}, nil)
	c, ctx := busClient(t, srv.ConnectionString()), testContext(t)
	got := make(chan string, 3)
	for range 3 {
		go func() {
			r, err := c.AcceptNextSessionForQueue(ctx, "orders", nil)
			if err != nil {
				got <- err.Error()
				return
			}
			got <- r.SessionID()
		}()
	}
	s := busSender(t, c, "orders")
	var want, ids []string
	for i := range 3 {
		want = append(want, fmt.Sprint("s", i))
		sendSession(t, s, want[i], "x", "y")
	}
	for range 3 {
		ids = append(ids, <-got)
	}
	slices.Sort(ids)
	if !slices.Equal(ids, want) {
		t.Errorf("sessions %q", ids)
	}
}

// A session whose lock has expired is another's, with what its receiver had not settled.
func TestBusSessionExpiry(t *testing.T) {
	need.RealTime(t)
	t.Parallel() // it waits for the end of a lock
	for attempt := 1; ; attempt++ {
		held, err := expireSession(t)
		if err == nil {
			return
		}
		if attempt == 3 || time.Now().Before(held.LockedUntil()) { // else the machine was too slow
			t.Fatal(err)
		}
	}
}

// expireSession lets the lock of a session expire that has a message. It returns the last receiver
// that has held the session, and the error of its operations.
func expireSession(t *testing.T) (held *azservicebus.SessionReceiver, err error) {
	srv := startBus(t, emulator.ServiceBusQueue{Sessions: true, Lock: 5 * time.Second}, nil)
	c, ctx := busClient(t, srv.ConnectionString()), testContext(t)
	sendSession(t, busSender(t, c, "orders"), "s", "a")
	held, err = c.AcceptSessionForQueue(ctx, "orders", "s", nil)
	must(t, err)
	if ms, err := held.ReceiveMessages(ctx, 1, nil); len(ms) == 0 {
		return held, fmt.Errorf("the first receives nothing: %v", err)
	}
	held, err = busClient(t, srv.ConnectionString()).AcceptNextSessionForQueue(ctx, "orders", nil) // waits
	must(t, err)
	again, err := held.ReceiveMessages(ctx, 1, nil)
	if len(again) == 0 {
		return held, fmt.Errorf("the second receives nothing: %v", err)
	}
	if again[0].DeliveryCount != 2 {
		t.Fatalf("delivery %d", again[0].DeliveryCount)
	}
	if err := held.CompleteMessage(ctx, again[0], nil); err != nil {
		return held, err
	}
	wantCounts(t, srv, "orders", 0, 0)
	return held, nil
}

func TestBusScheduled(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0"})
	c, ctx := busClient(t, srv.ConnectionString()), testContext(t)
	for entity, from := range map[string]string{"orders": "orders", "news": "news/one"} {
		s, r := busSender(t, c, entity), busReceiver(t, c, from, nil)
		far := time.Now().Add(time.Hour)
		must(t, s.SendMessage(ctx, &azservicebus.Message{Body: []byte("not today"), ScheduledEnqueueTime: &far}, nil))
		numbers, err := s.ScheduleMessages(ctx, []*azservicebus.Message{{Body: []byte("never")}, {Body: []byte("nor this")}}, far, nil)
		if err != nil || len(numbers) != 2 {
			t.Fatalf("%s: scheduled as %d: %v", entity, numbers, err)
		}
		sendText(t, s, "now")
		n := int32(0)
		if entity == "orders" {
			q, err := busAdmin(t, srv, srv.AdminConnectionString()).GetQueueRuntimeProperties(ctx, entity, nil)
			must(t, err)
			if n = q.ScheduledMessageCount; q.ActiveMessageCount != 1 || q.TotalMessageCount != 4 {
				t.Errorf("counts %+v", q)
			}
			ms, err := r.PeekMessages(ctx, 10, nil)
			if err != nil || len(ms) != 4 || ms[0].State != azservicebus.MessageStateScheduled || ms[3].State != azservicebus.MessageStateActive || ms[0].ScheduledEnqueueTime.Sub(far).Abs() > time.Millisecond {
				t.Errorf("peeked %d messages: %v", len(ms), err)
			}
		} else {
			topic, err := busAdmin(t, srv, srv.AdminConnectionString()).GetTopicRuntimeProperties(ctx, entity, nil)
			must(t, err)
			n = topic.ScheduledMessageCount
		}
		if n != 3 {
			t.Errorf("%s: %d messages are scheduled", entity, n)
		}
		must(t, s.CancelScheduledMessages(ctx, numbers, nil))
		if err := s.CancelScheduledMessages(ctx, numbers[:1], nil); code(err) != azservicebus.CodeNotFound {
			t.Errorf("%s: cancelled twice: %v", entity, err)
		}
		at := time.Now().Add(500 * time.Millisecond)
		must(t, s.SendMessage(ctx, &azservicebus.Message{Body: []byte("later"), ScheduledEnqueueTime: &at}, nil))
		ms := receiveText(t, r, "now", "later")
		if time.Now().Before(at.Add(-time.Millisecond)) || ms[1].EnqueuedTime.Before(at.Add(-time.Millisecond)) {
			t.Errorf("%s: received early: enqueued %s, not %s", entity, ms[1].EnqueuedTime, at)
		}
		if got := ms[1].ScheduledEnqueueTime; ms[0].ScheduledEnqueueTime != nil || got == nil || got.Sub(at).Abs() > time.Millisecond {
			t.Errorf("%s: the received message was scheduled for %v, not %s", entity, got, at)
		}
	}
}

func TestBusDeferred(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, nil)
	c, ctx := busClient(t, srv.ConnectionString()), testContext(t)
	sendText(t, busSender(t, c, "orders"), "a", "b", "c")
	r := busReceiver(t, c, "orders", nil)
	ms := receiveText(t, r, "a", "b", "c")
	must(t, r.DeferMessage(ctx, ms[0], &azservicebus.DeferMessageOptions{PropertiesToModify: map[string]any{"why": "later"}}))
	must(t, r.DeferMessage(ctx, &azservicebus.ReceivedMessage{LockToken: ms[1].LockToken}, nil)) // by the management link
	must(t, r.AbandonMessage(ctx, ms[2], nil))
	receiveText(t, r, "c")
	wantCounts(t, srv, "orders", 3, 0)
	peeked, err := r.PeekMessages(ctx, 10, nil)
	if err != nil || len(peeked) != 3 || peeked[0].State != azservicebus.MessageStateDeferred {
		t.Fatalf("peeked %d messages: %v", len(peeked), err)
	}
	got, err := r.ReceiveDeferredMessages(ctx, []int64{1, 2}, nil)
	if err != nil || len(got) != 2 || string(got[0].Body) != "a" || got[0].ApplicationProperties["why"] != "later" {
		t.Fatalf("received %d deferred messages: %v", len(got), err)
	}
	if _, err := r.ReceiveDeferredMessages(ctx, []int64{1}, nil); code(err) != azservicebus.CodeNotFound {
		t.Fatalf("received one that is locked: %v", err)
	}
	must(t, r.CompleteMessage(ctx, got[0], nil))
	must(t, r.AbandonMessage(ctx, got[1], nil))
	wantCounts(t, srv, "orders", 2, 0)
	if got, err = r.ReceiveDeferredMessages(ctx, []int64{2}, nil); err != nil || got[0].DeliveryCount != 2 {
		t.Fatalf("received %d deferred messages: %v", len(got), err)
	}
	must(t, r.DeadLetterMessage(ctx, got[0], &azservicebus.DeadLetterOptions{Reason: to.Ptr("old")}))
	wantCounts(t, srv, "orders", 1, 1)
	all := busReceiver(t, c, "orders", &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	if _, err := all.ReceiveDeferredMessages(ctx, []int64{3}, nil); code(err) != azservicebus.CodeNotFound {
		t.Fatalf("received one that isn't deferred: %v", err)
	}
}
