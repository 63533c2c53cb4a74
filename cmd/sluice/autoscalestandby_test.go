package main_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// replicas starts two processes with the same file, waits until one of them is active and
// the other stands by, and returns them with the addresses of their metrics.
func replicas(t *testing.T, file string, env []string) (active, standby *process, activeAt, standbyAt string) {
	t.Helper()
	serve := func() (*process, string) {
		p := start(t, "", env, "autoscale", "run", file, "--metrics", "127.0.0.1:0")
		return p, metricsOf(t, p)
	}
	answers := func(address, want string) {
		t.Helper()
		await(t, "the answer "+want, func() bool {
			code, text := get(address + "/readyz")
			return code == http.StatusOK && text == want
		})
	}
	active, activeAt = serve()
	answers(activeAt, "orders: active\n")
	standby, standbyAt = serve()
	answers(standbyAt, "orders: standby\n")
	if code, text := get(standbyAt + "/livez"); code != http.StatusOK || text != "orders: standby\n" {
		t.Errorf("a process that stands by is live: %d %s", code, text)
	}
	return active, standby, activeAt, standbyAt
}

// hasLine reports whether a page of metrics has a line that begins with a name, has all of
// the labels, and ends with the value.
func hasLine(page, name, value string, labels ...string) bool {
lines:
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, name+"{") || !strings.HasSuffix(strings.TrimSpace(line), "} "+value) {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, l) {
				continue lines
			}
		}
		return true
	}
	return false
}

// TestAutoscaleStandby: of two processes with the same state, on SQLite and on PostgreSQL,
// one works and the other stands by; after kill -9 of the first the other takes over within
// the time that the documentation promises, and every action is carried out once. Metrics
// and probes say which of them is active.
func TestAutoscaleStandby(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		scheme, _, _ := strings.Cut(url, ":")
		if scheme != "sqlite" && scheme != "postgres" {
			return // no state of an autoscaler is kept there
		}
		file, instances := autoscaler(t)
		dir := filepath.Dir(file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(text), "scale: echo", "scale: echo $PPID >> "+dir+"/scaled; echo", 1)
		changed = strings.Replace(changed, "  points: 2\n", "  points: 2\n  cooldown: 100ms\n", 1)
		var env []string
		if scheme == "postgres" {
			before, _, _ := strings.Cut(changed, "state:")
			changed = before + "state: {postgres: \"${DATABASE_URL}\"}\n"
			env = []string{"DATABASE_URL=" + url}
		}
		write(t, file, changed)
		active, standby, activeAt, standbyAt := replicas(t, file, env)
		await(t, "three instances", reads(instances, "3\n"))
		await(t, "the metrics of the active process", func() bool {
			_, page := get(activeAt + "/metrics")
			const orders = `sluice_autoscale_resource="orders"`
			for _, line := range []struct {
				name, value string
				labels      []string
			}{
				{"sluice_autoscale_role", "1", []string{`sluice_autoscale_role="active"`}},
				{"sluice_autoscale_role", "0", []string{`sluice_autoscale_role="standby"`}},
				{"sluice_autoscale_instances", "3", nil},
				{"sluice_autoscale_instances_wanted", "3", nil},
				{"sluice_autoscale_instances_min", "1", nil},
				{"sluice_autoscale_instances_max", "5", nil},
				{"sluice_autoscale_metric_value", "2500", []string{`sluice_autoscale_metric="backlog"`}},
				{"sluice_autoscale_actions_total", "1", []string{`sluice_autoscale_outcome="succeeded"`}},
				{"sluice_autoscale_actions_total", "0", []string{`sluice_autoscale_outcome="failed"`}},
				{"sluice_autoscale_decisions_total", "1", []string{`sluice_autoscale_decision_kind="up"`, `sluice_autoscale_decision_cause="rule"`}},
				{"sluice_autoscale_decision", "1", []string{`sluice_autoscale_decision_kind="hold"`, `sluice_autoscale_decision_cause="rule"`}},
			} {
				if !hasLine(page, line.name, line.value, append(line.labels, orders)...) {
					return false
				}
			}
			return strings.Contains(page, "sluice_autoscale_metric_age_seconds{") && strings.Contains(page, "sluice_autoscale_round_time_seconds{")
		})
		if _, page := get(standbyAt + "/metrics"); !hasLine(page, "sluice_autoscale_role", "1", `sluice_autoscale_role="standby"`) || strings.Contains(page, "sluice_autoscale_instances{") {
			t.Errorf("the process that stands by has the metrics\n%s", page)
		}
		if log := standby.err.String(); strings.Count(log, "\n") != 2 || !strings.Contains(log, "standby: another process works on the resource, waiting for its lease") {
			t.Errorf("a process that stands by logs\n%s", log)
		}

		active.kill()
		began, waited := time.Now(), standby.waited()
		db := openDatabase(t, "sqlite:"+filepath.Join(dir, "orders.db"))
		if _, err := db.Exec("DELETE FROM orders"); err != nil {
			t.Fatal(err)
		}
		await(t, "the other process to take over", func() bool { return strings.Contains(standby.err.String(), "msg=autoscaling") })
		if took := time.Since(began) - (standby.waited() - waited); took > 20*time.Second { // without the time that it had no CPU
			t.Errorf("the other process took over after %v", took)
		}
		await(t, "one instance", reads(instances, "1\n"))
		await(t, "the outcome", func() bool {
			_, page := get(standbyAt + "/metrics")
			return hasLine(page, "sluice_autoscale_actions_total", "1", `sluice_autoscale_outcome="succeeded"`)
		})
		if code, text := get(standbyAt + "/readyz"); code != http.StatusOK || text != "orders: active\n" {
			t.Errorf("after taking over: %d %s", code, text)
		}
		standby.stop()
		want := fmt.Sprintf("%d\n%d\n", active.cmd.Process.Pid, standby.cmd.Process.Pid)
		if got := contents(t, filepath.Join(dir, "scaled")); got != want {
			t.Errorf("scaled by the processes %q, want %q", got, want)
		}
	})
}

