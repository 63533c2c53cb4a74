package config_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/internal/strictyaml"
)

func lookup(name string) (string, bool) {
	value, set := map[string]string{
		"SERVICEBUS_CONNECTION_STRING": "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0",
		"DATABASE_URL":                 "postgres://u:secret@h/d",
		"TOKEN":                        "secret",
	}[name]
	return value, set
}

func parse(text string) (*config.Config, error) {
	return config.Parse("orders.yaml", []byte(text), lookup)
}

const metrics = "metrics:\n  backlog: {http: {url: 'http://h/s', pointer: /n}}\n"
const target = "target: {command: {count: cat n, scale: echo $SLUICE_INSTANCES > n}}\n"

// TestDefaults reads the shortest file.
func TestDefaults(t *testing.T) {
	c, err := parse(metrics + target + "rule: {upper: 500, lower: 300}\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := (autoscale.ThresholdRule{Metric: "backlog", Upper: 500, Lower: 300}); c.Resource.Rule != want {
		t.Errorf("rule %+v, want %+v", c.Resource.Rule, want)
	}
	want, err := autoscale.Limits{Min: 1, Max: 10, CooldownUp: 10 * time.Minute, CooldownDown: 10 * time.Minute, MinPoints: 5, Window: 10 * time.Minute, StaleAfter: 3 * time.Minute, Interval: time.Minute}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if c.Resource.Limits != want || c.Resource.Name != "orders" || c.Retention != 720*time.Hour {
		t.Errorf("limits %+v, name %q, keep %v; want %+v", c.Resource.Limits, c.Resource.Name, c.Retention, want)
	}
}

// TestEveryKey reads a file with all kinds of metrics and targets.
func TestEveryKey(t *testing.T) {
	sources := `name: everything
every: 10s
keep: 24h
metrics:
  bus: {servicebus: {connection: "${SERVICEBUS_CONNECTION_STRING}", topic: orders, subscription: billing}}
  queue: {servicebus: {namespace: contoso.servicebus.windows.net, credential: default, queue: orders}}
  behind: {lag: {pipeline: flights.yaml}}
  open: {sql: {database: "${DATABASE_URL}", query: SELECT count(*) FROM orders}}
  requests: {prometheus: {url: "http://p:9090", query: "sum(rate(x[5m]))", authorization: "Bearer ${TOKEN}"}}
  orders-billing-backlog: {http: {url: "https://h/s"}}
rule:
  up: avg("orders-billing-backlog", "20m") > 5 || avg(open) > 100
  down: max(bus) == 0 && max(queue) == 0
  step: {up: "open > 1000 ? 3 : 1"}
  min: 0
  max: 20
  cooldown: {up: 0s, down: 5m}
  points: 3
  stale: 1m
`
	for _, rest := range []string{
		"target: {workers: {pipeline: flights.yaml, directory: w, grace: 10s}}",
		"target: {workers: {command: ./consume --all}}",
		"target: {command: {count: cat n, scale: echo $SLUICE_INSTANCES > n, timeout: 5s}}",
		"target: {webhook: {url: 'http://h/scale', authorization: '${TOKEN}'}}",
		"target: {kubernetes: {kind: StatefulSet, name: n, namespace: ns, kubeconfig: k, context: c}}",
		"target: {appservice: {subscription: s, resource_group: g, plan: p}}",
		"target: {cosmos: {endpoint: 'https://h/', key: '${TOKEN}', database: d, container: c, unit: 400}}",
		"target: {cosmos: {credential: default, subscription: s, resource_group: g, account: contoso, database: d}}",
		"target: {workers: {command: x}}\nstate: {sqlite: s.db}",
		"target: {workers: {command: x}}\nstate: {azure: {connection: UseDevelopmentStorage=true, table: Scaling, prefix: orders-}}",
		"target: {workers: {command: x}}\nstate: {azure: {account: contoso, credential: default}}",
	} {
		c, err := parse(sources + rest + "\n")
		if err != nil {
			t.Errorf("%s: %v", rest, err)
			continue
		}
		l := c.Resource.Limits
		if l.Min != 0 || l.Max != 20 || l.CooldownUp != 0 || l.CooldownDown != 5*time.Minute || l.MinPoints != 3 || l.Window != 20*time.Minute || l.StaleAfter != time.Minute || l.Interval != 10*time.Second {
			t.Errorf("limits %+v", l)
		}
		if c.Resource.Name != "everything" || len(c.Resource.Metrics) != 6 {
			t.Errorf("resource %q with metrics %q", c.Resource.Name, c.Resource.Metrics)
		}
	}
}

