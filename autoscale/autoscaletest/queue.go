package autoscaletest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// Queue is a queue under test.
type Queue struct {
	autoscale.Queue
	// DeadLetters returns the dead letters.
	DeadLetters func(ctx context.Context) ([]autoscale.DeadLetter, error)
}

const (
	// queueLock is the shortest lock time that all services support.
	queueLock = time.Second
	// longLock does not expire within a check.
	longLock = suite.Patience
)

// TestQueue is the conformance suite of [autoscale.Queue]. open must return an empty
// queue with the given lock time, for each call a new one. The checks run in parallel,
// because most wait for locks to expire.
func TestQueue(t *testing.T, open func(t testing.TB, lock time.Duration) Queue) {
	t.Run("checks", func(t *testing.T) { // ends when all checks have ended
		for _, c := range queueChecks {
			t.Run(c.Name, func(t *testing.T) {
				if c.lock == queueLock {
					need.RealTime(t)
				}
				t.Parallel()
				c.Run(t, open(t, c.lock))
			})
		}
	})
}

var queueChecks = []struct {
	suite.Check[Queue]
	lock time.Duration
}{
	{suite.Check[Queue]{Name: "delivers bodies as they are", Run: queueBodies}, longLock},
	{suite.Check[Queue]{Name: "a deleted message is gone", Run: queueDelete}, queueLock},
	{suite.Check[Queue]{Name: "a received message is hidden, then delivered again", Run: queueAgain}, queueLock},
	{suite.Check[Queue]{Name: "extending keeps it hidden", Run: queueExtend}, queueLock},
	{suite.Check[Queue]{Name: "a lost lock cannot be extended", Run: queueLost}, queueLock},
	{suite.Check[Queue]{Name: "a message received again survives the first receiver's delete", Run: queueLateDelete}, queueLock},
	{suite.Check[Queue]{Name: "dead letter: kept with the reason, never received", Run: queueAside}, queueLock},
	{suite.Check[Queue]{Name: "receiving waits for a message", Run: queueWaits}, longLock},
	{suite.Check[Queue]{Name: "receiving ends with its context", Run: queueEnds}, longLock},
	{suite.Check[Queue]{Name: "no more than asked for", Run: queueMost}, longLock},
	{suite.Check[Queue]{Name: "several receivers share the messages", Run: queueShare}, longLock},
}

// received waits for messages, up to most.
func received(t testing.TB, q autoscale.Queue, most int) []autoscale.Message {
	t.Helper()
	messages, err := q.Receive(suite.Context(t), most)
	suite.NoError(t, "receive", err)
	if len(messages) == 0 || len(messages) > most {
		t.Fatalf("received %d messages, asked for 1 to %d", len(messages), most)
	}
	return messages
}

// quiet fails the test if a message is delivered within a moment.
func quiet(t testing.TB, q autoscale.Queue, why string) {
	t.Helper()
	hidden(t, q, why, func() bool { return false })
}

// hidden is quiet, but returns false instead if the lock of the message may have expired.
func hidden(t testing.TB, q autoscale.Queue, why string, expired func() bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*suite.Moment)
	defer cancel()
	messages, err := q.Receive(ctx, 1)
	switch {
	case len(messages) > 0 && expired():
		return false
	case len(messages) > 0:
		t.Errorf("received %q: %s", messages[0].Body, why)
	case !errors.Is(err, context.DeadlineExceeded):
		t.Errorf("receive: got %v, want the context's error", err)
	}
	return true
}

