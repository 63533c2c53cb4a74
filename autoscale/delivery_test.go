package autoscale_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/sluice-go/sluice/autoscale"
)

func queues() autoscale.Queues {
	return autoscale.Queues{Metrics: autoscale.NewMemoryQueue(0), Actions: autoscale.NewMemoryQueue(0), Reports: autoscale.NewMemoryQueue(0)}
}

func send(t *testing.T, q autoscale.Queue, values ...any) {
	t.Helper()
	for _, v := range values {
		body, ok := v.(string)
		if !ok {
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			body = string(b)
		}
		if err := q.Send(t.Context(), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
}

func scaler(t *testing.T, target autoscale.Target, store autoscale.Store, q autoscale.Queues) *autoscale.Scaler {
	t.Helper()
	s, err := autoscale.NewScaler(resource(autoscale.Limits{}), target, store, q, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// runUntilIdle runs a part until everything is idle.
func runUntilIdle(t *testing.T, p autoscale.Part) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	synctest.Wait()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestOldActionAgain: an action that is delivered again, when its From matches again,
// is not carried out again.
func TestOldActionAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, target := queues(), &fleet{instances: 1}
		up := autoscale.Action{Resource: "r", Number: 1, From: 1, To: 2}
		down := autoscale.Action{Resource: "r", Number: 2, From: 2, To: 1}
		send(t, q.Actions, up, up, down, up, down, up)
		runUntilIdle(t, scaler(t, target, autoscale.NewMemoryStore(), q))
		if got := target.scalings(); len(got) != 2 || got[0].number != 1 || got[1].number != 2 {
			t.Errorf("scaled %+v, want each once", got)
		}
	})
}

// TestForgedNumber: an action with a number that cannot have been reached supersedes
// no others. After one with a number that can, the logic goes on with higher numbers.
func TestForgedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, target, store := queues(), &fleet{instances: 1}, autoscale.NewMemoryStore()
		action := func(number int64, from, to int) autoscale.Action {
			return autoscale.Action{Resource: "r", Number: number, From: from, To: to}
		}
		send(t, q.Actions, action(1, 1, 2), action(math.MaxInt64, 2, 3), action(2, 2, 3))
		runUntilIdle(t, scaler(t, target, store, q))
		if got := target.scalings(); len(got) != 2 || got[1].number != 2 {
			t.Errorf("scaled %+v, want the actions 1 and 2", got)
		}
		aside := q.Actions.(*autoscale.MemoryQueue).DeadLetters()
		if len(aside) != 1 || !strings.Contains(aside[0].Reason, "can have been reached") {
			t.Errorf("dead letters %+v, want the forged action", aside)
		}
		pending := action(3, 3, 4)
		m := &autoscale.ResourceState{Resource: "r", Actions: 3, Pending: &pending}
		forged := &autoscale.Outcome{Number: math.MaxInt64}
		if record := m.ApplyReport(autoscale.Report{Outcome: forged}, time.Now()); record != nil || m.Actions != 3 {
			t.Errorf("outcome of an action that cannot be: %+v, %+v", record, m)
		}
		forged.Number = 1000
		record := m.ApplyReport(autoscale.Report{Outcome: forged}, time.Now())
		if record == nil || record.Kind != autoscale.ActionFailed || record.Action != 3 || m.Pending != nil || m.Actions != 1000 {
			t.Errorf("outcome of a later action: %+v, %+v, want the pending one failed and 1000 as the last number", record, m)
		}
	})
}

// TestPointAgain: a point leads to one decision, however often it is delivered.
func TestPointAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := queues(), autoscale.NewMemoryStore()
		p := autoscale.Point{Resource: "r", Metric: "backlog", Time: time.Now(), Value: 1}
		for range 3 {
			logic, err := autoscale.NewLogic(resource(autoscale.Limits{}), store, q, nil)
			if err != nil {
				t.Fatal(err)
			}
			send(t, q.Metrics, p, p)
			runUntilIdle(t, logic)
		}
		if records, _ := store.Records(t.Context(), "r", time.Time{}, 0); len(records) != 1 {
			t.Errorf("%d decisions on one point", len(records))
		}
	})
}