// TestMistakes: each mistake is reported with its place and without secrets.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"", "orders.yaml: empty"},
		{"rule: {upper: 1, lower: 1}", "orders.yaml:1:1: metrics: is missing"},
		{metrics + target + "rule: {upper: 500}", "orders.yaml:4:1: rule: needs both upper and lower"},
		{metrics + target + "rule: {upper: 3, lower: 5}", "4:1: rule: lower 5 is above upper 3"},
		{metrics + target + "rule: {upper: many, lower: 5}", `4:8: rule.upper: "many": write a number`},
		{metrics + target + "rule: {upper: 5, lower: 3, metric: backlgo}", `4:28: rule.metric: "backlgo": did you mean backlog?`},
		{metrics + target + "rule: {upper: 5, lower: 3, up: 'true'}", "4:1: rule: has both thresholds"},
		{metrics + target + "rule: {min: 1}", "4:1: rule: has no rule"},
		{metrics + target + "rule:\n  up: avg(backlog) > 5\n  down: max(backlgo) < 3\n", "6:13: rule.down: unknown metric"},
		{metrics + target + "rule:\n  up: >\n    avg(backlog) > 5\n    && bcklog > 3\n", "7:8: rule.up: unknown metric bcklog: did you mean backlog?"},
		{metrics + target + "rule:\n  target: backlog > 5\n", "5:11: rule.target: expected a number, but this is a condition"},
		{metrics + target + "rule: {upper: 5, lower: 3, min: 4, max: 2}", "4:1: rule: 4 to 2 instances"},
		{metrics + target + "rule: {upper: 5, lower: 3, points: 20}", "4:1: rule: 20 points: a window of 10m0s has room for 11"},
		{metrics + target + "rule: {up: 'avg(backlog, \"20m\") > 1', window: 10m}", "4:1: rule: the rule needs values of the last 20m0s, but the window is 10m0s"},
		{metrics + target + "rule: {upper: 5, lower: 3, cooldown: soon}", `4:28: rule.cooldown: "soon": write a duration`},
		{"every: 1ms\n" + metrics + target + "rule: {upper: 5, lower: 3}", `1:1: every: "1ms": must be at least 100ms`},
		{"metrics: {}\n" + target + "rule: {upper: 5, lower: 3}", "1:1: metrics: has no metric"},
		{"metrics: {max: {http: {url: 'http://h'}}}\n" + target + "rule: {upper: 5, lower: 3}", "1:11: metrics.max: max has a meaning in expressions"},
		{"metrics: {a/b: {http: {url: 'http://h'}}}\n" + target + "rule: {upper: 5, lower: 3}", "metrics.a/b: "},
		{"metrics: {b: {http: {url: 'http://h'}, sql: {}}}\n" + target + "rule: {upper: 5, lower: 3}", "1:40: metrics.b.sql: a second source, http is there already: write only one"},
		{"metrics: {b: {}}\n" + target + "rule: {upper: 5, lower: 3}", "1:11: metrics.b: has no source: write one of http, lag, prometheus, servicebus, sql"},
		{"metrics: {b: {http: {url: 'ftp://h'}}}\n" + target + "rule: {upper: 5, lower: 3}", `metrics.b.http.url: "ftp://h": write a URL`},
		{"metrics: {b: {http: {url: 'http://h', pointer: a.b}}}\n" + target + "rule: {upper: 5, lower: 3}", `pointer "a.b": write a JSON pointer`},
		{"metrics: {b: {servicebus: {connection: 'Endpoint=sb://h;SharedAccessKey=hunter2', queue: q}}}\n" + target + "rule: {upper: 5, lower: 3}", "holds a secret"},
		{"metrics: {b: {servicebus: {queue: q}}}\n" + target + "rule: {upper: 5, lower: 3}", "needs one of connection"},
		{"metrics: {b: {servicebus: {connection: x, topic: q}}}\n" + target + "rule: {upper: 5, lower: 3}", "needs queue, or topic and subscription"},
		{"metrics: {b: {sql: {database: 'postgres://u:hunter2@h/d', query: x}}}\n" + target + "rule: {upper: 5, lower: 3}", "holds a secret"},
		{"metrics: {b: {sql: {database: 'oracle:x', query: x}}}\n" + target + "rule: {upper: 5, lower: 3}", "metrics.b.sql.database: write sqlite:PATH, or postgres://, mysql:// or mariadb:// and user@host:port/database, or sqlserver://user@host:port?database=name"},
		{"metrics: {b: {sql: {database: 'mysql://u@h', query: x}}}\n" + target + "rule: {upper: 5, lower: 3}", "metrics.b.sql.database: MySQL URL: names no database"},
		{"metrics: {b: {prometheus: {url: 'http://h', query: x, authorization: Bearer hunter2}}}\n" + target + "rule: {upper: 5, lower: 3}", "holds a secret"},
		{metrics + "target: {cosmos: {endpoint: 'https://h/', key: hunter2, database: d}}\nrule: {upper: 5, lower: 3}", "holds a key"},
		{metrics + "target: {cosmos: {endpoint: 'https://h/', credential: default, database: d}}\nrule: {upper: 5, lower: 3}", "only through Azure Resource Manager"},
		{"metrics: {b: {sql: {database: 'postgres://u@h/d?credential=default', query: x}}}\n" + target + "rule: {upper: 5, lower: 3}", "add sslmode=verify-full"},
		{metrics + "target: {workers: {}}\nrule: {upper: 5, lower: 3}", "3:10: target.workers: needs one of pipeline and command"},
		{metrics + "target: {}\nrule: {upper: 5, lower: 3}", "3:1: target: has no target: write one of appservice, command"},
		{metrics + target + "rule: {upper: 5, lower: 3}\nstate: {azure: {connection: 'AccountName=x;AccountKey=hunter2'}}", "holds a secret"},
		{metrics + target + "rule: {upper: 5, lower: 3}\nstate: {azure: {account: x}}", "account needs credential: default"},
		{metrics + target + "rule: {upper: 5, lower: 3}\nstate: {azure: {connection: UseDevelopmentStorage=true, prefix: A--b}}", `state.azure.prefix: "A--b": write lower-case`},
		{metrics + target + "rule: {upper: 5, lower: 3}\nsatte: {}", "5:1: satte: unknown key, did you mean state?"},
		{metrics + target + "rule: {upper: '${MISSING}', lower: 3}", "MISSING"},
	} {
		_, err := parse(c.file)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngot  %v\nwant %s", c.file, err, c.want)
			continue
		}
		if text := err.Error(); strings.Contains(text, "hunter2") || strings.Contains(text, "secret@") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
}

