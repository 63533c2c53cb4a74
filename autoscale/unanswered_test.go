package autoscale_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// silence is a network on which the first request of each kind is never answered.
type silence struct {
	mu    sync.Mutex
	asked map[string]int
}

func (s *silence) ask(ctx context.Context, what string) error {
	s.mu.Lock()
	s.asked[what]++
	first := s.asked[what] == 1
	s.mu.Unlock()
	if !first {
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

type silentTarget struct {
	*fleet
	*silence
}

func (t silentTarget) Instances(ctx context.Context) (int, error) {
	if err := t.ask(ctx, "Instances"); err != nil {
		return 0, err
	}
	return t.fleet.Instances(ctx)
}

func (t silentTarget) Scale(ctx context.Context, to int) error {
	if err := t.ask(ctx, "Scale"); err != nil {
		return err
	}
	return t.fleet.Scale(ctx, to)
}

type silentStore struct {
	autoscale.Store
	*silence
}

func (s silentStore) Load(ctx context.Context, resource string) (*autoscale.ResourceState, error) {
	if err := s.ask(ctx, "Load"); err != nil {
		return nil, err
	}
	return s.Store.Load(ctx, resource)
}

func (s silentStore) Save(ctx context.Context, m *autoscale.ResourceState, records ...autoscale.Record) error {
	if err := s.ask(ctx, "Save"); err != nil {
		return err
	}
	return s.Store.Save(ctx, m, records...)
}

func (s silentStore) Outcome(ctx context.Context, resource string) (*autoscale.Outcome, error) {
	if err := s.ask(ctx, "Outcome"); err != nil {
		return nil, err
	}
	return s.Store.Outcome(ctx, resource)
}

func (s silentStore) SetOutcome(ctx context.Context, resource string, o autoscale.Outcome) error {
	if err := s.ask(ctx, "SetOutcome"); err != nil {
		return err
	}
	return s.Store.SetOutcome(ctx, resource, o)
}

func (s silentStore) DeleteRecords(ctx context.Context, resource string, before time.Time) error {
	if err := s.ask(ctx, "DeleteRecords"); err != nil {
		return err
	}
	return s.Store.DeleteRecords(ctx, resource, before)
}

type silentQueue struct {
	autoscale.Queue
	*silence
	name string
}

func (q silentQueue) Send(ctx context.Context, bodies ...[]byte) error {
	if err := q.ask(ctx, "Send "+q.name); err != nil {
		return err
	}
	return q.Queue.Send(ctx, bodies...)
}

func (q silentQueue) Extend(ctx context.Context, m *autoscale.Message) error {
	if err := q.ask(ctx, "Extend "+q.name); err != nil {
		return err
	}
	return q.Queue.Extend(ctx, m)
}

func (q silentQueue) Delete(ctx context.Context, m *autoscale.Message) error {
	if err := q.ask(ctx, "Delete "+q.name); err != nil {
		return err
	}
	return q.Queue.Delete(ctx, m)
}

func (q silentQueue) DeadLetter(ctx context.Context, m *autoscale.Message, reason string) error {
	if err := q.ask(ctx, "DeadLetter "+q.name); err != nil {
		return err
	}
	return q.Queue.DeadLetter(ctx, m, reason)
}

// TestUnanswered: the autoscaler works on although the first request of each kind, to
// the target, the store and the queues, is never answered.
func TestUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &silence{asked: map[string]int{}}
		q := autoscale.Queues{
			Metrics: silentQueue{autoscale.NewMemoryQueue(0), s, "metrics"},
			Actions: silentQueue{autoscale.NewMemoryQueue(0), s, "actions"},
			Reports: silentQueue{autoscale.NewMemoryQueue(0), s, "reports"},
		}
		f := &fleet{instances: 1, takes: 15 * time.Second}
		store := silentStore{autoscale.NewMemoryStore(), s}
		backlog := &gauge{}
		backlog.set(1000)
		r := resource(autoscale.Limits{Max: 3, CooldownUp: -1, CooldownDown: -1})
		logic, err := autoscale.NewLogic(r, store, q, nil)
		if err != nil {
			t.Fatal(err)
		}
		scaler, err := autoscale.NewScaler(r, silentTarget{f, s}, store, q, nil)
		if err != nil {
			t.Fatal(err)
		}
		collector := autoscale.NewCollector("r", map[string]autoscale.Source{"backlog": backlog}, q.Metrics, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- autoscale.RunAll(ctx, collector, logic, scaler) }()
		for _, q := range []autoscale.Queue{q.Metrics, q.Actions, q.Reports} {
			for range 3 { // the first one is not answered
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_ = q.Send(ctx, []byte("not JSON"))
				cancel()
				time.Sleep(time.Second)
			}
		}
		time.Sleep(2 * time.Hour)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n, _ := f.Instances(t.Context()); n != 3 {
			t.Errorf("%d instances, want 3; requests: %v", n, s.asked)
		}
		for _, what := range []string{
			"Instances", "Scale", "Load", "Save", "Outcome", "SetOutcome", "DeleteRecords", "Send metrics", "Send actions", "Send reports",
			"Extend actions", "Delete metrics", "Delete actions", "Delete reports", "DeadLetter metrics", "DeadLetter actions", "DeadLetter reports",
		} {
			if s.asked[what] < 2 {
				t.Errorf("%s was requested %d times; all: %v", what, s.asked[what], slices.Sorted(maps.Keys(s.asked)))
			}
		}
	})
}

