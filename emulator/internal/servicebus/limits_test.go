package servicebus

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// Receivers can't grow a queue beyond its maximum size: not by edits, not by reasons of
// dead letters, not by the states of sessions.
func TestReceiversKeepToTheMaximumSize(t *testing.T) {
	const limit = 1000
	grow := func(payload []byte) ([]byte, error) { return bytes.Repeat([]byte("x"), len(payload)+400), nil }
	within := func(q *Queue) {
		t.Helper()
		if c := q.Counts(); c.Bytes > limit {
			t.Fatalf("the queue holds %d bytes, and at most %d are allowed", c.Bytes, limit)
		}
	}
	q := queue(t, &QueueConfig{MaxBytes: limit, MaxDeliveries: 1000})
	send(t, q, "message")
	for _, how := range []Outcome{Abandon, Defer, DeadLetter} {
		if how == Defer {
			continue // it would hide the message from Receive below
		}
		refused := false
		for range 5 {
			got, err := q.Messages().Receive(1, 1<<20)
			must(t, err)
			if len(got) == 0 {
				break
			}
			err = q.Messages().Settle(got[0].Token, Settlement{Outcome: how, Edit: grow}).Wait()
			within(q)
			if errors.Is(err, ErrFull) {
				refused = true
				must(t, q.Messages().Abandon(got[0].Token, nil)) // it is still locked
			} else {
				must(t, err)
			}
		}
		if !refused {
			t.Fatalf("outcome %d: no edit was refused", how)
		}
	}
	got, err := q.Messages().Receive(1, 1<<20)
	must(t, err)
	must(t, q.Messages().DeadLetter(got[0].Token, strings.Repeat("r", 4000), strings.Repeat("d", 4000), nil))
	within(q)
	counts(t, q, 0, 1)

	sessions := queue(t, &QueueConfig{MaxBytes: limit, Sessions: true})
	for _, id := range []string{"a", "b", "c"} {
		accept(t, sessions, id)
		err := sessions.Messages().SetSessionState(id, make([]byte, 400)).Wait()
		if (id == "c") != errors.Is(err, ErrFull) {
			t.Fatalf("state of session %s: %v", id, err)
		}
		within(sessions)
	}
	must(t, sessions.Messages().SetSessionState("a", nil).Wait())
	must(t, sessions.Messages().SetSessionState("c", make([]byte, 400)).Wait())
	within(sessions)
}

// What counts for the maximum size is the same after a restart, and nothing is left of
// it once everything is removed.
func TestSizeSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, 1<<20)
	q, err := b.CreateQueue("orders", &QueueConfig{Sessions: true})
	must(t, err)
	must(t, q.Send(inSession("a", "one", "two")))
	h := accept(t, q, "a")
	first := receiveOf(t, h, "one", "two")[0]
	must(t, q.Messages().DeadLetter(first.Token, "reason", "description", nil))
	must(t, q.Messages().SetSessionState("a", []byte("state")).Wait())
	size := q.Counts().Bytes
	if want := int64(len("one" + "two" + "reason" + "description" + "state")); size != want {
		t.Fatalf("%d bytes, not %d", size, want)
	}
	must(t, b.Close())
	b = open(t, dir, 1<<20)
	defer b.Close()
	q, _ = b.Queue("orders")
	if again := q.Counts().Bytes; again != size {
		t.Fatalf("%d bytes after a restart, %d before", again, size)
	}
	h = accept(t, q, "a")
	must(t, q.Messages().Complete(receiveOf(t, h, "two")[0].Token))
	must(t, q.Messages().SetSessionState("a", nil).Wait())
	must(t, q.DeadLetters().Complete(receive(t, q.DeadLetters(), "one")[0].Token))
	if left := q.Counts().Bytes; left != 0 {
		t.Fatalf("%d bytes in an empty queue", left)
	}
}

// A reason that is too long is cut between characters.
func TestLongReasons(t *testing.T) {
	q := queue(t, nil)
	send(t, q, "a")
	long := "x" + strings.Repeat("é", 5000)
	must(t, q.Messages().DeadLetter(receive(t, q.Messages(), "a")[0].Token, long, long, nil))
	m := receive(t, q.DeadLetters(), "a")[0].Message
	for _, text := range []string{m.Reason, m.Description} {
		if n := utf8.RuneCountInString(text); !utf8.ValidString(text) || n != 4096 || !strings.HasPrefix(long, text) {
			t.Fatalf("a reason of 5001 characters was cut to %d, valid: %t", n, utf8.ValidString(text))
		}
	}
}