// TestRuleAlone reads what a backtest needs.
func TestRuleAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rule.yaml")
	text := "rule: {up: backlog > 5, down: other < 3}\nstate: {azure: {connection: \"${NEVER_SET}\"}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadRule(path, []string{"other", "backlog"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Resource.Name != "rule" || strings.Join(c.Resource.Metrics, " ") != "backlog other" {
		t.Errorf("resource %q with metrics %q", c.Resource.Name, c.Resource.Metrics)
	}
	if _, err := config.LoadRule(path, []string{"backlog"}); err == nil || !strings.Contains(err.Error(), "unknown metric other") {
		t.Errorf("without the metric: %v", err)
	}
}

// TestOpenFails: an error of opening has the place in the file.
func TestOpenFails(t *testing.T) {
	t.Chdir(t.TempDir())
	for file, want := range map[string]string{
		"metrics:\n  behind: {lag: {pipeline: nowhere.yaml}}\n" + target + "rule: {upper: 5, lower: 3}": "orders.yaml:2:3: metrics.behind: ",
		metrics + target + "rule: {upper: 5, lower: 3}\nstate: {sqlite: nowhere/s.db}":                  "orders.yaml:5:1: state: ",
	} {
		c, err := parse(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Open(t.Context(), config.Collector, nil)
		var at *strictyaml.Problem
		if !errors.As(err, &at) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestRun runs an autoscaler that scales something real: a number in a file.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		if err := os.WriteFile(file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("n", "1\n")
	text := `
every: 100ms
metrics:
  backlog: {sql: {database: "sqlite:` + file("s.db") + `", query: SELECT 5000}}
target: {command: {count: cat ` + file("n") + `, scale: 'echo $SLUICE_INSTANCES > ` + file("n") + `'}}
rule: {target: ceil(backlog / 1000), points: 1, max: 4, stale: 10s, window: 10s}
state: {sqlite: "` + file("s.db") + `"}
`
	c, err := config.Parse(file("a.yaml"), []byte(text), lookup)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	parts, err := c.Open(ctx, config.AllParts, &config.Options{OnRecord: func(r autoscale.Record) {
		if r.Kind == autoscale.ActionSucceeded {
			cancel()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(parts.Run(ctx), parts.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if n, _ := os.ReadFile(file("n")); string(n) != "4\n" {
		t.Errorf("instances %q, want 4", n)
	}
	store, done, err := c.OpenStore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	records, err := store.Records(t.Context(), "a", time.Time{}, 0)
	if err := errors.Join(err, done(t.Context())); err != nil {
		t.Fatal(err)
	}
	if last := records[len(records)-1]; last.Kind != autoscale.ActionSucceeded || last.Instances != 4 {
		t.Errorf("the log ends with %+v", last)
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := parse(metrics + "target: {workers: {command: /nowhere/x, directory: /nowhere/w}}\nrule: {upper: 5, lower: 3}\nstate: {sqlite: /nowhere/s.db}\n")
		if err != nil {
			t.Fatal(err)
		}
		parts, err := c.Open(t.Context(), config.DryRun, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := parts.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestWorkersPipeline: workers that could not run are refused at the start, and there
// is a warning for those that cannot share a hub.
func TestWorkersPipeline(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "flights.yaml")
	for _, c := range []struct{ pipeline, want, log string }{
		{"", "flights.yaml: cannot be read", ""},
		{"partitions: some\n", path + ":1:1: partitions: ", ""},
		{"all", "", "partitions: balanced"},
		{"balanced", "", ""},
	} {
		if text := c.pipeline; text != "" {
			if !strings.HasPrefix(text, "partitions") {
				text = "source: {eventhub: {connection: 'Endpoint=sb://h;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true', hub: h}}\ndatabase: sqlite:f.db\n" +
					"target: {insert: {table: t, columns: {s: sequence}}}\npartitions: " + text + "\n"
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a, err := parse(metrics + "target: {workers: {pipeline: " + path + "}}\nrule: {upper: 5, lower: 3}\n")
		if err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		parts, err := a.Open(t.Context(), config.DryRun, &config.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err == nil {
			err = parts.Close(t.Context())
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.pipeline, err, c.want)
		}
		if said := log.String(); (said == "") != (c.log == "") || !strings.Contains(said, c.log) {
			t.Errorf("%q: logged %q, want %q", c.pipeline, said, c.log)
		}
	}
}