// TestBeyondLimits: the scaler refuses an action that its own file does not allow, and
// reports that, so that the logic does not wait for it.
func TestBeyondLimits(t *testing.T) {
	steps := autoscale.Limits{Min: 2, Max: 6}
	for _, c := range []struct {
		from, to int
		rule     autoscale.Rule
		want     string // of the refusal; "": carried out
	}{
		{3, 900_000, nil, "it scales from 3 to 900000 instances, but the limits are 2 to 6"},
		{3, 1, nil, "it scales from 3 to 1 instances, but the limits are 2 to 6"},
		{3, 6, nil, ""},
		{3, 5, autoscale.ThresholdRule{}, "it scales from 3 to 5 instances, but the rule's largest step up is 1"},
		{5, 3, autoscale.ThresholdRule{}, "it scales from 5 to 3 instances, but the rule's largest step down is 1"},
		{3, 4, autoscale.ThresholdRule{}, ""},
		{5, 4, autoscale.ThresholdRule{}, ""},
		{60, 6, autoscale.ThresholdRule{}, ""}, // back within the limits
		{0, 2, autoscale.ThresholdRule{}, ""},
		{60, 5, autoscale.ThresholdRule{}, "largest step down is 1"},
	} {
		t.Run(fmt.Sprint(c.from, "to", c.to), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, target, store := queues(), &fleet{instances: c.from}, autoscale.NewMemoryStore()
				r := &autoscale.Resource{Name: "r", Rule: c.rule, Limits: steps}
				scaler, err := autoscale.NewScaler(r, target, store, q, nil)
				if err != nil {
					t.Fatal(err)
				}
				send(t, q.Actions, autoscale.Action{Resource: "r", Number: 7, From: c.from, To: c.to})
				runUntilIdle(t, scaler)
				aside := q.Actions.(*autoscale.MemoryQueue).DeadLetters()
				if c.want == "" {
					if len(target.scalings()) != 1 || len(aside) != 0 {
						t.Errorf("scaled %+v, dead letters %+v", target.scalings(), aside)
					}
					return
				}
				if len(target.scalings()) != 0 || len(aside) != 1 || !strings.Contains(aside[0].Reason, c.want) {
					t.Errorf("scaled %+v, dead letters %+v\nwant %s", target.scalings(), aside, c.want)
				}
				// The logic is informed, but no outcome is saved.
				m := &autoscale.ResourceState{Resource: "r", Pending: &autoscale.Action{Number: 7}}
				messages, err := q.Reports.Receive(t.Context(), 10)
				if err != nil {
					t.Fatal(err)
				}
				refused := false
				for _, message := range messages {
					var sent autoscale.Report
					if err := json.Unmarshal(message.Body, &sent); err != nil {
						t.Fatal(err)
					}
					record := m.ApplyReport(sent, time.Now())
					refused = refused || record != nil && record.Kind == autoscale.ActionFailed && strings.Contains(record.Reason, c.want)
				}
				if o, _ := store.Outcome(t.Context(), "r"); o != nil || !refused {
					t.Errorf("outcome %+v, reported %t", o, refused)
				}
			})
		})
	}
	if _, err := autoscale.NewScaler(&autoscale.Resource{Name: "r", Limits: autoscale.Limits{Min: 3, Max: 2}}, &fleet{}, autoscale.NewMemoryStore(), queues(), nil); err == nil {
		t.Error("contradicting limits are accepted")
	}
}
