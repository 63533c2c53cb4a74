package config_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
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
  hub: {lag: {source: {eventhub: {connection: "${SERVICEBUS_CONNECTION_STRING}", hub: flights}, start: latest}, checkpoints: {azure_blob: {container: c, connection: UseDevelopmentStorage=true, prefix: eh/}}}}
  topic: {lag: {source: {kafka: {brokers: "127.0.0.1:9092", topic: flights}}, checkpoints: {kafka_group: billing}}}
  open: {sql: {database: "${DATABASE_URL}", query: SELECT count(*) FROM orders}}
  cpu: {azure_monitor: {resource: /subscriptions/s/resourceGroups/g/providers/Microsoft.Web/serverfarms/p, metric: CpuPercentage, aggregation: maximum, window: 5m, filter: Instance eq 'x', namespace: Custom}}
  requests: {prometheus: {url: "http://p:9090", query: "sum(rate(x[5m]))", authorization: "Bearer ${TOKEN}"}}
  orders-billing-backlog: {http: {url: "https://h/s"}}
rule:
  up: avg("orders-billing-backlog", "20m") > 5 || avg(open) > 100
  down: max(bus) == 0 && max(queue) == 0
  step: {up: "open > 1000 ? 3 : 1"}
  min: MIN
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
		"target: {containerapp: {subscription: s, resource_group: g, app: a, replicas: min}}",
		"target: {sqldatabase: {subscription: s, resource_group: g, server: s, database: d, objectives: [" + objectives(20) + "]}}",
		"target: {cosmos: {endpoint: 'https://h/', key: '${TOKEN}', database: d, container: c, unit: 400}}",
		"target: {cosmos: {credential: default, subscription: s, resource_group: g, account: contoso, database: d}}",
		"target: {workers: {command: x}}\nstate: {sqlite: s.db}",
		"target: {workers: {command: x}}\nstate: {azure: {connection: UseDevelopmentStorage=true, table: Scaling, prefix: orders-}}",
		"target: {workers: {command: x}}\nstate: {azure: {account: contoso, credential: default}}",
	} {
		least := 0
		if strings.Contains(rest, "sqldatabase") {
			least = 1
		}
		c, err := parse(strings.Replace(sources, "MIN", strconv.Itoa(least), 1) + rest + "\n")
		if err != nil {
			t.Errorf("%s: %v", rest, err)
			continue
		}
		l := c.Resource.Limits
		if l.Min != least || l.Max != 20 || l.CooldownUp != 0 || l.CooldownDown != 5*time.Minute || l.MinPoints != 3 || l.Window != 20*time.Minute || l.StaleAfter != time.Minute || l.Interval != 10*time.Second {
			t.Errorf("limits %+v", l)
		}
		if c.Resource.Name != "everything" || len(c.Resource.Metrics) != 9 {
			t.Errorf("resource %q with metrics %q", c.Resource.Name, c.Resource.Metrics)
		}
	}
}

// objectives are so many service objectives.
func objectives(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("S", i)
	}
	return strings.Join(list, ", ")
}

// TestBounds: the numbers of instances that a target can have are the defaults of the limits, and
// bound them.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		target, limits string
		most           int
		want           string
	}{
		{sqldatabase("[S0, S1, S2]"), "", 3, ""},
		{sqldatabase("[S0, S1, S2]"), ", max: 2", 2, ""},
		{sqldatabase("[" + objectives(12) + "]"), "", 10, ""},
		{sqldatabase("[S0, S1, S2]"), ", max: 4", 0, "orders.yaml:4:1: rule: max is 4: the target has at most 3 service objectives"},
		{sqldatabase("[S0, S1, S2]"), ", min: 0", 0, "orders.yaml:4:1: rule: min is 0: the target has at least 1 service objectives"},
		{containerapp("exact"), "", 10, ""},
		{containerapp("exact"), ", min: 0", 0, "orders.yaml:4:1: rule: min is 0: the target has at least 1 replicas"},
		{containerapp("min"), ", min: 0", 10, ""},
		{containerapp("max"), ", max: 1001", 0, "orders.yaml:4:1: rule: max is 1001: the target has at most 1000 replicas"},
	} {
		got, err := parse(metrics + "target: " + c.target + "\nrule: {upper: 5, lower: 3" + c.limits + "}\n")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s%s: %v, want %q", c.target, c.limits, err, c.want)
		}
		if err == nil && got.Resource.Limits.Max != c.most {
			t.Errorf("%s%s: at most %d, want %d", c.target, c.limits, got.Resource.Limits.Max, c.most)
		}
	}
}

func sqldatabase(objectives string) string {
	return "{sqldatabase: {subscription: s, resource_group: g, server: s, database: d, objectives: " + objectives + "}}"
}

func containerapp(replicas string) string {
	return "{containerapp: {subscription: s, resource_group: g, app: a, replicas: " + replicas + "}}"
}

func lagOf(keys string) string {
	return "metrics: {b: {lag: {" + keys + "}}}\n" + target + "rule: {upper: 5, lower: 3}"
}

const hub = "source: {eventhub: {connection: '${SERVICEBUS_CONNECTION_STRING}', hub: h}}"

