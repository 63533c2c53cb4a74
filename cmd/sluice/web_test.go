package main_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/asazure"
)

var dashboard = regexp.MustCompile(`https://127\.0\.0\.1:\d+/`)

// dashboardOf waits until a process says where its dashboard is.
func dashboardOf(t *testing.T, p *process) (url string) {
	t.Helper()
	await(t, "the dashboard", func() bool {
		url = dashboard.FindString(p.out.String() + p.err.String())
		return url != ""
	})
	return url
}

// visit asks a dashboard for something.
func visit(t *testing.T, url, token string) (so *http.Response, body string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.SetBasicAuth("me", token)
	}
	so, err = transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer so.Body.Close()
	text, err := io.ReadAll(so.Body)
	if err != nil {
		t.Fatal(err)
	}
	return so, string(text)
}

func TestDashboardOfTheDemo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "", nil, "demo", "--data", dir, "--web", "127.0.0.1:0")
	url := dashboardOf(t, p)
	if so, page := visit(t, url, ""); so.ProtoMajor != 2 || so.StatusCode != http.StatusOK || !strings.Contains(page, "flights") {
		t.Errorf("%s %d: %s", so.Proto, so.StatusCode, page)
	}
	await(t, "dead letters on the dashboard", func() bool {
		_, text := visit(t, url+"api/dead-letters", "")
		var so struct{ Letters []letter }
		return json.Unmarshal([]byte(text), &so) == nil && len(so.Letters) >= 20
	})
	if so := auditBy(t, url, ""); so.Report == nil || so.Report.Total.Held == 0 || so.Report.Total.Missing != 0 {
		t.Errorf("its audit: %+v", so)
	}
	if _, err := os.Stat(filepath.Join(dir, "web", "dashboard.pem")); err != nil {
		t.Errorf("its certificate is not kept with the data: %v", err)
	}
	p.stop()
}

func TestDashboardOfStages(t *testing.T) {
	t.Parallel()
	p := start(t, "", nil, "demo", "stages", "--data", t.TempDir(), "--web", "127.0.0.1:0")
	url := dashboardOf(t, p)
	for _, name := range []string{"clean", "figures", "table"} {
		await(t, "figures of "+name, func() bool {
			_, text := visit(t, url+"api/history?pipeline="+name, "")
			var so struct{ Done []int64 }
			if err := json.Unmarshal([]byte(text), &so); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			sum := int64(0)
			for _, n := range so.Done {
				sum += n
			}
			return sum > 0
		})
	}
	if so := auditBy(t, url, "clean"); so.Report == nil || so.Report.Total.Written == 0 || so.Report.Total.Missing != 0 {
		t.Errorf("the audit of clean: %+v", so)
	}
	for name, why := range map[string]string{"figures": "made of many events", "table": "overwritten"} {
		if so, text := visit(t, url+"api/audit?pipeline="+name, ""); so.StatusCode != http.StatusNotFound || !strings.Contains(text, why) {
			t.Errorf("the audit of %s: %d %s", name, so.StatusCode, text)
		}
	}
	p.stop()
}

func TestDashboardOfTheDemoIntoCosmos(t *testing.T) {
	t.Parallel()
	p := start(t, "", nil, "demo", "cosmos", "--events", "500", "--data", t.TempDir(), "--web", "127.0.0.1:0")
	url := dashboardOf(t, p)
	await(t, "documents that an audit finds", func() bool {
		so := auditBy(t, url, "")
		if so.Report == nil || so.Report.Total.Missing != 0 {
			t.Fatalf("its audit: %+v", so)
		}
		return so.Report.Total.Written >= 500
	})
	p.stop()
}

// TestDashboardOfTheDemoOfAutoscaling: its own autoscaler's decisions are
// shown, and no figures of consumers, which are other processes.
func TestDashboardOfTheDemoOfAutoscaling(t *testing.T) {
	t.Parallel()
	p := start(t, "", nil, "demo", "autoscale", "--data", t.TempDir(), "--web", "127.0.0.1:0")
	url := dashboardOf(t, p)
	if _, page := visit(t, url, ""); strings.Contains(page, "data-charts") || strings.Contains(page, "data-pausable") || !strings.Contains(page, "data-auditable") {
		t.Errorf("the page: %s", page)
	}
	await(t, "a worker more", func() bool {
		_, text := visit(t, url+"api/autoscaling", "")
		var so struct {
			Resources []struct {
				Name      string
				Metrics   []struct{ Name string }
				Decisions []struct{ Kind, Reason string }
			}
		}
		decode(t, text, &so)
		r := so.Resources
		return len(r) == 1 && r[0].Name == "workers" && len(r[0].Metrics) == 2 && slices.ContainsFunc(r[0].Decisions, func(d struct{ Kind, Reason string }) bool {
			return d.Kind == "up" && strings.Contains(d.Reason, "lag")
		})
	})
	if so := auditBy(t, url, ""); so.Report == nil || so.Report.Total.Held == 0 || so.Report.Total.Missing != 0 {
		t.Errorf("its audit: %+v", so)
	}
	p.stop()
}

