package servicebus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func broker(t *testing.T) *Broker {
	t.Helper()
	b, err := Open("", nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func queue(t *testing.T, cfg *QueueConfig) *Queue {
	t.Helper()
	q, err := broker(t).CreateQueue("orders", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func send(t *testing.T, q *Queue, payloads ...string) {
	t.Helper()
	ms := make([]Message, len(payloads))
	for i, p := range payloads {
		ms[i].Payload = []byte(p)
	}
	if err := q.Send(ms); err != nil {
		t.Fatal(err)
	}
}

// receive receives messages, which must have these payloads, and returns them.
func receive(t *testing.T, s *Store, want ...string) []Locked {
	t.Helper()
	got, err := s.Receive(100, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var payloads []string
	for _, l := range got {
		payloads = append(payloads, string(l.Payload))
	}
	if !slices.Equal(payloads, want) {
		t.Fatalf("received %.40q, not %q", payloads, want)
	}
	return got
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func counts(t *testing.T, q *Queue, active, dead int64) {
	t.Helper()
	if c := q.Counts(); c.Active != active || c.DeadLetters != dead {
		t.Fatalf("%d active, %d dead letters; not %d and %d", c.Active, c.DeadLetters, active, dead)
	}
}

func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue(t, nil)
		s := q.Messages()
		send(t, q, "a", "b", "c", "d")
		got := receive(t, s, "a", "b", "c", "d")
		receive(t, s)
		must(t, s.Complete(got[0].Token))
		must(t, s.Abandon(got[1].Token, func(p []byte) ([]byte, error) { return append([]byte("edited "), p...), nil }))
		must(t, s.Release(got[2].Token))
		must(t, s.DeadLetter(got[3].Token, "odd", "very odd", nil))
		counts(t, q, 2, 1)
		for _, l := range got {
			if err := s.Complete(l.Token); !errors.Is(err, ErrLockLost) {
				t.Fatalf("settled %s a second time: %v", l.Payload, err)
			}
		}
		again := receive(t, s, "edited b", "c")
		if again[0].Deliveries != 1 || again[1].Deliveries != 0 {
			t.Fatalf("deliveries before: %d of the abandoned, %d of the released message", again[0].Deliveries, again[1].Deliveries)
		}
		dead := receive(t, q.DeadLetters(), "d")[0]
		if dead.Reason != "odd" || dead.Description != "very odd" || dead.Sequence != got[3].Sequence || dead.Deliveries != 0 {
			t.Fatalf("dead letter %+v", dead.Message)
		}
		if err := s.Complete(dead.Token); !errors.Is(err, ErrLockLost) {
			t.Fatalf("completed a dead letter by its queue: %v", err)
		}
		must(t, q.DeadLetters().Complete(dead.Token))
		counts(t, q, 2, 0)
		if c := q.Counts(); c.Bytes != int64(len("edited b")+len("c")) {
			t.Fatalf("%d bytes", c.Bytes)
		}
	})
}

func TestLockExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue(t, &QueueConfig{Lock: 30 * time.Second})
		s := q.Messages()
		send(t, q, "a")
		first := receive(t, s, "a")[0]
		if d := time.Until(first.LockedUntil); d > 30*time.Second || d < 29*time.Second {
			t.Fatalf("locked for %s", d)
		}
		time.Sleep(29 * time.Second)
		until, err := s.Renew(first.Token)
		if err != nil || time.Until(until) < 29*time.Second {
			t.Fatalf("renewed until %s: %v", until, err)
		}
		time.Sleep(29 * time.Second)
		receive(t, s)
		start := time.Now()
		must(t, s.Wait(t.Context()))
		if d := time.Since(start); d > time.Second {
			t.Fatalf("waited %s for the lock to expire", d)
		}
		if _, err := s.Renew(first.Token); !errors.Is(err, ErrLockLost) {
			t.Fatalf("renewed a lost lock: %v", err)
		}
		second := receive(t, s, "a")[0]
		if second.Deliveries != 1 || second.Token == first.Token {
			t.Fatalf("%d deliveries before", second.Deliveries)
		}
		if err := s.Complete(first.Token); !errors.Is(err, ErrLockLost) {
			t.Fatalf("completed by a lost lock: %v", err)
		}
		must(t, s.Complete(second.Token))
	})
}

func TestMaxDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue(t, &QueueConfig{MaxDeliveries: 3})
		s := q.Messages()
		send(t, q, "poison", "good")
		for i := range 3 {
			got := receive(t, s, "poison", "good")
			must(t, s.Release(got[1].Token))
			if i == 1 {
				time.Sleep(time.Minute) // an expired lock counts as a delivery, too
				continue
			}
			must(t, s.Abandon(got[0].Token, nil))
		}
		counts(t, q, 1, 1)
		dead := q.DeadLetters()
		for range 5 { // a dead letter has no maximum delivery count
			l := receive(t, dead, "poison")[0]
			if l.Reason != ReasonDeliveries || l.Deliveries != 3 {
				t.Fatalf("dead letter %+v", l.Message)
			}
			must(t, dead.Abandon(l.Token, nil))
		}
	})
}

func TestTimeToLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue(t, &QueueConfig{TTL: time.Hour, KeepExpired: true, Lock: time.Minute})
		must(t, q.Send([]Message{{Payload: []byte("short"), TTL: time.Minute}, {Payload: []byte("long"), TTL: 48 * time.Hour}, {Payload: []byte("held"), TTL: 90 * time.Second}}))
		time.Sleep(time.Minute)
		counts(t, q, 2, 1)
		got := receive(t, q.Messages(), "long", "held")
		if got[0].TTL != time.Hour {
			t.Fatalf("the message lives %s, longer than its queue lets it", got[0].TTL)
		}
		time.Sleep(45 * time.Second) // held has expired, but is locked
		counts(t, q, 2, 1)
		must(t, q.Messages().Abandon(got[1].Token, nil))
		must(t, q.Messages().Release(got[0].Token))
		start := time.Now()
		for _, dead := range receive(t, q.DeadLetters(), "short", "held") {
			if dead.Reason != ReasonExpired {
				t.Fatalf("reason %q", dead.Reason)
			}
			must(t, q.DeadLetters().Complete(dead.Token))
		}
		must(t, q.DeadLetters().Wait(t.Context()))
		if d := time.Since(start); d < 58*time.Minute || d > time.Hour {
			t.Fatalf("the other message became a dead letter after %s", d)
		}
		must(t, q.Configure(nil))
		must(t, q.Send([]Message{{Payload: []byte("dropped"), TTL: time.Second}}))
		time.Sleep(time.Second)
		receive(t, q.Messages())
		counts(t, q, 0, 1)
	})
}

func TestPeekAndBounds(t *testing.T) {
	q := queue(t, &QueueConfig{MaxBytes: 10})
	send(t, q, "aaa", "bbb", "ccc")
	if err := q.Send([]Message{{Payload: []byte("dd")}}); !errors.Is(err, ErrFull) {
		t.Fatalf("sent more than fits: %v", err)
	}
	got, err := q.Messages().Receive(2, 3)
	if err != nil || len(got) != 1 {
		t.Fatalf("received %d messages of more than 3 bytes: %v", len(got), err)
	}
	for _, c := range []struct {
		first    int64
		n, bytes int
		want     string
	}{{0, 10, 100, "[aaa bbb ccc]"}, {2, 1, 100, "[bbb]"}, {1, 10, 5, "[aaa]"}, {1, 10, 6, "[aaa bbb]"}, {4, 10, 100, "[]"}} {
		ms, err := q.Messages().Peek(c.first, c.n, c.bytes, nil)
		must(t, err)
		var all []string
		for _, m := range ms {
			all = append(all, string(m.Payload))
		}
		if s := fmt.Sprint(all); s != c.want {
			t.Fatalf("peeked %s, not %s", s, c.want)
		}
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := broker(t)
		q, err := b.CreateQueue("orders", nil)
		must(t, err)
		results := make(chan error)
		wait := func(ctx context.Context) { go func() { results <- q.Messages().Wait(ctx) }() }
		wait(t.Context())
		synctest.Wait()
		send(t, q, "a")
		must(t, <-results)
		receive(t, q.Messages(), "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wait(ctx)
		if err := <-results; !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		wait(t.Context())
		synctest.Wait()
		must(t, b.Delete("Orders"))
		if err := <-results; !errors.Is(err, ErrDeleted) {
			t.Fatal(err)
		}
		if err := q.Send(nil); !errors.Is(err, ErrDeleted) {
			t.Fatal(err)
		}
	})
}