func monitor(keys string) string {
	return "metrics: {b: {azure_monitor: {" + keys + "}}}\n" + target + "rule: {upper: 5, lower: 3}"
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
		{"every: 1ms\n" + metrics + target + "rule: {upper: 5, lower: 3}", `1:1: every: "1ms": write a duration from 100ms to 24h0m0s`},
		{"metrics: {}\n" + target + "rule: {upper: 5, lower: 3}", "1:1: metrics: has no metric"},
		{"metrics: {max: {http: {url: 'http://h'}}}\n" + target + "rule: {upper: 5, lower: 3}", "1:11: metrics.max: max has a meaning in expressions"},
		{"metrics: {a/b: {http: {url: 'http://h'}}}\n" + target + "rule: {upper: 5, lower: 3}", "metrics.a/b: "},
		{"metrics: {b: {http: {url: 'http://h'}, sql: {}}}\n" + target + "rule: {upper: 5, lower: 3}", "1:40: metrics.b.sql: a second source, http is there already: write only one"},
		{"metrics: {b: {}}\n" + target + "rule: {upper: 5, lower: 3}", "1:11: metrics.b: needs one of azure_monitor, http, lag, prometheus, servicebus and sql"},
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
		{metrics + "target: {}\nrule: {upper: 5, lower: 3}", "3:1: target: needs one of appservice, command"},
		{metrics + target + "rule: {upper: 5, lower: 3}\nstate: {azure: {connection: 'AccountName=x;AccountKey=hunter2'}}", "holds a secret"},
		{metrics + target + "rule: {upper: 5, lower: 3}\nstate: {azure: {account: x}}", "account needs credential: default"},
		{metrics + target + "rule: {upper: 5, lower: 3}\nstate: {azure: {connection: UseDevelopmentStorage=true, prefix: A--b}}", `state.azure.prefix: "A--b": write lower-case`},
		{metrics + target + "rule: {upper: 5, lower: 3}\nstate: {azure: {connection: UseDevelopmentStorage=true, prefix: " + strings.Repeat("a-", 22) + "}}", "at most 42 characters"},
		{lagOf("pipeline: p.yaml, " + hub), "1:15: metrics.b.lag: needs pipeline, or source and checkpoints"},
		{lagOf(hub), "1:15: metrics.b.lag: needs pipeline, or source and checkpoints"},
		{lagOf("checkpoints: {kafka_group: g}"), "1:15: metrics.b.lag: needs pipeline, or source and checkpoints"},
		{lagOf(hub + ", checkpoints: {kafka_group: g}"), "metrics.b.lag.checkpoints.kafka_group: goes with source.kafka only"},
		{lagOf("source: {kafka: {brokers: h, topic: t}}, checkpoints: {azure_blob: {container: c}}"), "metrics.b.lag.checkpoints.azure_blob: goes with source.eventhub only"},
		{lagOf("source: {eventhub: {hub: h}}, checkpoints: {kafka_group: g}"), "1:30: metrics.b.lag.source.eventhub: needs one of connection"},
		{lagOf(hub + ", checkpoints: {}"), "metrics.b.lag.checkpoints: needs one of azure_blob and kafka_group"},
		{lagOf("checkpoints: {azure_blob: {prefix: c}}"), "1:35: metrics.b.lag.checkpoints.azure_blob.container: is missing"},
		{lagOf("checkpoints: {azure_blob: {container: 'https://a.blob.core.windows.net/c?sv=1&sig=hunter2'}}"), "holds a secret"},
		{lagOf("checkpoints: {azure_blob: {container: c, connection: 'AccountKey=hunter2'}}"), "holds a secret"},
		{lagOf("checkpoints: {azure_blob: {container: c, connection: UseDevelopmentStorage=true, credential: default}}"), "needs one of connection and credential: default"},
		{monitor("resource: /subscriptions/s/resourceGroups/g/providers/x/y/z"), "1:15: metrics.b.azure_monitor.metric: is missing"},
		{monitor("resource: workers, metric: m"), `1:31: metrics.b.azure_monitor.resource: resource "workers": write its id`},
		{monitor("metric: 'a,b'"), `1:31: metrics.b.azure_monitor.metric: metric "a,b": write the name of one metric`},
		{monitor("aggregation: median"), `1:31: metrics.b.azure_monitor.aggregation: "median": write one of average, minimum`},
		{monitor("window: 2m"), "1:31: metrics.b.azure_monitor.window: window 2m0s: Azure aggregates over 1m, 5m"},
		{metrics + "target: " + sqldatabase("S0") + "\nrule: {upper: 5, lower: 3}", "3:84: target.sqldatabase.objectives: 1 service objectives: write 2 to "},
		{metrics + "target: " + sqldatabase("[S0, '']") + "\nrule: {upper: 5, lower: 3}", "3:101: target.sqldatabase.objectives[1]: "},
		{metrics + "target: " + sqldatabase("[S0, s0]") + "\nrule: {upper: 5, lower: 3}", "3:84: target.sqldatabase.objectives: s0 is in the list of service objectives twice"},
		{metrics + "target: {sqldatabase: {server: s}}\nrule: {upper: 5, lower: 3}", "3:10: target.sqldatabase.objectives: is missing"},
		{metrics + "target: " + containerapp("all") + "\nrule: {upper: 5, lower: 3}", `target.containerapp.replicas: "all": write one of exact, min, max`},
		{metrics + "target: {containerapp: {app: a}}\nrule: {upper: 5, lower: 3}", "3:10: target.containerapp.resource_group: is missing"},
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