func queueBodies(t testing.TB, q Queue) {
	want := []string{`{"a":1}`, "", "Grüße ✈ <&> \" '", "\x00\x01\xff\xfe", `{"long":"` + fmt.Sprintf("%030000d", 7) + `"}`}
	for _, body := range want {
		suite.NoError(t, "send", q.Send(suite.Context(t), []byte(body)))
	}
	suite.NoError(t, "send nothing", q.Send(suite.Context(t)))
	var got []string
	for len(got) < len(want) {
		for _, m := range received(t, q, 10) {
			if m.Deliveries != 1 || m.ID == "" {
				t.Errorf("message %q: deliveries %d, id %q", m.Body, m.Deliveries, m.ID)
			}
			got = append(got, string(m.Body))
			suite.NoError(t, "delete", q.Delete(suite.Context(t), &m))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %.60q, want %.60q", got, want)
	}
}

func queueDelete(t testing.TB, q Queue) {
	suite.NoError(t, "send", q.Send(suite.Context(t), []byte("a")))
	m := received(t, q, 1)[0]
	suite.NoError(t, "delete", q.Delete(suite.Context(t), &m))
	suite.NoError(t, "delete again", q.Delete(suite.Context(t), &m))
	<-time.After(queueLock + 2*suite.Moment)
	quiet(t, q, "it was deleted")
}

func queueAgain(t testing.TB, q Queue) {
	suite.NoError(t, "send", q.Send(suite.Context(t), []byte("a")))
	var first autoscale.Message
	for held := false; !held; { // again if the machine stood still
		began := time.Now()
		first = received(t, q, 1)[0]
		held = hidden(t, q, "it is locked", func() bool { return time.Since(began) >= queueLock })
	}
	second := received(t, q, 1)[0]
	if second.Deliveries > first.Deliveries+1 {
		// The service may have delivered it to the receive that was given up, after the lock had
		// expired. Since then none was given up.
		first, second = second, received(t, q, 1)[0]
	}
	if second.ID != first.ID || second.Deliveries != first.Deliveries+1 || string(second.Body) != "a" {
		t.Errorf("came again as %q %q, delivery %d; want %q \"a\", %d", second.ID, second.Body, second.Deliveries, first.ID, first.Deliveries+1)
	}
}

func queueExtend(t testing.TB, q Queue) {
	suite.NoError(t, "send", q.Send(suite.Context(t), []byte("a")))
	m, held := extended(t, q)
	for !held {
		m, held = extended(t, q)
	}
	suite.NoError(t, "delete with the extended lock", q.Delete(suite.Context(t), m))
	<-time.After(queueLock + 2*suite.Moment)
	quiet(t, q, "it was deleted")
}

// extended receives a message and extends its lock for longer than that lasts.
// It is not held if the machine stood still for so long that it was lost.
func extended(t testing.TB, q Queue) (m *autoscale.Message, held bool) {
	last := time.Now()
	m = &received(t, q, 1)[0]
	for range 6 {
		<-time.After(queueLock / 4)
		began := time.Now()
		err := q.Extend(suite.Context(t), m)
		if errors.Is(err, autoscale.ErrLockLost) && time.Since(last) >= queueLock {
			return m, false
		}
		suite.NoError(t, "extend", err)
		last = began
	}
	return m, hidden(t, q, "its lock has been extended", func() bool { return time.Since(last) >= queueLock })
}

func queueLost(t testing.TB, q Queue) {
	suite.NoError(t, "send", q.Send(suite.Context(t), []byte("a")))
	first := received(t, q, 1)[0]
	extendAgain(t, q, func() {
		suite.ErrorIs(t, "extend by the first receiver", q.Extend(suite.Context(t), &first), autoscale.ErrLockLost)
	})
}

// extendAgain receives a message that was received before, and extends its lock after do. It
// repeats that a few times if the lock is lost, because the machine may have stood still.
func extendAgain(t testing.TB, q autoscale.Queue, do func()) {
	t.Helper()
	err := autoscale.ErrLockLost
	for try := 0; try < 5 && errors.Is(err, autoscale.ErrLockLost); try++ {
		m := received(t, q, 1)[0]
		do()
		err = q.Extend(suite.Context(t), &m)
	}
	suite.NoError(t, "extend by the second receiver", err)
}

func queueLateDelete(t testing.TB, q Queue) {
	suite.NoError(t, "send", q.Send(suite.Context(t), []byte("a")))
	first := received(t, q, 1)[0]
	extendAgain(t, q, func() { suite.NoError(t, "late delete", q.Delete(suite.Context(t), &first)) })
}

func queueAside(t testing.TB, q Queue) {
	suite.NoError(t, "send", q.Send(suite.Context(t), []byte("bad"), []byte("good")))
	for left := 2; left > 0; {
		for _, m := range received(t, q, 2) {
			left--
			if string(m.Body) == "bad" {
				suite.NoError(t, "dead letter", q.DeadLetter(suite.Context(t), &m, "not JSON: 'b'"))
			} else {
				suite.NoError(t, "delete", q.Delete(suite.Context(t), &m))
			}
		}
	}
	<-time.After(queueLock + 2*suite.Moment)
	quiet(t, q, "it is a dead letter")
	aside, err := q.DeadLetters(suite.Context(t))
	suite.NoError(t, "dead letters", err)
	if len(aside) != 1 || string(aside[0].Body) != "bad" || aside[0].Reason != "not JSON: 'b'" {
		t.Errorf("the dead letters are %q, want \"bad\" with its reason", aside)
	}
}

func queueWaits(t testing.TB, q Queue) {
	got := suite.Spawn(t, func() string {
		messages, err := q.Receive(suite.Context(t), 1)
		if err != nil {
			return err.Error()
		}
		return string(messages[0].Body)
	})
	if early, came := suite.Settled(got); came {
		t.Fatalf("received %q of an empty queue", early)
	}
	suite.NoError(t, "send", q.Send(suite.Context(t), []byte("a")))
	if body := <-got; body != "a" {
		t.Errorf("received %q, want \"a\"", body)
	}
}

func queueEnds(t testing.TB, q Queue) {
	ctx, cancel := context.WithCancel(t.Context())
	over := suite.Spawn(t, func() error {
		_, err := q.Receive(ctx, 1)
		return err
	})
	cancel()
	suite.ErrorIs(t, "receive", <-over, context.Canceled)
}

func queueMost(t testing.TB, q Queue) {
	suite.NoError(t, "send", q.Send(suite.Context(t), []byte("1"), []byte("2"), []byte("3")))
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

func queueShare(t testing.TB, q Queue) {
	const messages, receivers = 60, 3
	for i := range messages {
		suite.NoError(t, "send", q.Send(suite.Context(t), fmt.Appendf(nil, "%d", i)))
	}
	ctx, cancel := context.WithCancel(suite.Context(t))
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
