package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// Silence makes the server of a driver silent: requests get no answer, and neither does an attempt
// to connect, until end is called. Nothing fails at once, as when a network drops packets. Where a
// driver has no server, another process holds what its writes need. A nil Silence, or a nil end,
// leaves out the case that needs it.
type Silence func(t testing.TB) (end func())

// request is a call of a driver that is made while its server is silent.
type request struct {
	name string
	send func(ctx context.Context) error
	// reads: it may succeed, because a driver may read without what its writes need.
	reads bool
}

// late is how long after its deadline a request may return, on a busy machine.
const late = 10 * time.Second

// run makes requests with a deadline, one after the other, while the server is silent. Each must
// fail when its deadline comes, with an error that blames neither handler nor owner.
func (s Silence) run(t testing.TB, requests ...request) {
	t.Helper()
	if s == nil {
		return
	}
	end := s(t)
	if end == nil {
		return
	}
	end = sync.OnceFunc(end)
	t.Cleanup(end)
	for _, r := range requests {
		ctx, cancel := context.WithTimeout(t.Context(), 4*suite.Moment)
		err, returned := returns(t, end, func() error { return r.send(ctx) })
		cancel()
		switch {
		case !returned:
			t.Fatalf("%s of a silent server: has not returned %v after its deadline", r.name, late)
		case err == nil && !r.reads:
			t.Errorf("%s of a silent server: no error", r.name)
		case errors.Is(err, driver.ErrFenced) || isHandlerError(err):
			t.Errorf("%s of a silent server: got %T %v, want that the server did not answer", r.name, err, err)
		}
	}
	end()
}

// returns runs a request and reports whether it has returned late after its deadline. If it has
// not, it ends the silence, so that the test can end.
func returns(t testing.TB, end func(), send func() error) (err error, returned bool) {
	over := suite.Spawn(t, send)
	timer := time.NewTimer(late)
	defer timer.Stop()
	select {
	case err := <-over:
		return err, true
	case <-timer.C:
		end()
		return nil, false
	}
}

// again repeats a request until it succeeds, as the engine does after an outage.
func again(t testing.TB, what string, send func(ctx context.Context) error) {
	t.Helper()
	var err error
	defer func() {
		if err != nil {
			t.Errorf("%s: the last error: %v", what, err)
		}
	}()
	suite.Eventually(t, what, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err = send(ctx)
		return err == nil
	})
}

// silenceOfTx is about a database that does not answer.
func silenceOfTx[Tx any]() suite.Check[TxHarness[Tx]] {
	return suite.Check[TxHarness[Tx]]{Name: "SilentServer", Run: func(t testing.TB, h TxHarness[Tx]) {
		a := h.begin(t)
		step := driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}
		h.Silence.run(t,
			request{name: "commit", send: func(ctx context.Context) error { return h.Store.Commit(ctx, step, h.put("10")) }},
			request{name: "record", send: func(ctx context.Context) error {
				return h.Store.RecordAttempt(ctx, a, positionAt(9), driver.AttemptRecord{Sequence: 10, Attempts: 1})
			}},
			request{name: "due", reads: true, send: func(ctx context.Context) error { _, err := h.Store.Due(ctx, testGroup, "0", 10); return err }},
			request{name: "read dedup", reads: true, send: func(ctx context.Context) error { _, err := h.Store.ReadDedup(ctx, testGroup, "0"); return err }},
			request{name: "read", reads: true, send: func(ctx context.Context) error { _, err := h.Store.Read(ctx, testGroup); return err }},
			request{name: "leave", send: func(ctx context.Context) error { return h.Store.Leave(ctx, a) }},
			request{name: "claim", send: func(ctx context.Context) error { _, err := h.Store.Claim(ctx, a, incarnation); return err }},
			request{name: "reset", send: func(ctx context.Context) error {
				_, err := h.Store.Reset(ctx, testGroup, "1", incarnation, positionAt(4), "set")
				return err
			}},
		)
		// Whatever arrives late is an earlier owner's.
		b := leaseOf("0", "b", 2)
		var claimed driver.Checkpoint
		again(t, "claim after the silence", func(ctx context.Context) (err error) {
			claimed, err = h.Store.Claim(ctx, b, incarnation)
			return err
		})
		if claimed.Position != positionAt(9) {
			t.Errorf("claimed at %+v after the silence, want %+v", claimed.Position, positionAt(9))
		}
		again(t, "commit after the silence", func(ctx context.Context) error {
			return h.Store.Commit(ctx, driver.Step{Lease: b, From: positionAt(9), To: positionAt(10)}, h.put("10"))
		})
		h.wantEffects(t, "10")
	}}
}

