package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/autoscale"
)

// onTimer is an autoscaler for --once: it wants three instances, from the first value on.
// While the file hold-count or hold-scale exists, the target's command of that name waits,
// from its second call on; what was scaled is in the file scalings.
func onTimer(t *testing.T) (file string, path func(name string) string) {
	t.Helper()
	file, _ = autoscaler(t)
	path = func(name string) string { return filepath.Join(filepath.Dir(file), name) }
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	instances := path("instances")
	changed := strings.NewReplacer(
		"  points: 2\n", "  points: 1\n  cooldown: 1h\n", "every: 100ms", "every: 10s",
		"count: cat "+instances, "count: 'if test -e "+path("counted")+"; then while test -e "+path("hold-count")+"; do echo > "+path("counting")+"; sleep 0.05; done; fi; echo >> "+path("counted")+"; cat "+instances+"'",
		"scale: echo $SLUICE_INSTANCES > "+instances, "scale: 'while test -e "+path("hold-scale")+"; do echo > "+path("scaling")+"; sleep 0.05; done; echo $SLUICE_ACTION $SLUICE_INSTANCES >> "+path("scalings")+"; echo $SLUICE_INSTANCES > "+instances+"'",
	).Replace(string(text))
	write(t, file, changed)
	return file, path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) func() bool {
	return func() bool {
		_, err := os.Stat(path)
		return err == nil
	}
}

// once runs a round, which must end with this exit code and print this.
func once(t *testing.T, code int, want, file string, more ...string) {
	t.Helper()
	got, out, err := invoke(t, "", nil, append([]string{"autoscale", "run", file, "--once"}, more...)...)
	if got != code || !strings.Contains(out+err, want) {
		t.Fatalf("%v: exit %d: %s%s\nwant %d: … %s …", more, got, out, err, code, want)
	}
}

// actions are the records of a file that are no decisions to change nothing.
func actions(t *testing.T, file string) string {
	var list []string
	for _, r := range logged(t, file) {
		if r.Kind != autoscale.Hold {
			list = append(list, string(r.Kind))
		}
	}
	return strings.Join(list, " ")
}

// TestAutoscaleOnce: the exit codes; the cooldown is kept from one process to the next.
func TestAutoscaleOnce(t *testing.T) {
	t.Parallel()
	file, path := onTimer(t)
	once(t, 3, "orders: up, 1 → 3 instances: target 3", file, "--detailed-exit-code")
	db := openDatabase(t, "sqlite:"+path("orders.db"))
	if _, err := db.Exec(`DELETE FROM orders`); err != nil {
		t.Fatal(err)
	}
	once(t, 0, "in cooldown", file, "--detailed-exit-code")
	write(t, file, strings.Replace(contents(t, file), "cooldown: 1h", "cooldown: 0s", 1))
	once(t, 0, "orders: succeeded, 1 instances", file) // without the flag, 0
	if _, err := db.Exec(`DROP TABLE orders`); err != nil {
		t.Fatal(err)
	}
	once(t, 1, "orders: metric backlog could not be read: ", file)
	write(t, file, strings.Replace(contents(t, file), "count: ", "count: 'false' # ", 1))
	once(t, 1, "orders: count instances: ", file)
	if got := actions(t, file); got != "up succeeded down succeeded" {
		t.Errorf("the log has %s", got)
	}
}