func TestDashboardsOfDemosMisused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	for args, says := range map[string]string{
		"--web-key key.pem":                                   "need --web ADDRESS",
		"cosmos --web 127.0.0.1:0 --web-key k":                "given together",
		"stages --web-token-env TOKEN":                        "need --web ADDRESS",
		"autoscale --web-cert cert.pem":                       "need --web ADDRESS",
		"autoscale --web 0.0.0.0:0":                           "needs a token",
		"stages --web 127.0.0.1:0 --web-audit-group $Default": "is the pipeline's own",
	} {
		args := slices.Concat([]string{"demo"}, strings.Fields(args), []string{"--data", dir})
		if code, out, errs := invoke(t, "", nil, args...); code == 0 || !strings.Contains(errs, says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit code %d\n%s%s", args, code, out, errs)
		}
	}
}

func TestDashboardWithAToken(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 1)
	const token = "correct horse battery staple"
	env := environment(connection, databases["sqlite"](t), "TOKEN="+token, "SHORT=secret", "EMPTY=")
	dir := t.TempDir()
	p := start(t, dir, env, "run", example(t), "--web", "127.0.0.1:0", "--web-token-env", "TOKEN")
	url := dashboardOf(t, p)
	for given, code := range map[string]int{"": http.StatusUnauthorized, token + "!": http.StatusUnauthorized, token: http.StatusOK} {
		if so, text := visit(t, url+"api/dead-letters", given); so.StatusCode != code {
			t.Errorf("with %q: %d %s", given, so.StatusCode, text)
		}
	}
	p.stop()
	if strings.Contains(p.out.String()+p.err.String(), token) {
		t.Errorf("the token is printed: %s%s", p.out.String(), p.err.String())
	}
	pem := filepath.Join(dir, "sluice-data", "web", "dashboard.pem")
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()

	for name, c := range map[string]struct {
		code int
		says string
		args []string
	}{
		"beyond loopback":    {1, "needs a token", []string{"--web", "0.0.0.0:0"}},
		"no such variable":   {1, "MISSING is empty", []string{"--web", "0.0.0.0:0", "--web-token-env", "MISSING"}},
		"an empty one":       {1, "EMPTY is empty", []string{"--web", "127.0.0.1:0", "--web-token-env", "EMPTY"}},
		"a short one":        {1, "must have 16", []string{"--web", "127.0.0.1:0", "--web-token-env", "SHORT"}},
		"no address":         {2, "need --web ADDRESS", []string{"--web-token-env", "TOKEN"}},
		"half a certificate": {2, "given together", []string{"--web", "127.0.0.1:0", "--web-cert", pem}},
		"both certificates":  {2, "exclude each other", []string{"--web", "127.0.0.1:0", "--web-cert", pem, "--web-key", pem, "--web-acme", "example.org"}},
		"a missing file":     {1, "missing.pem", []string{"--web", "127.0.0.1:0", "--web-cert", "missing.pem", "--web-key", pem}},
		"a busy port":        {1, "choose another port", []string{"--web", busy.Addr().String()}},
		"not an address":     {1, "dashboard", []string{"--web", "nowhere"}},
	} {
		code, out, errs := invoke(t, dir, env, append([]string{"run", example(t)}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.says) || strings.Contains(errs, "secret") {
			t.Errorf("%s: exit code %d\n%s%s", name, code, out, errs)
		}
	}
	// A certificate that is given is served.
	p = start(t, dir, env, "run", example(t), "--web", "127.0.0.1:0", "--web-cert", pem, "--web-key", pem)
	dashboardOf(t, p)
	p.stop()
}

