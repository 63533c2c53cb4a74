package web

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// TestMetricsAreDrawnAsFarBackAsDecisions: a window may hold a few values only.
func TestMetricsAreDrawnAsFarBackAsDecisions(t *testing.T) {
	const resource, metric = "workers", "lag"
	store, began := autoscale.NewMemoryStore(), time.Now().Add(-time.Minute).Truncate(time.Second)
	at := func(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }
	m, err := store.Load(t.Context(), resource)
	if err != nil {
		t.Fatal(err)
	}
	w := &autoscale.Window{}
	for s := 6; s <= 8; s++ {
		w.Add(autoscale.Point{Resource: resource, Metric: metric, Time: at(s), Value: float64(10 * s)})
	}
	m.Windows = map[string]*autoscale.Window{metric: w, "idle": {}}
	var records []autoscale.Record
	for s := 1; s <= 8; s += 2 {
		records = append(records, autoscale.Record{Resource: resource, Sequence: int64(len(records) + 1), Time: at(s), Kind: autoscale.Hold, Figures: []autoscale.Figures{
			{Metric: metric, Points: 3, Last: float64(10 * s), Newest: at(s)}, {Metric: "other", Last: 1, Newest: at(s)}, {Metric: "idle", Missing: "no value"},
		}})
	}
	records = slices.Insert(records, 1, records[0]) // decided twice on the same value
	for i := range records {
		records[i].Sequence = int64(i + 1)
	}
	if err := store.Save(t.Context(), m, records...); err != nil {
		t.Fatal(err)
	}
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