func contents(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAutoscaleOnceContinues: an action that takes longer than --wait is continued by the
// next run, and carried out once.
func TestAutoscaleOnceContinues(t *testing.T) {
	t.Parallel()
	file, path := onTimer(t)
	write(t, path("hold-scale"), "")
	once(t, 4, "orders: in progress: action 1, from 1 to 3 instances", file, "--detailed-exit-code", "--wait", "1s")
	if exists(path("scalings"))() {
		t.Fatal("the action is said to be in progress, but is done")
	}
	once(t, 0, "action 1, from 1 to 3 instances, is in progress", file, "--wait", "100ms")
	remove(t, path("hold-scale"))
	once(t, 3, "orders: succeeded, 3 instances", file, "--detailed-exit-code")
	if got := contents(t, path("scalings")); got != "1 3\n" {
		t.Errorf("scaled %q, want once", got)
	}
	if got := actions(t, file); got != "up succeeded" {
		t.Errorf("the log has %s", got)
	}
}

// TestAutoscaleOnceOverlaps: a second run finds the lease taken, and does nothing. So does
// one beside a process that runs all the time.
func TestAutoscaleOnceOverlaps(t *testing.T) {
	t.Parallel()
	file, path := onTimer(t)
	write(t, path("hold-scale"), "")
	first := start(t, "", nil, "autoscale", "run", file, "--once")
	await(t, "the first run to scale", exists(path("scaling")))
	once(t, 5, "orders: nothing done: another process works on the resource orders", file, "--detailed-exit-code")
	once(t, 0, "its lease ends when it stops", file)
	remove(t, path("hold-scale"))
	if code := first.wait(); code != 0 {
		t.Errorf("the first run exits with %d: %s", code, first.err.String())
	}
	if got := contents(t, path("scalings")); got != "1 3\n" {
		t.Errorf("scaled %q, want once", got)
	}

	p := start(t, "", nil, "autoscale", "run", file)
	await(t, "the autoscaler to run", func() bool { return strings.Contains(p.err.String(), "msg=autoscaling") })
	once(t, 5, "nothing done", file, "--detailed-exit-code")
	// Another file with the same resource is refused, the same file waits.
	other := path("copy.yaml")
	write(t, other, contents(t, file))
	code, _, err := invoke(t, "", nil, "autoscale", "run", other)
	if code != 1 || !strings.Contains(err, other) || !strings.Contains(err, file) || !strings.Contains(err, ":1:1: name: ") {
		t.Errorf("another file with the same resource: exit %d: %s", code, err)
	}
	next := start(t, "", nil, "autoscale", "run", file)
	await(t, "the second process to wait", func() bool { return strings.Contains(next.err.String(), "waiting for its lease") })
	p.stop()
	await(t, "the second process to run", func() bool { return strings.Contains(next.err.String(), "msg=autoscaling") })
	next.stop()
}

// TestAutoscaleOnceKilled: a run that is killed between decision and execution leaves the
// action to the next one, which carries it out once.
func TestAutoscaleOnceKilled(t *testing.T) {
	t.Parallel()
	file, path := onTimer(t)
	write(t, path("hold-count"), "") // the first count is for the decision, the second for the action
	p := start(t, "", nil, "autoscale", "run", file, "--once")
	await(t, "the run to begin the action", exists(path("counting")))
	p.kill()
	remove(t, path("hold-count"))
	if got := actions(t, file); got != "up" {
		t.Fatalf("the log has %q when the run is killed, want the decision", got)
	}
	await(t, "the end of the lease", func() bool {
		code, out, err := invoke(t, "", nil, "autoscale", "run", file, "--once", "--detailed-exit-code")
		if code != 5 && code != 3 {
			t.Fatalf("exit %d: %s%s", code, out, err)
		}
		return code == 3
	})
	if got := contents(t, path("scalings")); got != "1 3\n" {
		t.Errorf("scaled %q, want once", got)
	}
	if got := actions(t, file); got != "up succeeded" {
		t.Errorf("the log has %s", got)
	}
}

// TestAutoscaleSeveral: three files in one process; one is not valid and is read again.
func TestAutoscaleSeveral(t *testing.T) {
	t.Parallel()
	one, first := autoscaler(t)
	two, second := autoscaler(t)
	three, _ := autoscaler(t)
	write(t, two, strings.Replace(contents(t, two), "name: orders", "name: mail", 1))
	valid := strings.Replace(contents(t, three), "name: orders", "name: returns", 1)
	write(t, three, strings.Replace(valid, "ceil(", "ciel(", 1))
	p := start(t, "", nil, "autoscale", "run", one, two, three)
	await(t, "both to scale", func() bool { return reads(first, "3\n")() && reads(second, "3\n")() })
	await(t, "a line about the third", func() bool { return strings.Contains(p.err.String(), three+":13:11: rule.target: ") })
	write(t, three, valid)
	await(t, "the third to scale", reads(filepath.Join(filepath.Dir(three), "instances"), "3\n"))
	p.stop()
	for _, name := range []string{"orders", "mail", "returns"} {
		if !strings.Contains(p.err.String(), "msg=up resource="+name+" ") {
			t.Errorf("no line about the decision for %s:\n%s", name, p.err.String())
		}
	}
	copied := filepath.Join(filepath.Dir(two), "copied.yaml")
	write(t, copied, contents(t, one))
	code, _, err := invoke(t, "", nil, "autoscale", "run", one, two, copied)
	if code != 1 || !strings.Contains(err, copied+":1:1: name: the resource orders is that of "+one) {
		t.Errorf("two files with one resource: exit %d: %s", code, err)
	}
}