// heldFromOutside is about a checkpoint that another program has locked.
func heldFromOutside[Tx any]() suite.Check[TxHarness[Tx]] {
	return suite.Check[TxHarness[Tx]]{Name: "LockedFromOutside", Run: func(t testing.TB, h TxHarness[Tx]) {
		a := h.begin(t)
		step := driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}
		h.Lock.run(t,
			request{name: "commit", send: func(ctx context.Context) error { return h.Store.Commit(ctx, step, h.put("10")) }},
			request{name: "record", send: func(ctx context.Context) error {
				return h.Store.RecordAttempt(ctx, a, positionAt(9), driver.AttemptRecord{Sequence: 10, Attempts: 1})
			}},
			request{name: "leave", send: func(ctx context.Context) error { return h.Store.Leave(ctx, a) }},
			request{name: "read", reads: true, send: func(ctx context.Context) error { _, err := h.Store.Read(ctx, testGroup); return err }},
		)
		h.wantEffects(t)
		again(t, "commit after the lock", func(ctx context.Context) error {
			return h.Store.Commit(ctx, step, h.put("10"))
		})
		h.wantEffects(t, "10")
		h.wantPosition(t, "0", positionAt(10))
	}}
}

// readOnlyTx is about a server that accepts no writes, such as a standby.
func readOnlyTx[Tx any]() suite.Check[TxHarness[Tx]] {
	return suite.Check[TxHarness[Tx]]{Name: "ReadOnlyServer", Run: func(t testing.TB, h TxHarness[Tx]) {
		a := h.begin(t)
		step := driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}
		h.ReadOnly.run(t,
			request{name: "commit", send: func(ctx context.Context) error { return h.Store.Commit(ctx, step, h.put("10")) }},
			request{name: "record", send: func(ctx context.Context) error {
				return h.Store.RecordAttempt(ctx, a, positionAt(9), driver.AttemptRecord{Sequence: 10, Attempts: 1})
			}},
			request{name: "claim", send: func(ctx context.Context) error { _, err := h.Store.Claim(ctx, a, incarnation); return err }},
			request{name: "read", reads: true, send: func(ctx context.Context) error { _, err := h.Store.Read(ctx, testGroup); return err }},
		)
		again(t, "commit when the server accepts writes again", func(ctx context.Context) error {
			return h.Store.Commit(ctx, step, h.put("10"))
		})
		h.wantEffects(t, "10")
	}}
}

// silenceOfDeadLetters is about the operator's requests.
func silenceOfDeadLetters[Tx any]() suite.Check[TxHarness[Tx]] {
	return suite.Check[TxHarness[Tx]]{Name: "SilentServer", Run: func(t testing.TB, h TxHarness[Tx]) {
		id := h.park(t, h.begin(t), deadLetterOf("0", 3))[3].ID
		one := driver.DeadLetterFilter{IDs: []int64{id}}
		h.Silence.run(t,
			request{name: "list", reads: true, send: func(ctx context.Context) error { _, err := h.DeadLetters.List(ctx, testGroup, one); return err }},
			request{name: "get", reads: true, send: func(ctx context.Context) error { _, err := h.DeadLetters.Get(ctx, testGroup, id); return err }},
			request{name: "redrive", send: func(ctx context.Context) error {
				_, err := h.DeadLetters.Redrive(ctx, testGroup, one, time.Time{})
				return err
			}},
			request{name: "discard", send: func(ctx context.Context) error { _, err := h.DeadLetters.Discard(ctx, testGroup, one); return err }},
		)
		again(t, "list after the silence", func(ctx context.Context) error {
			list, err := h.DeadLetters.List(ctx, testGroup, one)
			if err == nil && len(list) != 1 {
				t.Errorf("listed %d dead letters after the silence, want 1", len(list))
			}
			return err
		})
	}}
}