// TestPoison: invalid messages go to the dead-letter queue, and delay nothing.
func TestPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, target := queues(), &fleet{instances: 1}
		send(t, q.Actions, "", "null and void", `{"resource":"r","number":0,"to":5}`, `{"resource":"other","number":1,"from":1,"to":5}`,
			`{"resource":"r","number":1,"to":-1}`, `{"resource":"r","number":1,"to":1000001}`, strings.Repeat("[", 70_000), `{"resource":5}`,
			autoscale.Action{Resource: "r", Number: 1, From: 1, To: 2})
		runUntilIdle(t, scaler(t, target, autoscale.NewMemoryStore(), q))
		aside := q.Actions.(*autoscale.MemoryQueue).DeadLetters()
		if got := target.scalings(); len(got) != 1 || len(aside) != 8 {
			t.Errorf("scaled %+v, %d dead letters, want once and 8", got, len(aside))
		}
		for _, a := range aside {
			if a.Reason == "" || strings.Contains(a.Reason, "\n") {
				t.Errorf("dead letter with the reason %q", a.Reason)
			}
		}

		logic, err := autoscale.NewLogic(resource(autoscale.Limits{}), autoscale.NewMemoryStore(), q, nil)
		if err != nil {
			t.Fatal(err)
		}
		send(t, q.Metrics, "x", `{"resource":"r","metric":"other","time":"2026-01-31T12:00:00Z"}`, `{"resource":"r","metric":"backlog"}`)
		send(t, q.Reports, `{"resource":"x"}`, `{"resource":"r","instances":-1}`, `{"resource":"r","instances":9223372036854775807}`)
		runUntilIdle(t, logic)
		if m, r := len(q.Metrics.(*autoscale.MemoryQueue).DeadLetters()), len(q.Reports.(*autoscale.MemoryQueue).DeadLetters()); m != 3 || r != 3 {
			t.Errorf("%d metrics and %d reports are dead letters, want 3 and 3", m, r)
		}
	})
}

// holding is a queue that extends a message slowly, which changes its receipt.
type holding struct {
	*autoscale.MemoryQueue
	extending atomic.Bool
	clash     atomic.Bool
}

func (q *holding) Extend(ctx context.Context, m *autoscale.Message) error {
	q.extending.Store(true)
	defer q.extending.Store(false)
	select {
	case <-time.After(5 * time.Second):
	case <-ctx.Done():
	}
	return q.MemoryQueue.Extend(ctx, m)
}

func (q *holding) Delete(ctx context.Context, m *autoscale.Message) error {
	if q.extending.Load() {
		q.clash.Store(true)
	}
	return q.MemoryQueue.Delete(ctx, m)
}

// TestDeletedOnceLetGo: an action's message is not deleted while it is being extended,
// which changes the receipt by which it is deleted.
func TestDeletedOnceLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queues()
		actions := &holding{MemoryQueue: autoscale.NewMemoryQueue(0)}
		q.Actions = actions
		target := &fleet{instances: 1, takes: 12 * time.Second} // extending begins after 10 s
		send(t, actions, autoscale.Action{Resource: "r", Number: 1, From: 1, To: 2})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := scaler(t, target, autoscale.NewMemoryStore(), q).Run(ctx); err != nil {
			t.Error(err)
		}
		if actions.clash.Load() {
			t.Error("a message was deleted while it was being extended")
		}
		over, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if left, err := actions.Receive(over, 1); err == nil {
			t.Errorf("%d messages are left", len(left))
		}
		if got := target.scalings(); len(got) != 1 {
			t.Errorf("scaled %+v", got)
		}
	})
}

// TestOutOfRange: numbers of instances and values that are out of range.
func TestOutOfRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, v := range []float64{math.NaN(), math.Inf(1), 1e308, -1e16} {
			source := &gauge{}
			source.set(v)
			p := autoscale.NewCollector("r", map[string]autoscale.Source{"backlog": source}, nil, nil).Read(t.Context())[0]
			if p.State != autoscale.Failed || !strings.Contains(p.Cause, "is not a number between") {
				t.Errorf("%v is read as %+v", v, p)
			}
			if (&autoscale.ResourceState{}).AddPoint(autoscale.Point{Metric: "backlog", Time: time.Now(), Value: v}) {
				t.Errorf("%v is remembered", v)
			}
		}
		q, target := queues(), &fleet{instances: math.MaxInt}
		store := autoscale.NewMemoryStore()
		send(t, q.Actions, autoscale.Action{Resource: "r", Number: 1, From: 1, To: 2})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := scaler(t, target, store, q).Run(ctx); err != nil {
			t.Error(err)
		}
		if o, _ := store.Outcome(t.Context(), "r"); o == nil || !strings.Contains(o.Err, "instances: must be 0 to") || len(target.scalings()) > 0 {
			t.Errorf("the outcome is %+v", o)
		}
	})
}

