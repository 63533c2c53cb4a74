package sluicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// AutoscaleQueue is a queue under test.
type AutoscaleQueue struct {
	autoscale.Queue
	// Aside returns what has been set aside.
	Aside func(ctx context.Context) ([]autoscale.Aside, error)
}

const (
	// queueLock is short, and the shortest that all services can do.
	queueLock = time.Second
	// longLock does not end within a check.
	longLock = patience
)

// TestAutoscaleQueue is the conformance suite of [autoscale.Queue]. open makes
// an empty queue with the given lock time. The checks run in parallel, as most
// wait for locks to end.
func TestAutoscaleQueue(t *testing.T, open func(t testing.TB, lock time.Duration) AutoscaleQueue) {
	t.Run("checks", func(t *testing.T) { // whose end is that of them all
		for _, c := range queueChecks {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(t, open(t, c.lock))
			})
		}
	})
}

var queueChecks = []struct {
	check[AutoscaleQueue]
	lock time.Duration
}{
	{check[AutoscaleQueue]{"delivers bodies as they are", queueBodies}, longLock},
	{check[AutoscaleQueue]{"a deleted message is gone", queueDelete}, queueLock},
	{check[AutoscaleQueue]{"a received message is hidden, then comes again", queueAgain}, queueLock},
	{check[AutoscaleQueue]{"extending keeps it hidden", queueExtend}, queueLock},
	{check[AutoscaleQueue]{"a lock that is lost can't be extended", queueLost}, queueLock},
	{check[AutoscaleQueue]{"a message received again survives the first receiver's delete", queueLateDelete}, queueLock},
	{check[AutoscaleQueue]{"set aside: kept with the reason, never received", queueAside}, queueLock},
	{check[AutoscaleQueue]{"receiving waits for a message", queueWaits}, longLock},
	{check[AutoscaleQueue]{"receiving ends with its context", queueEnds}, longLock},
	{check[AutoscaleQueue]{"no more than asked for", queueMost}, longLock},
	{check[AutoscaleQueue]{"several receivers share the messages", queueShare}, longLock},
}

// received waits for messages, up to most.
func received(t testing.TB, q autoscale.Queue, most int) []autoscale.Message {
	t.Helper()
	messages, err := q.Receive(limited(t), most)
	ok(t, "receive", err)
	if len(messages) == 0 || len(messages) > most {
		t.Fatalf("received %d messages, asked for 1 to %d", len(messages), most)
	}
	return messages
}

// quiet notes a message that comes within a moment.
func quiet(t testing.TB, q autoscale.Queue, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*moment)
	defer cancel()
	if messages, err := q.Receive(ctx, 1); len(messages) > 0 {
		t.Errorf("received %q: %s", messages[0].Body, why)
	} else if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("receive: got %v, want the context's error", err)
	}
}

