package autoscale_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

func resource(limits autoscale.Limits) *autoscale.Resource {
	return &autoscale.Resource{Name: "r", Metrics: []string{"backlog"}, Rule: autoscale.ThresholdRule{Metric: "backlog", Upper: 500, Lower: 300}, Limits: limits}
}

// TestReaction measures the time from the first reading over the threshold to the
// action. The published rule averages ten minutes, so it reacts faster to a higher
// rise. docs/autoscale.md has these times.
func TestReaction(t *testing.T) {
	short := autoscale.RuleFunc(func(s autoscale.Situation) autoscale.Proposal {
		w := s.Windows["backlog"]
		if w != nil && w.Last(s.Now, 10*time.Second).Average() > 500 {
			return autoscale.Proposal{Instances: s.Instances + 1, Reason: "the last ten seconds"}
		}
		return autoscale.Proposal{Instances: s.Instances, Reason: "nothing to do"}
	})
	for _, c := range []struct {
		name     string
		every    time.Duration
		rule     autoscale.Rule
		initial  float64 // for eleven minutes; -1: a cold start
		final    float64
		reaction time.Duration
	}{
		{"every minute, from 400 to 600", time.Minute, nil, 400, 600, 5 * time.Minute},
		{"every minute, from 400 to 1,600", time.Minute, nil, 400, 1600, 0},
		{"every minute, from 0 to 2,000", time.Minute, nil, 0, 2000, 2 * time.Minute},
		{"every minute, cold start", time.Minute, nil, -1, 600, 4 * time.Minute},
		{"every second, from 400 to 600", time.Second, nil, 400, 600, 303 * time.Second},
		{"every second, from 400 to 1,600", time.Second, nil, 400, 1600, 50 * time.Second},
		{"every second, from 0 to 2,000", time.Second, nil, 0, 2000, 150 * time.Second},
		{"every second, cold start", time.Second, nil, -1, 600, 4 * time.Second},
		{"every second, average of ten, from 400 to 600", time.Second, short, 400, 600, 5 * time.Second},
		{"every second, average of ten, from 0 to 2,000", time.Second, short, 0, 2000, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := resource(autoscale.Limits{Interval: c.every})
				if c.rule != nil {
					r.Rule = c.rule
				}
				backlog, target := &gauge{}, &fleet{instances: 1}
				backlog.set(max(c.initial, 0))
				if c.initial < 0 {
					backlog.set(c.final)
				}
				began := time.Now()
				stop := started(t, r, map[string]autoscale.Source{"backlog": backlog}, target, nil)
				if c.initial >= 0 {
					time.Sleep(11*time.Minute - c.every/2) // the next reading is the first one over
					began = began.Add(11 * time.Minute)
					backlog.set(c.final)
				}
				for len(target.scalings()) == 0 {
					time.Sleep(c.every / 10)
				}
				stop()
				if got := target.scalings()[0].time.Sub(began); got != c.reaction {
					t.Errorf("reaction after %v, want %v", got, c.reaction)
				}
			})
		})
	}
}

// TestCooldownFromSuccess: after an action that takes three minutes, strictly more than
// ten minutes pass from its end until the next one.
func TestCooldownFromSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backlog, target := &gauge{}, &fleet{instances: 1, takes: 3 * time.Minute}
		backlog.set(900)
		store := autoscale.NewMemoryStore()
		stop := started(t, resource(autoscale.Limits{}), map[string]autoscale.Source{"backlog": backlog}, target, &autoscale.Config{Store: store})
		began := time.Now()
		time.Sleep(40 * time.Minute)
		stop()
		var when []string
		for _, s := range target.scalings() {
			when = append(when, s.time.Sub(began).String())
		}
		// Decided at 4m, done at 7m; 17m is not strictly more than ten later, 18m is.
		if got := strings.Join(when, " "); got != "7m0s 21m0s 35m0s" {
			t.Errorf("scaled at %s, want 7m0s 21m0s 35m0s", got)
		}
		records, err := store.Records(t.Context(), "r", time.Time{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range records {
			if r.Sequence != int64(i+1) || r.Reason == "" {
				t.Errorf("record %d: %+v", i, r)
			}
		}
		if !holds(records, "action 1, from 1 to 2 instances, is in progress") || !holds(records, "in cooldown: the last action succeeded 10m0s ago") {
			t.Error("the log does not say why nothing was done")
		}
	})
}

func holds(records []autoscale.Record, reason string) bool {
	for _, r := range records {
		if r.Kind == autoscale.Hold && strings.Contains(r.Reason, reason) {
			return true
		}
	}
	return false
}

