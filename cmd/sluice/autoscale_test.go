package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/backtest"
	"github.com/sluice-go/sluice/autoscale/config"
)

// autoscaler writes a file of an autoscaler that reads a number from one file
// and scales a number in another, and returns both paths.
func autoscaler(t *testing.T) (file, instances string) {
	t.Helper()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	text := `name: orders
every: 100ms
metrics:
  backlog:
    sql:
      database: sqlite:` + path("orders.db") + `
      query: SELECT count(*) FROM orders
target:
  command:
    count: cat ` + path("instances") + `
    scale: echo $SLUICE_INSTANCES > ` + path("instances") + `
rule:
  target: ceil(backlog / 1000)
  max: 5
  points: 2
  window: 10s
  stale: 10s
state:
  sqlite: ` + path("state.db") + `
`
	for name, content := range map[string]string{"orders.yaml": text, "instances": "1\n"} {
		if err := os.WriteFile(path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	db := openDatabase(t, "sqlite:"+path("orders.db"))
	if _, err := db.Exec(`CREATE TABLE orders (id INTEGER); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) INSERT INTO orders SELECT i FROM n`); err != nil {
		t.Fatal(err)
	}
	return path("orders.yaml"), path("instances")
}

// logged are the records that `sluice autoscale log` shows.
func logged(t *testing.T, file string) []autoscale.Record {
	t.Helper()
	var list []autoscale.Record
	for line := range strings.Lines(must(t, "", nil, "autoscale", "log", file, "--json")) {
		var r autoscale.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		list = append(list, r)
	}
	return list
}

func reads(path, want string) func() bool {
	return func() bool {
		got, err := os.ReadFile(path)
		return err == nil && string(got) == want
	}
}

func TestAutoscaleRunAndLog(t *testing.T) {
	t.Parallel()
	file, instances := autoscaler(t)
	p := start(t, "", nil, "autoscale", "run", file)
	await(t, "three instances", reads(instances, "3\n"))
	await(t, "the outcome in the log", func() bool { return strings.Contains(p.err.String(), "msg=succeeded") })
	p.stop()
	if !strings.Contains(p.err.String(), "msg=up") || !strings.Contains(p.err.String(), "target 3") {
		t.Errorf("run said\n%s", p.err.String())
	}
	var kinds []string
	for i, r := range logged(t, file) {
		if r.Sequence != int64(i+1) || r.Reason == "" {
			t.Errorf("record %+v", r)
		}
		if r.Kind != autoscale.Hold {
			kinds = append(kinds, string(r.Kind))
		}
	}
	if strings.Join(kinds, " ") != "up succeeded" {
		t.Errorf("the log has %q", kinds)
	}
	table := must(t, "", nil, "autoscale", "log", file)
	// Where readings were late, several came at once, and the decision is made with more than two.
	of := regexp.MustCompile(`backlog 2500 \(avg 2500, max 2500 of ([2-9]|\d\d)\)`)
	if !strings.HasPrefix(table, "TIME") || !strings.Contains(table, "1 → 3") || !of.MatchString(table) {
		t.Errorf("the table is\n%s", table)
	}
	if lines := strings.Count(must(t, "", nil, "autoscale", "log", file, "--limit", "2"), "\n"); lines != 3 {
		t.Errorf("--limit 2 shows %d lines", lines)
	}
	if out := must(t, "", nil, "autoscale", "log", file, "--since", "1ns"); out != "" {
		t.Errorf("--since 1ns shows\n%s", out)
	}
}

func TestAutoscaleDryRun(t *testing.T) {
	t.Parallel()
	file, instances := autoscaler(t)
	p := start(t, "", nil, "autoscale", "run", file, "--dry-run")
	await(t, "a decision", func() bool { return strings.Contains(p.err.String(), "msg=succeeded") })
	p.stop()
	if !reads(instances, "1\n")() {
		t.Error("a dry run has scaled")
	}
	if code, _, err := invoke(t, "", nil, "autoscale", "log", file); code != 1 || !strings.Contains(err, "start the autoscaler first") {
		t.Errorf("log after a dry run: exit %d: %s", code, err)
	}
}

// TestAutoscaleParts runs the parts as processes, and kills each of them again
// and again.
func TestAutoscaleParts(t *testing.T) {
	t.Parallel()
	file, instances := autoscaler(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	quick := strings.Replace(string(text), "  points: 2\n", "  points: 2\n  cooldown: 100ms\n", 1)
	if err := os.WriteFile(file, []byte(quick), 0o600); err != nil {
		t.Fatal(err)
	}
	parts := []string{"collector", "logic", "scaler"}
	living := map[string]*process{}
	for _, part := range parts {
		living[part] = start(t, "", nil, "autoscale", "run", file, "--part", part)
	}
	db := openDatabase(t, "sqlite:"+filepath.Join(filepath.Dir(file), "orders.db"))
	for round, want := range []string{"3\n", "1\n", "5\n"} {
		rows := map[string]int{"3\n": 2500, "1\n": 0, "5\n": 10_000}[want]
		if _, err := db.Exec(`DELETE FROM orders; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO orders SELECT i FROM n WHERE ? > 0`, rows, rows); err != nil {
			t.Fatal(err)
		}
		part := parts[round]
		living[part].kill()
		living[part] = start(t, "", nil, "autoscale", "run", file, "--part", part)
		await(t, "instances "+want, reads(instances, want))
	}
	for _, part := range parts {
		living[part].stop()
	}
	decided := map[int64]int{}
	for _, r := range logged(t, file) {
		if r.Kind == autoscale.Up || r.Kind == autoscale.Down {
			decided[r.Action]++
		}
	}
	for n := int64(1); n <= int64(len(decided)); n++ {
		if decided[n] != 1 {
			t.Errorf("action %d was decided %d times", n, decided[n])
		}
	}
	if len(decided) < 3 {
		t.Errorf("%d actions, want at least 3", len(decided))
	}
}

func TestAutoscaleRecordAndBacktest(t *testing.T) {
	t.Parallel()
	file, _ := autoscaler(t)
	dir := filepath.Dir(file)
	out := filepath.Join(dir, "live.csv")
	for range 2 { // the second appends
		must(t, "", nil, "autoscale", "record", file, "--out", out, "--for", "1s")
	}
	csv, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer csv.Close()
	recording, err := backtest.Read(out, csv)
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, row := range recording.Rows {
		switch cell := row.Values[0]; {
		case cell.State == autoscale.Failed: // on a busy machine a reading may take longer than the interval
		case cell.Value != 2500:
			t.Fatalf("recorded %+v", recording)
		default:
			read++
		}
	}
	if read < 3 {
		t.Fatalf("recorded %+v", recording)
	}
	plot := filepath.Join(dir, "plot.svg")
	shown := must(t, "", nil, "autoscale", "backtest", "--rules", file, "--metrics", out, "--plot", plot)
	if !strings.Contains(shown, "1 → 3") {
		t.Errorf("backtest says\n%s", shown)
	}
	if svg, err := os.ReadFile(plot); err != nil || !strings.Contains(string(svg), "<svg") {
		t.Errorf("plot: %v", err)
	}
	var result struct {
		Actions   int                `json:"actions"`
		Decisions []autoscale.Record `json:"decisions"`
	}
	text := must(t, "", nil, "autoscale", "backtest", "--rules", file, "--metrics", out, "--json")
	if err := json.Unmarshal([]byte(text), &result); err != nil || result.Actions != 1 || len(result.Decisions) != 1 {
		t.Errorf("%v: %s", err, text)
	}
	if code, _, err := invoke(t, "", nil, "autoscale", "record", file, "--out", file); code != 1 || !strings.Contains(err, "append to recording") {
		t.Errorf("record over the file itself: exit %d: %s", code, err)
	}
}

// TestAutoscaleDocs: the table in the documentation is what its command prints.
func TestAutoscaleDocs(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/autoscale.md")
	if err != nil {
		t.Fatal(err)
	}
	_, command, found := strings.Cut(string(doc), "    sluice autoscale backtest ")
	if !found {
		t.Fatal("docs/autoscale.md has no backtest")
	}
	command, rest, _ := strings.Cut(command, "\n\n")
	args := append([]string{"autoscale", "backtest"}, strings.Fields(strings.ReplaceAll(command, "\\", " "))...)
	for line := range strings.Lines(must(t, "../..", nil, args...)) {
		if words := strings.Join(strings.Fields(line), " "); !strings.Contains(strings.Join(strings.Fields(rest), " "), words) {
			t.Errorf("docs/autoscale.md has not the line %q", words)
		}
	}
}

// TestAutoscaleExamples: each file of an autoscaler for Azure is valid.
func TestAutoscaleExamples(t *testing.T) {
	t.Setenv("SERVICEBUS_CONNECTION_STRING", "Endpoint=sb://localhost;UseDevelopmentEmulator=true")
	t.Setenv("AZURE_SUBSCRIPTION_ID", "00000000-0000-0000-0000-000000000000")
	t.Setenv("EVENTHUB_CONNECTION_STRING", "Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true")
	t.Setenv("STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
	for _, name := range []string{"PLAN_ID", "DATABASE_ID"} {
		t.Setenv(name, "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/shop/providers/Microsoft.Web/serverfarms/workers")
	}
	for name, most := range map[string]int{"plan": 8, "database": 3, "containerapp": 20, "functions": 8} {
		c, err := config.Load("../../examples/autoscale/" + name + ".yaml")
		if err != nil {
			t.Error(err)
		} else if c.Resource.Limits.Max != most {
			t.Errorf("%s has at most %d instances, want %d", name, c.Resource.Limits.Max, most)
		}
	}
}

func TestAutoscaleExample(t *testing.T) {
	t.Setenv("SERVICEBUS_CONNECTION_STRING", "Endpoint=sb://localhost;UseDevelopmentEmulator=true")
	c, err := config.Load("../../examples/autoscale/flights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if c.Resource.Name != "flights" || c.Resource.Limits.Window != 10*time.Minute {
		t.Errorf("the example is read as %+v", c.Resource)
	}
}

func TestAutoscaleMisuse(t *testing.T) {
	t.Parallel()
	file, _ := autoscaler(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	workers := filepath.Join(filepath.Dir(file), "workers.yaml")
	before, _, _ := strings.Cut(string(text), "target:")
	_, after, _ := strings.Cut(string(text), "rule:")
	if err := os.WriteFile(workers, []byte(before+"target: {workers: {command: sleep 1}}\nrule:"+after), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{2, "choose one of run, log, record, backtest, keda", nil},
		{2, "--part all: write collector, logic or scaler", []string{"run", file, "--part", "all"}},
		{2, "--dry-run runs all parts", []string{"run", file, "--part", "logic", "--dry-run"}},
		{2, "--once scales, with all parts: leave out --dry-run and --part", []string{"run", file, "--once", "--dry-run"}},
		{2, "--once scales, with all parts: leave out --dry-run and --part", []string{"run", file, "--once", "--part", "logic"}},
		{2, "--wait and --detailed-exit-code need --once", []string{"run", file, "--wait", "1s"}},
		{2, "--wait and --detailed-exit-code need --once", []string{"run", file, "--detailed-exit-code"}},
		{2, "--wait must be positive", []string{"run", file, "--once", "--wait", "0s"}},
		{1, workers + ":8:1: target: workers end with the process", []string{"run", workers, "--once"}},
		{1, "no such file", []string{"run", file + ".not"}},
		{1, "start the autoscaler first", []string{"log", file}},
		{2, "--since and --limit must not be negative", []string{"log", file, "--since", "-1h"}},
		{2, "--out is needed", []string{"record", file}},
		{2, "--rules and --metrics are needed", []string{"backtest"}},
		{2, "--plot x.png: plots are SVG: name a file that ends in .svg", []string{"backtest", "--rules", file, "--metrics", file, "--plot", "x.png"}},
		{1, "the first line must be time", []string{"backtest", "--rules", file, "--metrics", file}},
		{1, "no such file", []string{"backtest", "--rules", file, "--metrics", "nowhere.csv"}},
	} {
		code, _, err := invoke(t, "", nil, append([]string{"autoscale"}, c.args...)...)
		if code != c.code || !strings.Contains(err, c.want) || strings.Count(strings.TrimSpace(err), "\n") > 0 {
			t.Errorf("%v: exit %d: %s\nwant %d: … %s …", c.args, code, err, c.code, c.want)
		}
	}
}
