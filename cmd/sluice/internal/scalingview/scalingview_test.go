package scalingview

import (
	"reflect"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/pipeline/web"
)

func TestViewOfAStore(t *testing.T) {
	const resource, metric = "workers", "lag"
	ctx, store, at := t.Context(), autoscale.NewMemoryStore(), time.Now().Truncate(time.Second)
	m, err := store.Load(ctx, resource)
	if err != nil {
		t.Fatal(err)
	}
	m.Instances, m.Reported, m.LastUp, m.LastDown, m.Pending = 2, at, at.Add(-time.Hour), at.Add(-time.Minute), &autoscale.Action{Number: 1}
	w := &autoscale.Window{}
	w.Add(autoscale.Point{Resource: resource, Metric: metric, Time: at, Value: 7})
	w.Add(autoscale.Point{Resource: resource, Metric: metric, Time: at.Add(time.Second), State: autoscale.Failed, Cause: "no answer"})
	m.Windows = map[string]*autoscale.Window{metric: w}
	record := autoscale.Record{Resource: resource, Sequence: 1, Time: at, Kind: autoscale.Up, Instances: 2, Wanted: 3, Reason: "over 5", Stats: []autoscale.MetricStats{
		{Metric: metric, Points: 1, Last: 7, Average: 6, Min: 5, Max: 8, Newest: at, Missing: "few"},
	}}
	if err := store.Save(ctx, m, record); err != nil {
		t.Fatal(err)
	}
	view := New(store, resource)
	state, err := view.Store.State(ctx, resource)
	if want := (&web.ScalingState{
		Instances: 2, Reported: at, LastUp: at.Add(-time.Hour), LastDown: at.Add(-time.Minute), Pending: true,
		Metrics: map[string]web.ScalingMetric{metric: {State: "failed", Cause: "no answer", Values: []web.ScalingValue{{Time: at, Value: 7}}}},
	}); err != nil || !reflect.DeepEqual(state, want) {
		t.Errorf("state %+v, %v; want %+v", state, err, want)
	}
	decisions, err := view.Store.Decisions(ctx, resource, at, 10)
	if want := []web.ScalingDecision{{
		Sequence: 1, Time: at, Kind: "up", Instances: 2, Wanted: 3, Reason: "over 5",
		Stats: []web.ScalingStats{{Metric: metric, Points: 1, Last: 7, Average: 6, Min: 5, Max: 8, Newest: at, Missing: "few"}},
	}}; err != nil || !reflect.DeepEqual(decisions, want) {
		t.Errorf("decisions %+v, %v; want %+v", decisions, err, want)
	}
}

// TestJoin: each resource comes from the store of its own autoscaler.
func TestJoin(t *testing.T) {
	var list []*web.Scaling
	for i, name := range []string{"orders", "mail"} {
		store := autoscale.NewMemoryStore()
		if err := store.Save(t.Context(), &autoscale.ResourceState{Resource: name, Instances: i + 1}, autoscale.Record{Sequence: 1, Reason: name}); err != nil {
			t.Fatal(err)
		}
		list = append(list, New(store, name))
	}
	all := Join(list...)
	if !reflect.DeepEqual(all.Resources, []string{"orders", "mail"}) {
		t.Errorf("resources %v", all.Resources)
	}
	for i, name := range all.Resources {
		state, err := all.Store.State(t.Context(), name)
		if err != nil || state.Instances != i+1 {
			t.Errorf("state of %s: %+v, %v", name, state, err)
		}
		if list, err := all.Store.Decisions(t.Context(), name, time.Time{}, 10); err != nil || len(list) != 1 || list[0].Reason != name {
			t.Errorf("decisions of %s: %+v, %v", name, list, err)
		}
	}
}
