package web

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestMetricsAreDrawnAsFarBackAsDecisions: a window may hold a few values only.
func TestMetricsAreDrawnAsFarBackAsDecisions(t *testing.T) {
	const resource, metric = "workers", "lag"
	began := time.Now().Add(-time.Minute).Truncate(time.Second)
	at := func(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }
	var m ScalingMetric
	for s := 6; s <= 8; s++ {
		m.Values = append(m.Values, ScalingValue{Time: at(s), Value: float64(10 * s)})
	}
	store := &scalingStore{state: ScalingState{Metrics: map[string]ScalingMetric{metric: m, "idle": {}}}}
	for s := 1; s <= 8; s += 2 {
		store.decisions = append(store.decisions, ScalingDecision{Time: at(s), Kind: "hold", Stats: []ScalingStats{
			{Metric: metric, Points: 3, Last: float64(10 * s), Newest: at(s)}, {Metric: "other", Last: 1, Newest: at(s)}, {Metric: "idle", Missing: "no value"},
		}})
	}
	store.decisions = slices.Insert(store.decisions, 1, store.decisions[0]) // decided twice on the same value
	so := (&Scaling{Store: store}).read(t.Context(), resource)
	if len(so.Metrics) != 2 || len(so.Metrics[1].Times) != 0 {
		t.Fatalf("metrics %+v", so.Metrics)
	}
	got := so.Metrics[0]
	var times []int64
	for _, s := range []int{1, 3, 5, 6, 7, 8} {
		times = append(times, at(s).UnixMilli())
	}
	if fmt.Sprint(got.Times) != fmt.Sprint(times) || fmt.Sprint(got.Values) != "[10 30 50 60 70 80]" {
		t.Errorf("drawn at %v: %v; want %v", got.Times, got.Values, times)
	}
}

type scalingStore struct {
	state     ScalingState
	decisions []ScalingDecision
}

func (s *scalingStore) State(context.Context, string) (*ScalingState, error) { return &s.state, nil }

func (s *scalingStore) Decisions(context.Context, string, time.Time, int) ([]ScalingDecision, error) {
	return s.decisions, nil
}