func TestDashboardOfAnAutoscaler(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"instances": "1\n", "orders.yaml": `name: orders
every: 100ms
metrics:
  backlog:
    sql:
      database: sqlite:` + path("orders.db") + `
      query: SELECT 2500
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
`} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openDatabase(t, "sqlite:"+path("orders.db")).Exec("CREATE TABLE orders (id INTEGER)"); err != nil {
		t.Fatal(err)
	}
	_, connection := serve(t, 1)
	env := environment(connection, databases["sqlite"](t))
	args := []string{"run", example(t), "--web", "127.0.0.1:0", "--web-autoscale", path("orders.yaml")}
	if code, _, errs := invoke(t, dir, env, args...); code != 1 || !strings.Contains(errs, "state") {
		t.Errorf("before it has a state: exit code %d, %s", code, errs)
	}
	defer func() {
		twice := append(slices.Clone(args), "--web-autoscale", path("orders.yaml"))
		if code, _, errs := invoke(t, dir, env, twice...); code != 1 || !strings.Contains(errs, "the resource orders is that of "+path("orders.yaml")+" too") {
			t.Errorf("two files of one resource: exit code %d, %s", code, errs)
		}
	}()
	scaler := start(t, dir, nil, "autoscale", "run", path("orders.yaml"))
	await(t, "more instances", func() bool {
		text, err := os.ReadFile(path("instances"))
		return err == nil && strings.TrimSpace(string(text)) == "3"
	})
	p := start(t, dir, env, args...)
	url := dashboardOf(t, p)
	await(t, "the decision on the dashboard", func() bool {
		_, text := visit(t, url+"api/autoscaling", "")
		var so struct {
			Resources []struct {
				Name      string
				Instances int
				Decisions []struct{ Kind, Reason string }
			}
		}
		decode(t, text, &so)
		r := so.Resources
		return len(r) == 1 && r[0].Name == "orders" && r[0].Instances == 3 && slices.ContainsFunc(r[0].Decisions, func(d struct{ Kind, Reason string }) bool {
			return d.Kind == "up" && d.Reason != ""
		})
	})
	if so, page := visit(t, url+"autoscaling", ""); so.StatusCode != http.StatusOK || !strings.Contains(page, "Autoscaling") {
		t.Errorf("%d %s", so.StatusCode, page)
	}
	p.stop()
	scaler.stop()
}

// command posts to a dashboard.
func command(t *testing.T, url string) (so *http.Response, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if so, err = client.Do(r); err != nil {
		t.Fatal(err)
	}
	defer so.Body.Close()
	text, err := io.ReadAll(so.Body)
	if err != nil {
		t.Fatal(err)
	}
	return so, string(text)
}

type webAudit struct {
	Ended  int64
	Error  string
	Report *struct {
		Headline string
		Total    struct{ Held, Written, Waiting, Missing int64 }
	}
}

// auditBy audits a pipeline, or the only one, by a dashboard, and waits for the
// end.
func auditBy(t *testing.T, url, name string) (so webAudit) {
	t.Helper()
	url += "api/audit?pipeline=" + name
	await(t, "an audit that begins", func() bool { // once the dashboard runs
		so, _ := command(t, url)
		return so.StatusCode == http.StatusOK
	})
	await(t, "the audit's end", func() bool {
		_, text := visit(t, url, "")
		so = webAudit{}
		decode(t, text, &so)
		return so.Ended > 0
	})
	return so
}

func TestAuditByTheDashboard(t *testing.T) {
	t.Parallel()
	hub, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 2, ConsumerGroups: []string{"auditors"}}}, &emulator.Config{AsAzure: asazure.FreshRuntime()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hub.Close() })
	database := databases["sqlite"](t)
	env := environment(hub.ConnectionString(), database)
	dir := t.TempDir()
	must(t, dir, env, "send", "--hub", "flights", "--key-field", "distance", writeLines(t, flights20k(t)[:500]), writeLines(t, spoiled(3)))
	must(t, dir, env, "run", example(t), "--until-caught-up", "--within", "2m")

	p := start(t, dir, env, "run", example(t), "--web", "127.0.0.1:0", "--web-audit-group", "auditors")
	url := dashboardOf(t, p)
	if so := auditBy(t, url, ""); so.Report == nil || so.Report.Headline != "Nothing lost, nothing duplicated: 503 events, 500 written, 3 dead letters, 0 waiting." {
		t.Errorf("whole: %+v", so)
	}
	if _, err := openDatabase(t, database).ExecContext(t.Context(), `DELETE FROM flights WHERE hub_partition = '0' AND sequence_number = 10`); err != nil {
		t.Fatal(err)
	}
	if so := auditBy(t, url, ""); so.Report == nil || so.Report.Headline != "Not exact: 1 lost, of 503 events." {
		t.Errorf("with a row less: %+v", so)
	}
	p.stop()

	// The default's consumer group is not one of this hub's.
	p = start(t, dir, env, "run", example(t), "--web", "127.0.0.1:0")
	if so := auditBy(t, dashboardOf(t, p), ""); so.Report != nil || !strings.HasPrefix(so.Error, "read with consumer group sluice-audit: ") || !strings.Contains(so.Error, "not found") {
		t.Errorf("without its consumer group: %+v", so)
	}
	p.stop()

	for says, args := range map[string][]string{
		"is the pipeline's own": {"--web", "127.0.0.1:0", "--web-audit-group", "$Default"},
		"need --web ADDRESS":    {"--web-audit-group", "auditors"},
	} {
		if code, _, errs := invoke(t, dir, env, append([]string{"run", example(t)}, args...)...); code != 2 || !strings.Contains(errs, says) {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
}