// silenceOfCheckpoints is about a store of checkpoints that does not answer.
var silenceOfCheckpoints = suite.Check[CheckpointHarness]{Name: "SilentServer", Run: func(t testing.TB, h CheckpointHarness) {
	a := h.lease(t, "0", "a", 1)
	h.claim(t, a)
	suite.NoError(t, "advance", h.Store.Advance(suite.Context(t), a, incarnation, positionAt(9), nil))
	h.Silence.run(t,
		request{name: "advance", send: func(ctx context.Context) error { return h.Store.Advance(ctx, a, incarnation, positionAt(10), nil) }},
		request{name: "read", reads: true, send: func(ctx context.Context) error { _, err := h.Store.Read(ctx, testGroup); return err }},
		request{name: "leave", send: func(ctx context.Context) error { return h.Store.Leave(ctx, a) }},
		request{name: "claim", send: func(ctx context.Context) error { _, err := h.Store.Claim(ctx, a, incarnation); return err }},
		request{name: "reset", send: func(ctx context.Context) error {
			_, err := h.Store.Reset(ctx, testGroup, "1", incarnation, positionAt(4), "set")
			return err
		}},
	)
	again(t, "advance after the silence", func(ctx context.Context) error { return h.Store.Advance(ctx, a, incarnation, positionAt(11), nil) })
}}

// silenceOfQueue is about a store of dead letters that does not answer.
var silenceOfQueue = suite.Check[DeadLetterQueueHarness]{Name: "SilentServer", Run: func(t testing.TB, h DeadLetterQueueHarness) {
	id := h.park(t, deadLetterOf("0", 3))[3].ID
	h.redrive(t, id)
	parked := []driver.DeadLetter{deadLetterOf("0", 4)}
	h.Silence.run(t,
		request{name: "park", send: func(ctx context.Context) error { return h.Store.Park(ctx, parked) }},
		request{name: "due", reads: true, send: func(ctx context.Context) error { _, err := h.Store.Due(ctx, testGroup, "0", 10); return err }},
		request{name: "settle", send: func(ctx context.Context) error { return h.Store.Settle(ctx, testGroup, []int64{id}, nil) }},
		request{name: "parked", reads: true, send: func(ctx context.Context) error {
			_, err := h.Store.Parked(ctx, testGroup, "0", incarnation, 0)
			return err
		}},
		request{name: "held", reads: true, send: func(ctx context.Context) error { _, err := h.Store.Held(ctx, testGroup, "0", nil); return err }},
	)
	again(t, "park after the silence", func(ctx context.Context) error { return h.Store.Park(ctx, parked) })
	again(t, "settle after the silence", func(ctx context.Context) error { return h.Store.Settle(ctx, testGroup, []int64{id}, nil) })
	if list := h.deadLetters(t); len(list) != 1 || list[4].ID == 0 {
		t.Errorf("dead letters after the silence: %+v, want that of event 4", list)
	}
}}

