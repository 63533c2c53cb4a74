package servicebus

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// An entity is deleted once nobody has used it for its DeleteIdle. Senders, receivers that
// wait, and changes of its settings use it; looking it up doesn't.
func TestDeleteIdle(t *testing.T) {
	const idle = 5 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		b := broker(t)
		q, err := b.CreateQueue("orders", &QueueConfig{DeleteIdle: idle})
		must(t, err)
		there := func(want bool, when string) {
			t.Helper()
			q.Counts()
			if _, ok := b.Queue("ORDERS"); ok != want || (len(b.Queues()) == 1) != want {
				t.Fatalf("%s: the queue exists: %t", when, ok)
			}
		}
		for _, use := range []struct {
			name  string
			touch func()
		}{
			{"send", func() { send(t, q, "a") }},
			{"peek", func() { _, err := q.Messages().Peek(0, 1, 1<<20, nil); must(t, err) }},
			{"receive and settle", func() {
				got := receive(t, q.Messages(), "a")
				time.Sleep(50 * time.Second)
				must(t, q.Messages().Complete(got[0].Token))
			}},
			{"wait", func() {
				ctx, cancel := context.WithTimeout(t.Context(), 3*idle)
				defer cancel()
				go func() {
					time.Sleep(2 * idle)
					there(true, "while a receiver waits")
				}()
				if err := q.Messages().Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
			}},
			{"configure", func() { must(t, q.Configure(&QueueConfig{DeleteIdle: idle})) }},
		} {
			time.Sleep(idle - time.Second)
			there(true, "before "+use.name)
			use.touch()
		}
		time.Sleep(idle - time.Second)
		there(true, "before the time is over")
		time.Sleep(time.Second)
		there(false, "after it")
		if err := q.Send([]Message{{}}); !errors.Is(err, ErrDeleted) {
			t.Fatalf("sent to the deleted queue: %v", err)
		}
		_, err = b.CreateQueue("orders", nil)
		must(t, err)
		if _, err := b.CreateQueue("short", &QueueConfig{DeleteIdle: idle - 1}); err == nil {
			t.Fatal("a queue could be deleted after less than five minutes")
		}
	})
}

// Receivers of a subscription use it and its topic; messages that arrive don't use it.
func TestDeleteIdleSubscription(t *testing.T) {
	const idle = 5 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		b := broker(t)
		topic, err := b.CreateTopic("news", &TopicConfig{DeleteIdle: 2 * idle})
		must(t, err)
		for _, name := range []string{"used", "unused"} {
			_, err := topic.Subscribe(name, &QueueConfig{DeleteIdle: idle})
			must(t, err)
		}
		used, _ := topic.Subscription("used")
		time.Sleep(idle - time.Second)
		must(t, topic.Send([]Message{{Payload: []byte("a")}}))
		receive(t, used.Messages(), "a")
		time.Sleep(time.Second)
		if all := topic.Subscriptions(); len(all) != 1 || all[0] != used {
			t.Fatalf("%d subscriptions are left", len(all))
		}
		for range 4 {
			time.Sleep(idle - time.Second)
			receive(t, used.Messages(), "a") // its lock has expired
		}
		if _, ok := b.Topic("news"); !ok {
			t.Fatal("the topic was deleted while its subscription was used")
		}
		time.Sleep(2 * idle)
		if _, ok := b.Topic("news"); ok || len(b.Topics()) != 0 {
			t.Fatal("the idle topic was not deleted")
		}
	})
}

// AccessedAt is about messages: it is zero until one is sent or received.
func TestAccessed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue(t, nil)
		must(t, q.Configure(nil))
		q.Counts()
		if at := q.Accessed(); !at.IsZero() {
			t.Fatalf("accessed at %s before the first message", at)
		}
		time.Sleep(time.Hour)
		send(t, q, "a")
		if at := q.Accessed(); time.Since(at) > time.Millisecond {
			t.Fatalf("accessed at %s, and it is %s", at, time.Now())
		}
	})
}

// What was deleted because it was idle stays deleted after a restart.
func TestDeletedIdleStaysDeleted(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, 1<<20)
	q, err := b.CreateQueue("orders", &QueueConfig{DeleteIdle: 5 * time.Minute})
	must(t, err)
	send(t, q, "a")
	q.use.last.Store(time.Now().Add(-time.Hour).UnixMilli())
	if _, ok := b.Queue("orders"); ok {
		t.Fatal("the idle queue is still there")
	}
	must(t, b.Close())
	b = open(t, dir, 1<<20)
	defer b.Close()
	if _, ok := b.Queue("orders"); ok {
		t.Fatal("the deleted queue is there again")
	}
}