func queueBodies(t testing.TB, q AutoscaleQueue) {
	want := []string{`{"a":1}`, "", "Grüße ✈ <&> \" '", "\x00\x01\xff\xfe", `{"long":"` + fmt.Sprintf("%030000d", 7) + `"}`}
	for _, body := range want {
		ok(t, "send", q.Send(limited(t), []byte(body)))
	}
	ok(t, "send nothing", q.Send(limited(t)))
	var got []string
	for len(got) < len(want) {
		for _, m := range received(t, q, 10) {
			if m.Deliveries != 1 || m.ID == "" {
				t.Errorf("message %q: deliveries %d, id %q", m.Body, m.Deliveries, m.ID)
			}
			got = append(got, string(m.Body))
			ok(t, "delete", q.Delete(limited(t), &m))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %.60q, want %.60q", got, want)
	}
}

func queueDelete(t testing.TB, q AutoscaleQueue) {
	ok(t, "send", q.Send(limited(t), []byte("a")))
	m := received(t, q, 1)[0]
	ok(t, "delete", q.Delete(limited(t), &m))
	ok(t, "delete again", q.Delete(limited(t), &m))
	<-time.After(queueLock + 2*moment)
	quiet(t, q, "it was deleted")
}

func queueAgain(t testing.TB, q AutoscaleQueue) {
	ok(t, "send", q.Send(limited(t), []byte("a")))
	first := received(t, q, 1)[0]
	quiet(t, q, "it is locked")
	second := received(t, q, 1)[0]
	if second.ID != first.ID || second.Deliveries != 2 || string(second.Body) != "a" {
		t.Errorf("came again as %q %q, delivery %d; want %q \"a\", 2", second.ID, second.Body, second.Deliveries, first.ID)
	}
}

func queueExtend(t testing.TB, q AutoscaleQueue) {
	ok(t, "send", q.Send(limited(t), []byte("a")))
	m, held := extended(t, q)
	for !held {
		m, held = extended(t, q)
	}
	quiet(t, q, "its lock has been extended")
	ok(t, "delete with the extended lock", q.Delete(limited(t), m))
	<-time.After(queueLock + 2*moment)
	quiet(t, q, "it was deleted")
}

// extended receives a message and extends its lock for longer than that lasts.
// It is not held if the machine stood still for so long that it was lost.
func extended(t testing.TB, q AutoscaleQueue) (m *autoscale.Message, held bool) {
	last := time.Now()
	m = &received(t, q, 1)[0]
	for range 6 {
		<-time.After(queueLock / 4)
		began := time.Now()
		err := q.Extend(limited(t), m)
		if errors.Is(err, autoscale.ErrLockLost) && time.Since(last) >= queueLock {
			return m, false
		}
		ok(t, "extend", err)
		last = began
	}
	return m, true
}

func queueLost(t testing.TB, q AutoscaleQueue) {
	ok(t, "send", q.Send(limited(t), []byte("a")))
	first := received(t, q, 1)[0]
	second := received(t, q, 1)[0]
	is(t, "extend by the first receiver", q.Extend(limited(t), &first), autoscale.ErrLockLost)
	ok(t, "extend by the second", q.Extend(limited(t), &second))
}

func queueLateDelete(t testing.TB, q AutoscaleQueue) {
	ok(t, "send", q.Send(limited(t), []byte("a")))
	first := received(t, q, 1)[0]
	second := received(t, q, 1)[0]
	ok(t, "late delete", q.Delete(limited(t), &first))
	ok(t, "extend", q.Extend(limited(t), &second))
}

func queueAside(t testing.TB, q AutoscaleQueue) {
	ok(t, "send", q.Send(limited(t), []byte("bad"), []byte("good")))
	for left := 2; left > 0; {
		for _, m := range received(t, q, 2) {
			left--
			if string(m.Body) == "bad" {
				ok(t, "set aside", q.SetAside(limited(t), &m, "not JSON: 'b'"))
			} else {
				ok(t, "delete", q.Delete(limited(t), &m))
			}
		}
	}
	<-time.After(queueLock + 2*moment)
	quiet(t, q, "it was set aside")
	aside, err := q.Aside(limited(t))
	ok(t, "what is set aside", err)
	if len(aside) != 1 || string(aside[0].Body) != "bad" || aside[0].Reason != "not JSON: 'b'" {
		t.Errorf("set aside is %q, want \"bad\" with its reason", aside)
	}
}

func queueWaits(t testing.TB, q AutoscaleQueue) {
	got := spawn(t, func() string {
		messages, err := q.Receive(limited(t), 1)
		if err != nil {
			return err.Error()
		}
		return string(messages[0].Body)
	})
	if early, came := settled(got); came {
		t.Fatalf("received %q of an empty queue", early)
	}
	ok(t, "send", q.Send(limited(t), []byte("a")))
	if body := <-got; body != "a" {
		t.Errorf("received %q, want \"a\"", body)
	}
}

func queueEnds(t testing.TB, q AutoscaleQueue) {
	ctx, cancel := context.WithCancel(t.Context())
	over := spawn(t, func() error {
		_, err := q.Receive(ctx, 1)
		return err
	})
	cancel()
	is(t, "receive", <-over, context.Canceled)
}

func queueMost(t testing.TB, q AutoscaleQueue) {
	ok(t, "send", q.Send(limited(t), []byte("1"), []byte("2"), []byte("3")))
	seen := map[string]bool{}
	for len(seen) < 3 {
		for _, m := range received(t, q, 2) {
			if seen[string(m.Body)] {
				t.Fatalf("received %q twice", m.Body)
			}
			seen[string(m.Body)] = true
		}
	}
}

func queueShare(t testing.TB, q AutoscaleQueue) {
	const messages, receivers = 60, 3
	for i := range messages {
		ok(t, "send", q.Send(limited(t), fmt.Appendf(nil, "%d", i)))
	}
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	var mu sync.Mutex
	seen := map[string]bool{}
	var receiving sync.WaitGroup
	for range receivers {
		receiving.Go(func() {
			for {
				batch, err := q.Receive(ctx, 7)
				if err != nil {
					return
				}
				for _, m := range batch {
					if err := q.Delete(ctx, &m); err != nil && ctx.Err() == nil {
						t.Errorf("delete: %v", err)
					}
					mu.Lock()
					if seen[string(m.Body)] && m.Deliveries == 1 {
						t.Errorf("%s was received twice, both times as the first", m.Body)
					}
					seen[string(m.Body)] = true
					if len(seen) == messages {
						cancel()
					}
					mu.Unlock()
				}
			}
		})
	}
	receiving.Wait()
	if len(seen) != messages {
		t.Errorf("%d of %d messages received", len(seen), messages)
	}
}
