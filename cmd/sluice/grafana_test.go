package main_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/sluiceotel"
)

// unshown is for other questions than a dashboard's.
var unshown = map[string]bool{"sluice_fetched_bytes_total": true, "sluice_checkpoint": true, "target_info": true}

// TestGrafana compares the metrics that the Grafana dashboard queries with those
// that are exported to Prometheus.
func TestGrafana(t *testing.T) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		t.Fatal(err)
	}
	o, err := sluiceotel.New(&sluiceotel.Config{Group: sluice.Group{Namespace: "ns", Topic: "flights", Name: "g"}, Meter: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	for kind := driver.KindAcquired; kind <= driver.KindListed; kind++ {
		if kind != driver.KindReleased {
			o.Observe(driver.Observation{Kind: kind, Partition: "2"})
		}
	}
	for _, x := range []driver.Observation{
		{Kind: driver.KindAcquired, Partition: "0", Epoch: 3},
		{Kind: driver.KindClaimed, Partition: "0", To: sluice.Position{Sequence: 9}},
		{Kind: driver.KindFetched, Partition: "0", To: sluice.Position{Sequence: 19}, Events: 10, Bytes: 1000, Lag: 30},
		{Kind: driver.KindCommitted, Partition: "0", To: sluice.Position{Sequence: 19}, Events: 10, Duplicates: 2, Lag: 30},
	} {
		o.Observe(x)
	}
	o.Watch(health.Report{
		At: time.Now(), Partitions: []health.PartitionReport{{Partition: "0"}}, DeadLetters: []driver.DeadLetterCount{{Partition: "0", Status: sluice.StatusDead, Count: 1}},
	})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	labels := map[string]bool{"le": true, "instance": true}
	for _, f := range families {
		given[f.GetName()], given[f.GetName()+"_bucket"] = true, true
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = true
			}
		}
	}
	text, err := os.ReadFile("../../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`\b(?:sluice|messaging)_[a-z_]+`)
	asked := map[string]bool{}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			for _, n := range name.FindAllString(target.Expr, -1) {
				asked[n] = true
				if !given[n] && !labels[n] {
					t.Errorf("panel %q asks for %s, which no observer exports", p.Title, n)
				}
			}
		}
	}
	for f := range given {
		if !strings.HasSuffix(f, "_bucket") && !asked[f] && !asked[f+"_bucket"] && !unshown[f] {
			t.Errorf("no panel shows %s", f)
		}
	}
	if len(asked) < 15 {
		t.Errorf("the panels ask for %d metrics and labels only", len(asked))
	}
}