// answerLost is about a change of which nothing shows whether it was made: the engine makes it
// again.
var answerLost = suite.Check[DeadLetterQueueHarness]{Name: "AnswerLost", Run: func(t testing.TB, h DeadLetterQueueHarness) {
	twice := func(what string, send func(ctx context.Context) error) {
		t.Helper()
		if h.LoseAnswer != nil {
			h.LoseAnswer(t)
		}
		if err := send(suite.Context(t)); err == nil && h.LoseAnswer != nil {
			t.Errorf("%s whose answer was lost: no error", what)
		}
		again(t, what+" again", send)
	}
	parked := []driver.DeadLetter{deadLetterOf("0", 3), deadLetterOf("0", 4)}
	twice("park", func(ctx context.Context) error { return h.Store.Park(ctx, parked) })
	list := h.deadLetters(t)
	if len(list) != 2 {
		t.Fatalf("%d dead letters after two were parked twice, want 2", len(list))
	}
	h.redrive(t, list[3].ID, list[4].ID)
	failed := h.get(t, list[4].ID)
	failed.Status, failed.Error, failed.Attempts = driver.StatusDead, "failed again", 7
	twice("settle", func(ctx context.Context) error {
		return h.Store.Settle(ctx, testGroup, []int64{list[3].ID}, []driver.DeadLetter{failed})
	})
	left := h.deadLetters(t)
	if l := left[4]; len(left) != 1 || l.Error != failed.Error || l.Attempts != failed.Attempts || l.Status != failed.Status {
		t.Errorf("dead letters after they were settled twice: %+v, want that of event 4 as it failed again", left)
	}
}}

// silenceOfLeases is about a lease store that does not answer.
var silenceOfLeases = suite.Check[leaseHarness]{Name: "SilentServer", Run: func(t testing.TB, h leaseHarness) {
	if h.silence == nil {
		return
	}
	a, given := h.take(t, "0", "a", h.long, 0), h.take(t, "1", "a", h.long, 0)
	silence := func(t testing.TB) func() { return h.silence(t, h.LeaseStore) }
	Silence(silence).run(t,
		request{name: "renew", send: func(ctx context.Context) error { return h.Renew(ctx, a, h.long) }},
		request{name: "acquire", send: func(ctx context.Context) error {
			_, err := h.Acquire(ctx, testGroup, "2", "a", h.long, 0)
			return err
		}},
		request{name: "list", reads: true, send: func(ctx context.Context) error { _, err := h.List(ctx, testGroup); return err }},
		request{name: "release", send: func(ctx context.Context) error { return h.Release(ctx, given) }},
	)
	again(t, "renew after the silence", func(ctx context.Context) error { return h.Renew(ctx, a, h.long) })
}}

// silenceOfSource is about a log that does not answer.
var silenceOfSource = suite.Check[SourceHarness]{Name: "SilentServer", Run: func(t testing.TB, h SourceHarness) {
	s, partition, events := h.filled(t)
	after := driver.Position{Sequence: events[0].Sequence, Offset: events[0].Offset}
	h.Silence.run(t,
		request{name: "describe", send: func(ctx context.Context) error { _, err := s.Describe(ctx); return err }},
		request{name: "bounds", send: func(ctx context.Context) error { _, err := s.Bounds(ctx, partition); return err }},
		request{name: "seek", send: func(ctx context.Context) error {
			_, err := s.Seek(ctx, partition, sluice.Latest(), 1)
			return err
		}},
		request{name: "open and read", send: func(ctx context.Context) error {
			r, err := s.Open(ctx, partition, after, 1)
			if err != nil {
				return err
			}
			_, err = r.Read(ctx, 1)
			return errors.Join(err, r.Close(ctx))
		}},
	)
	again(t, "read after the silence", func(ctx context.Context) error {
		r, err := s.Open(ctx, partition, after, 1)
		if err != nil {
			return err
		}
		got, err := r.Read(ctx, 1)
		if err == nil && (len(got) != 1 || got[0].Sequence != events[1].Sequence) {
			err = fmt.Errorf("read %+v, want event %d", got, events[1].Sequence)
		}
		return errors.Join(err, r.Close(ctx))
	})
}}