// TestFailedAction: a failing action is retried, then abandoned. It starts no cooldown,
// so the next decision may scale again.
func TestFailedAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 7 // five tries of the first action, two of the second
		target := &fleet{instances: 1}
		target.fail = func() error {
			if failures--; failures >= 0 {
				return errOut
			}
			return nil
		}
		backlog, store := &gauge{}, autoscale.NewMemoryStore()
		backlog.set(900)
		stop := started(t, resource(autoscale.Limits{}), map[string]autoscale.Source{"backlog": backlog}, target, &autoscale.Config{Store: store})
		time.Sleep(6 * time.Minute)
		stop()
		records, err := store.Records(t.Context(), "r", time.Time{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		var last autoscale.Record
		for _, r := range records {
			if r.Kind != autoscale.Hold {
				kinds, last = append(kinds, fmt.Sprintf("%s %d", r.Kind, r.Action)), r
			}
		}
		if got := strings.Join(kinds, ", "); got != "up 1, failed 1, up 2, succeeded 2" {
			t.Errorf("the log says %s", got)
		}
		if !strings.Contains(last.Reason, "3 attempts") {
			t.Errorf("the second action: %s", last.Reason)
		}
	})
}

// TestOvertaken: an action that no longer applies is abandoned, not carried out.
func TestOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := &fleet{instances: 1}
		target.fail = func() error {
			target.mu.Lock()
			defer target.mu.Unlock()
			target.instances = 7 // by hand
			target.fail = nil
			return errOut
		}
		backlog, store := &gauge{}, autoscale.NewMemoryStore()
		backlog.set(900)
		stop := started(t, resource(autoscale.Limits{}), map[string]autoscale.Source{"backlog": backlog}, target, &autoscale.Config{Store: store})
		time.Sleep(6 * time.Minute)
		stop()
		records, _ := store.Records(t.Context(), "r", time.Time{}, 0)
		var said string
		for _, r := range records {
			if r.Kind == autoscale.ActionFailed {
				said = r.Reason
			}
		}
		if !strings.Contains(said, "there are 7 instances, neither 1 nor 2") {
			t.Errorf("the log says %q", said)
		}
		if got := target.scalings(); len(got) != 1 || got[0].instances != 8 {
			t.Errorf("scaled %+v, want once, to 8", got)
		}
	})
}

// TestRestart: windows, cooldown and numbers survive a restart.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backlog, target, store := &gauge{}, &fleet{instances: 1}, autoscale.NewMemoryStore()
		backlog.set(900)
		run := func(d time.Duration) {
			stop := started(t, resource(autoscale.Limits{}), map[string]autoscale.Source{"backlog": backlog}, target, &autoscale.Config{Store: store})
			time.Sleep(d)
			stop()
		}
		began := time.Now()
		run(150 * time.Second) // readings at 0, 1, 2 min
		time.Sleep(30 * time.Second)
		run(90 * time.Second) // 3 and 4 min: the fifth
		if got := target.scalings(); len(got) != 1 || got[0].time.Sub(began) != 4*time.Minute {
			t.Fatalf("scaled %+v, want once at the fifth value", got)
		}
		for range 25 {
			run(30 * time.Second)
		}
		got := target.scalings()
		if len(got) != 2 || got[1].number != 2 || got[1].time.Sub(got[0].time) <= 10*time.Minute {
			t.Errorf("scaled %+v, want the second after the cooldown", got)
		}
	})
}

// TestClockSetForward: a cooldown lasts by both clocks.
func TestClockSetForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backlog, target, clock := &gauge{}, &fleet{instances: 1}, newSkewed()
		backlog.set(900)
		stop := started(t, resource(autoscale.Limits{}), map[string]autoscale.Source{"backlog": backlog}, target, &autoscale.Config{Clock: clock})
		time.Sleep(5 * time.Minute)
		clock.set(8 * time.Minute)
		time.Sleep(9 * time.Minute)
		if got := target.scalings(); len(got) != 1 {
			t.Errorf("scaled %+v within the cooldown", got)
		}
		clock.set(-time.Hour)
		time.Sleep(20 * time.Minute)
		stop()
		if got := target.scalings(); len(got) != 2 {
			t.Errorf("scaled %d times after the clock was set back for good, want 2", len(got))
		}
	})
}

// TestNoDown: a metric that is disabled or fails blocks scaling down.
func TestNoDown(t *testing.T) {
	for name, put := range map[string]func(g *gauge){
		"disabled": func(g *gauge) { g.put(autoscale.Reading{State: autoscale.Disabled}, nil) },
		"failing":  func(g *gauge) { g.put(autoscale.Reading{}, errOut) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := resource(autoscale.Limits{})
				r.Metrics = []string{"backlog", "other"}
				backlog, other, target, store := &gauge{}, &gauge{}, &fleet{instances: 5}, autoscale.NewMemoryStore()
				other.set(0)
				put(other)
				stop := started(t, r, map[string]autoscale.Source{"backlog": backlog, "other": other}, target, &autoscale.Config{Store: store})
				time.Sleep(30 * time.Minute)
				if got := target.scalings(); len(got) != 0 {
					t.Errorf("scaled %+v", got)
				}
				records, _ := store.Records(t.Context(), "r", time.Time{}, 0)
				if !holds(records, "not scaled down while a metric is missing: other (") {
					t.Errorf("the log ends with %s", records[len(records)-1].Reason)
				}
				backlog.set(900) // upwards it may go
				time.Sleep(15 * time.Minute)
				stop()
				if got := target.scalings(); len(got) == 0 || got[0].instances != 6 {
					t.Errorf("scaled %+v, want up", got)
				}
			})
		})
	}
}
