package servicebus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func inSession(id string, payloads ...string) []Message {
	ms := make([]Message, len(payloads))
	for i, p := range payloads {
		ms[i] = Message{Payload: []byte(p), Session: id, InSession: true}
	}
	return ms
}

func accept(t *testing.T, q *Queue, id string) *Session {
	t.Helper()
	h, err := q.Messages().AcceptSession(id)
	must(t, err)
	return h
}

// receiveOf receives messages of a session, which must have these payloads.
func receiveOf(t *testing.T, h *Session, want ...string) []Locked {
	t.Helper()
	got, err := h.Receive(100, 1<<20)
	must(t, err)
	var payloads []string
	for _, l := range got {
		payloads = append(payloads, string(l.Payload))
	}
	if !slices.Equal(payloads, want) {
		t.Fatalf("received %q, not %q", payloads, want)
	}
	return got
}

func TestSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue(t, &QueueConfig{Sessions: true, Lock: time.Minute, MaxDeliveries: 2})
		s := q.Messages()
		if err := q.Send([]Message{{Payload: []byte("a")}}); !errors.Is(err, ErrSessionNeeded) {
			t.Fatalf("sent without a session: %v", err)
		}
		if _, err := s.Receive(1, 1); !errors.Is(err, ErrSessionNeeded) {
			t.Fatalf("received without a session: %v", err)
		}
		must(t, q.Send(inSession("", "e1"))) // the empty id is valid
		must(t, q.Send(inSession("red", "r1", "r2")))
		empty, err := s.AcceptNext(t.Context())
		if err != nil || empty.ID() != "" {
			t.Fatalf("the next session is %q: %v", empty.ID(), err)
		}
		red, err := s.AcceptNext(t.Context())
		if err != nil || red.ID() != "red" {
			t.Fatalf("the next session is %q: %v", red.ID(), err)
		}
		if _, err := s.AcceptSession("red"); !errors.Is(err, ErrSessionLocked) {
			t.Fatalf("accepted a session that is held: %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.AcceptNext(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("there is another session: %v", err)
		}
		got := receiveOf(t, red, "r1", "r2")
		must(t, s.Complete(got[0].Token))
		must(t, s.SetSessionState("red", []byte("state")).Wait())
		time.Sleep(50 * time.Second)
		until, err := s.RenewSession("red")
		if err != nil || time.Until(until) < 59*time.Second {
			t.Fatalf("renewed until %s: %v", until, err)
		}
		if same, err := s.Renew(got[1].Token); err != nil || !same.Equal(until) { // the message's lock is the session's
			t.Fatalf("renewed until %s: %v", same, err)
		}
		watched := make(chan error)
		go func() { watched <- red.WaitLost(t.Context()) }()
		synctest.Wait()
		start := time.Now()
		if err := <-watched; !errors.Is(err, ErrSessionLost) || time.Since(start) > time.Minute {
			t.Fatalf("lost after %s: %v", time.Since(start), err)
		}
		for what, err := range map[string]error{
			"complete": s.Complete(got[1].Token), "state": s.SetSessionState("red", nil).Wait(),
			"receive": func() error { _, err := red.Receive(1, 1); return err }(), "wait": red.Wait(t.Context()),
		} {
			if !errors.Is(err, ErrSessionLost) {
				t.Errorf("%s with a lost session: %v", what, err)
			}
		}
		again := accept(t, q, "red")
		if state, err := s.SessionState("red"); err != nil || string(state) != "state" {
			t.Fatalf("state %q: %v", state, err)
		}
		if m := receiveOf(t, again, "r2")[0]; m.Deliveries != 1 {
			t.Fatalf("%d deliveries before", m.Deliveries)
		}
		again.Release() // the second failed delivery
		counts(t, q, 1, 1)
		if ids := s.Sessions(); !slices.Equal(ids, []string{"", "red"}) {
			t.Fatalf("sessions %q", ids)
		}
		for range 100 { // unused sessions take no memory
			h := accept(t, q, fmt.Sprint("visited", time.Now()))
			h.Release()
		}
		if n := len(s.sessions); n != 2 {
			t.Fatalf("%d sessions are kept", n)
		}
	})
}

func TestScheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := broker(t)
		q, err := b.CreateQueue("q", nil)
		must(t, err)
		topic, err := b.CreateTopic("t", nil)
		must(t, err)
		sub, err := topic.Subscribe("s", nil)
		must(t, err)
		for _, to := range []interface {
			Submit([]Message) ([]int64, Receipt)
			Cancel([]int64) Receipt
		}{q, topic} {
			from := q
			if to == any(topic) {
				from = sub
			}
			at := time.Now().Add(time.Hour)
			numbers, r := to.Submit([]Message{{Payload: []byte("later"), Scheduled: at, TTL: time.Minute}, {Payload: []byte("never"), Scheduled: at}, {Payload: []byte("now")}})
			must(t, r.Wait())
			first := receive(t, from.Messages(), "now")[0]
			must(t, from.Messages().Complete(first.Token))
			must(t, to.Cancel(numbers[1:2]).Wait())
			for _, n := range numbers[1:] { // cancelled already; not scheduled
				if err := to.Cancel([]int64{n}).Wait(); !errors.Is(err, ErrNotFound) {
					t.Fatalf("cancelled %d: %v", n, err)
				}
			}
			must(t, from.Messages().Wait(t.Context()))
			if early := time.Until(at); early > 0 || early < -time.Second {
				t.Fatalf("came %s early", early)
			}
			m := receive(t, from.Messages(), "later")[0]
			if m.Sequence <= first.Sequence || m.Enqueued.Before(at.Add(-time.Millisecond)) || !m.Expires.Equal(m.Enqueued.Add(time.Minute)) || m.State != Active {
				t.Fatalf("received %+v", m.Message)
			}
			must(t, from.Messages().Complete(m.Token))
			counts(t, from, 0, 0)
		}
	})
}

func TestDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue(t, &QueueConfig{Lock: time.Minute, TTL: time.Hour})
		s := q.Messages()
		send(t, q, "a", "b")
		for _, l := range receive(t, s, "a", "b") {
			must(t, s.Settle(l.Token, Settlement{Outcome: Defer}).Wait())
		}
		receive(t, s)
		time.Sleep(2 * time.Hour) // deferred messages don't expire
		got, err := s.ReceiveDeferred([]int64{2}, "")
		if err != nil || len(got) != 1 || string(got[0].Payload) != "b" {
			t.Fatalf("received %d: %v", len(got), err)
		}
		for _, numbers := range [][]int64{{2}, {3}, {1, 1}, {1, 3}} {
			if _, err := s.ReceiveDeferred(numbers, ""); !errors.Is(err, ErrNotFound) {
				t.Fatalf("received %d: %v", numbers, err)
			}
		}
		time.Sleep(2 * time.Minute) // the locks expire, and the messages stay deferred
		receive(t, s)
		if got, err = s.ReceiveDeferred([]int64{1, 2}, ""); err != nil || len(got) != 2 || got[1].Deliveries != 1 {
			t.Fatalf("received %d: %v", len(got), err)
		}
		must(t, s.Complete(got[0].Token))
		must(t, s.DeadLetter(got[1].Token, "", "", nil))
		counts(t, q, 0, 1)
	})
}