// TestSilence: if no points arrive, there are records of it, which are deleted in time.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := queues(), autoscale.NewMemoryStore()
		logic, err := autoscale.NewLogic(resource(autoscale.Limits{}), store, q, &autoscale.LogicConfig{Retention: 2 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		send(t, q.Reports, autoscale.Report{Resource: "r", Time: time.Now(), Instances: 4})
		if err := logic.Run(ctx); err != nil {
			t.Error(err)
		}
		records, _ := store.Records(t.Context(), "r", time.Time{}, 0)
		if len(records) < 6 || !strings.Contains(records[0].Reason, "last reported") {
			t.Errorf("%d records of silence: %+v", len(records), records)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 5*time.Hour)
		defer cancel()
		if err := logic.Run(ctx); err != nil {
			t.Error(err)
		}
		records, _ = store.Records(t.Context(), "r", time.Time{}, 0)
		if oldest := time.Since(records[0].Time); oldest > 3*time.Hour+2*time.Minute {
			t.Errorf("a record %v old is kept", oldest)
		}
	})
}

// TestSourcePanics: a panic of a source counts as a failed reading.
func TestSourcePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := autoscale.SourceFunc(func(context.Context) (autoscale.Reading, error) { panic("out of order") })
		hangs := autoscale.SourceFunc(func(ctx context.Context) (autoscale.Reading, error) {
			<-ctx.Done()
			return autoscale.Reading{}, ctx.Err()
		})
		c := autoscale.NewCollector("r", map[string]autoscale.Source{"bad": bad, "hangs": hangs}, nil, nil)
		points := c.Read(t.Context())
		if points[0].State != autoscale.Failed || points[0].Cause != "the source panicked: out of order" || points[1].Cause != "no answer within 30s" {
			t.Errorf("points %+v", points)
		}
	})
}

// TestLongTexts: texts that somebody else has put into messages are shortened, and lose
// control characters, before they are kept or passed on.
func TestLongTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := "\x1b]0;title\x07" + strings.Repeat("x", 50_000) + "\x00"
		check := func(what, text string) {
			t.Helper()
			if text == "" || len(text) > 2000 || strings.ContainsFunc(text, unicode.IsControl) {
				t.Errorf("%s: %d bytes: %.80q", what, len(text), text)
			}
		}
		q, store := queues(), autoscale.NewMemoryStore()
		logic, err := autoscale.NewLogic(resource(autoscale.Limits{}), store, q, nil)
		if err != nil {
			t.Fatal(err)
		}
		pending := &autoscale.ResourceState{Resource: "r", Pending: &autoscale.Action{Number: 1, From: 1, To: 2}}
		if err := store.Save(t.Context(), pending); err != nil {
			t.Fatal(err)
		}
		send(t, q.Metrics, autoscale.Point{Resource: "r", Metric: "backlog", Time: time.Now(), State: autoscale.Failed, Cause: bad})
		send(t, q.Reports, autoscale.Report{Resource: "r", Time: time.Now(), Instances: 1, Outcome: &autoscale.Outcome{Number: 1, Err: bad}})
		runUntilIdle(t, logic)
		records, err := store.Records(t.Context(), "r", time.Time{}, 0)
		if err != nil || len(records) != 2 {
			t.Fatalf("%d records, %v", len(records), err)
		}
		for _, r := range records {
			check("reason", r.Reason)
			for _, s := range r.Stats {
				check("missing", s.Missing)
			}
		}

		var seen string
		target := &witness{fleet: &fleet{instances: 1}, saw: func(a autoscale.Action) { seen = a.Reason }}
		send(t, q.Actions, autoscale.Action{Resource: "r", Number: 2, From: 1, To: 2, Reason: bad})
		runUntilIdle(t, scaler(t, target, autoscale.NewMemoryStore(), q))
		check("the action's reason", seen)
	})
}

// witness is a target that passes on its actions.
type witness struct {
	*fleet
	saw func(autoscale.Action)
}

func (w *witness) Scale(ctx context.Context, to int) error {
	a, _ := autoscale.ActionFrom(ctx)
	w.saw(a)
	return w.fleet.Scale(ctx, to)
}

// TestQueueIsBounded: a queue in memory does not grow for ever while its receiver is
// behind.
func TestQueueIsBounded(t *testing.T) {
	q := autoscale.NewMemoryQueue(0)
	for range 10_000 {
		if err := q.Send(t.Context(), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Send(t.Context(), []byte("x")); err == nil || !strings.Contains(err.Error(), "the queue is full") {
		t.Errorf("got %v", err)
	}
}