func TestTopics(t *testing.T) {
	b := broker(t)
	topic, err := b.CreateTopic("news", nil)
	must(t, err)
	must(t, topic.Send([]Message{{Payload: []byte("nobody listens")}}))
	one, err := topic.Subscribe("one", nil)
	must(t, err)
	two, err := topic.Subscribe("two", nil)
	must(t, err)
	must(t, topic.Send([]Message{{Payload: []byte("a")}}))
	must(t, one.Messages().Complete(receive(t, one.Messages(), "a")[0].Token))
	receive(t, two.Messages(), "a")
	for _, err := range []error{
		func() error { _, err := b.CreateQueue("NEWS", nil); return err }(),
		func() error { _, err := b.CreateTopic("news", nil); return err }(),
		func() error { _, err := topic.Subscribe("ONE", nil); return err }(),
	} {
		if !errors.Is(err, ErrExists) {
			t.Fatal(err)
		}
	}
	must(t, topic.Unsubscribe("one"))
	if err := topic.Unsubscribe("one"); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	must(t, b.Delete("news"))
	if _, err := two.Messages().Receive(1, 1); !errors.Is(err, ErrDeleted) {
		t.Fatal(err)
	}
	for _, name := range []string{"", "/a", "a/", "a//b", "a b", "ä", string(make([]byte, 300))} {
		if _, err := b.CreateQueue(name, nil); err == nil {
			t.Fatalf("created a queue %q", name)
		}
	}
}

// TestModel does random operations on a queue in virtual time: no message may be lost
// or locked by two receivers at once.
func TestModel(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			q := queue(t, &QueueConfig{Lock: 10 * time.Second, MaxDeliveries: 4})
			sent, completed := 0, map[string]bool{}
			held := map[string]Locked{}
			for range 400 {
				switch r.IntN(7) {
				case 0, 1:
					send(t, q, fmt.Sprint(sent))
					sent++
				case 2, 3:
					got, err := q.Messages().Receive(1+r.IntN(3), 1<<20)
					must(t, err)
					for _, l := range got {
						if old, ok := held[string(l.Payload)]; ok && time.Now().Before(old.LockedUntil) || completed[string(l.Payload)] {
							t.Fatalf("seed %d: message %s was handed out twice", seed, l.Payload)
						}
						held[string(l.Payload)] = l
					}
				case 4:
					time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
				default:
					for p, l := range held {
						lost := !time.Now().Before(l.LockedUntil)
						var err error
						switch r.IntN(4) {
						case 0:
							if err = q.Messages().Complete(l.Token); err == nil {
								completed[p] = true
							}
						case 1:
							err = q.Messages().Abandon(l.Token, nil)
						case 2:
							err = q.Messages().Release(l.Token)
						case 3:
							err = q.Messages().DeadLetter(l.Token, "", "", nil)
						}
						if lost != errors.Is(err, ErrLockLost) {
							t.Fatalf("seed %d: settling with the lock lost=%t: %v", seed, lost, err)
						}
						delete(held, p)
						break
					}
				}
			}
			if c := q.Counts(); int(c.Active+c.DeadLetters)+len(completed) != sent {
				t.Fatalf("seed %d: %d sent, %d active, %d dead letters, %d completed", seed, sent, c.Active, c.DeadLetters, len(completed))
			}
			ms, err := q.DeadLetters().Peek(0, 1000, 1<<20, nil)
			must(t, err)
			if !slices.IsSortedFunc(ms, func(a, b Message) int { return int(a.Sequence - b.Sequence) }) {
				t.Fatalf("seed %d: dead letters are out of order", seed)
			}
		})
	}
}