// TestAutoscaleFailingMetrics: what fails is counted with its kind, and a process whose file
// is not valid is live and not ready.
func TestAutoscaleFailingMetrics(t *testing.T) {
	t.Parallel()
	file, _ := autoscaler(t)
	broken := filepath.Join(filepath.Dir(file), "broken.yaml")
	write(t, broken, "metrics: {}\n")
	text := contents(t, file)
	write(t, file, strings.Replace(text, "FROM orders", "FROM nowhere", 1))
	p := start(t, "", nil, "autoscale", "run", file, broken, "--metrics", "127.0.0.1:0")
	address := metricsOf(t, p)
	await(t, "a failure in the metrics", func() bool {
		_, page := get(address + "/metrics")
		return strings.Contains(page, "sluice_autoscale_errors_total{") && strings.Contains(page, `error_type="_OTHER"`) &&
			strings.Contains(page, `sluice_autoscale_operation="read"`) && hasLine(page, "sluice_autoscale_role", "1", `sluice_autoscale_resource="`+broken+`"`, `sluice_autoscale_role="stopped"`)
	})
	code, answer := get(address + "/readyz")
	if code != http.StatusServiceUnavailable || answer != broken+": does not run: see the log\norders: active\n" {
		t.Errorf("not ready: %d %s", code, answer)
	}
	if code, answer := get(address + "/livez"); code != http.StatusOK {
		t.Errorf("live: %d %s", code, answer)
	}
	p.kill()
	code, _, errs := invoke(t, "", nil, "autoscale", "run", file, "--once", "--metrics", "127.0.0.1:0")
	if code != 2 || !strings.Contains(errs, "--metrics serves until interrupted: leave out --once") {
		t.Errorf("--once with --metrics: exit %d: %s", code, errs)
	}
	code, _, errs = invoke(t, "", nil, "autoscale", "run", file, "--metrics", "127.0.0.1:99999")
	if code != 1 || !strings.Contains(errs, "--metrics 127.0.0.1:99999: ") {
		t.Errorf("a wrong address: exit %d: %s", code, errs)
	}
}
