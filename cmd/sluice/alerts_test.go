package main_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/emulator"
)

var (
	// metricName is a metric as Prometheus has it.
	metricName = regexp.MustCompile(`\b(?:sluice|messaging)_[a-z_]+`)
	// label is a label of one: it is not a metric, although it begins like some.
	label = regexp.MustCompile(`\bmessaging_(?:system|operation_name|operation_type|destination_name|destination_partition_id|consumer_group_name)\b`)
	alert = regexp.MustCompile(`(?m)^ *- alert: (\w+)$`)
)

// tables are the tables of the stores, which documentation names beside metrics.
var tables = []string{"sluice_checkpoints", "sluice_dead_letters", "sluice_leases"}

// namedMetrics are the metrics of pipelines that a text names, without the suffixes of histograms.
func namedMetrics(text string) []string {
	var names []string
	for _, n := range metricName.FindAllString(label.ReplaceAllString(text, ""), -1) {
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			n = strings.TrimSuffix(n, suffix)
		}
		if !strings.HasPrefix(n, "sluice_autoscale_") && !slices.Contains(tables, n) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMetricsAreExported: a process exports each metric that alerts, dashboard and documentation
// name, and the documentation lists each that it exports.
func TestMetricsAreExported(t *testing.T) {
	t.Parallel()
	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 2}, {Name: "clean", Partitions: 2}, {Name: "figures", Partitions: 2}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	url := "sqlite:" + filepath.Join(t.TempDir(), "stages.db")
	db, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	createAirports(t, url, db)
	env := environment(srv.ConnectionString(), url)
	p := start(t, "", env, "run", stagesFile(t, url), "--metrics", "127.0.0.1:0")
	address := metricsOf(t, p)
	must(t, "", env, "send", "--hub", "flights", writeLines(t, new(departures).lines(1000)), writeLines(t, spoiled(3)))
	absent := []string{"sluice_filtered_total", "sluice_passed_total"} // nothing is filtered or passed here
	table, _, _ := strings.Cut(readDoc(t, "observability.md"), "Those of sending have")
	_, table, _ = strings.Cut(table, "| Prometheus |")
	listed := slices.DeleteFunc(namedMetrics(table), func(n string) bool { return slices.Contains(absent, n) })
	var exported []string
	await(t, "all metrics of the documentation", func() bool {
		_, text := get(address + "/metrics")
		exported = nil
		for _, m := range regexp.MustCompile(`(?m)^# TYPE ((?:sluice|messaging)_\w+) `).FindAllStringSubmatch(text, -1) {
			exported = append(exported, m[1])
		}
		return !slices.ContainsFunc(listed, func(n string) bool { return !slices.Contains(exported, n) })
	})
	p.stop()
	for _, n := range exported {
		if !slices.Contains(listed, n) {
			t.Errorf("docs/observability.md does not list %s, which is exported", n)
		}
	}
	for _, name := range []string{"alerts.yaml", "grafana.json", "operations.md", "observability.md"} {
		for _, n := range namedMetrics(readDoc(t, name)) {
			if !slices.Contains(absent, n) && !slices.Contains(exported, n) {
				t.Errorf("docs/%s names %s, which is not exported", name, n)
			}
		}
	}
	if len(listed) < 20 {
		t.Errorf("docs/observability.md lists only %d metrics", len(listed))
	}
}

// TestAlertsHaveRunbooks: each alert links to a heading of its own.
func TestAlertsHaveRunbooks(t *testing.T) {
	rules, runbooks := readDoc(t, "alerts.yaml"), readDoc(t, "operations.md")
	found := alert.FindAllStringSubmatch(rules, -1)
	for _, m := range found {
		link := "runbook_url: https://github.com/sluice-go/sluice/blob/main/docs/operations.md#" + strings.ToLower(m[1]) + "\n"
		if !strings.Contains(rules, link) || !strings.Contains(runbooks, "\n### "+m[1]+"\n") {
			t.Errorf("%s has no link to a heading in docs/operations.md", m[1])
		}
	}
	if len(found) < 10 {
		t.Errorf("only %d alerts", len(found))
	}
}
