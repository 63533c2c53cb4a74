package config_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/config"
)

// directory is a directory with files of autoscalers.
type directory struct {
	*testing.T
	path string
}

func (d *directory) file(name string) string { return filepath.Join(d.path, name) }

func (d *directory) write(name, text string) string {
	d.Helper()
	if err := os.WriteFile(d.file(name), []byte(text), 0o600); err != nil {
		d.Fatal(err)
	}
	return d.file(name)
}

// scaling writes NAME.yaml, which scales the number in the file NAME to four, and keeps
// the state in state.db.
func (d *directory) scaling(name string, replacements ...string) string {
	text := fmt.Sprintf(`every: 100ms
metrics: {backlog: {sql: {database: "sqlite:%[1]s/metrics.db", query: SELECT 4000}}}
target: {command: {count: 'cat %[1]s/%[2]s || echo 1', scale: 'echo $SLUICE_INSTANCES > %[1]s/%[2]s'}}
rule: {target: ceil(backlog / 1000), points: 1, max: 4, stale: 10s, window: 10s}
state: {sqlite: "%[1]s/state.db"}
`, d.path, name)
	return d.write(name+".yaml", strings.NewReplacer(replacements...).Replace(text))
}

// run runs a group until every one of the resources has scaled.
func (d *directory) run(g *config.Group, log *slog.Logger, resources ...string) error {
	ctx, cancel := context.WithTimeout(d.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	waiting := slices.Clone(resources)
	err := g.Run(ctx, &config.Options{Log: log, OnRecord: func(r autoscale.Record) {
		mu.Lock()
		defer mu.Unlock()
		if r.Kind == autoscale.ActionSucceeded {
			waiting = slices.DeleteFunc(waiting, func(name string) bool { return name == r.Resource })
		}
		if len(waiting) == 0 {
			cancel()
		}
	}})
	for _, name := range waiting {
		d.Errorf("%s has not scaled", name)
	}
	return err
}

// logFile collects log lines.
type logFile struct {
	mu     sync.Mutex
	text   strings.Builder
	onLine func(line string)
}

func (l *logFile) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(line)
	if l.onLine != nil {
		l.onLine(string(line))
	}
	return len(line), nil
}

func (l *logFile) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestGroup: a target that fails, a file that is not valid and a state that cannot be
// opened stop no other resource. The latter two are tried again, and run once they are
// repaired.
func TestGroup(t *testing.T) {
	d := &directory{t, t.TempDir()}
	d.write("metrics.db", "")
	paths := []string{
		d.scaling("orders"),
		d.scaling("down", "cat "+d.file("down")+" || echo 1", "exit 3"),
		d.scaling("broken", "ceil(", "ciel("),
		d.scaling("lost", d.file("state.db"), d.file("later/state.db")),
		d.scaling("mail"),
	}
	g, err := config.LoadGroup(config.AllParts, paths...)
	if err != nil {
		t.Fatal(err)
	}
	log := &logFile{onLine: func(line string) {
		switch { // repair what was reported
		case strings.Contains(line, "broken.yaml:4:") && strings.Contains(line, "rule.target"):
			d.scaling("broken")
		case strings.Contains(line, "lost.yaml:5:1: state: "):
			if err := os.Mkdir(d.file("later"), 0o700); err != nil {
				t.Error(err)
			}
		}
	}}
	defer func() {
		if t.Failed() {
			t.Log(log)
		}
	}()
	logger := slog.New(slog.NewTextHandler(log, nil))
	if err := d.run(g, logger, "orders", "mail", "broken", "lost"); err != nil {
		t.Errorf("after all are repaired: %v", err)
	}
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "resource=") && !strings.Contains(line, "file=") {
			t.Errorf("a line names no resource: %s", line)
		}
	}
	if !strings.Contains(log.String(), "resource=down error=\"count instances: ") {
		t.Errorf("no line about the target that is down:\n%s", log.String())
	}

	// What does not run at the end is an error.
	d.scaling("broken", "ceil(", "ciel(")
	g, err = config.LoadGroup(config.AllParts, d.file("broken.yaml"), d.scaling("late"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.run(g, nil, "late"); err == nil || !strings.Contains(err.Error(), "broken.yaml:4:") {
		t.Errorf("a file that was never valid: %v", err)
	}
	if _, err = config.LoadGroup(config.AllParts, d.file("broken.yaml"), d.file("nowhere.yaml")); err == nil || strings.Count(err.Error(), "yaml") != 2 {
		t.Errorf("no file is valid: %v", err)
	}
}

// TestConflicts: two files that claim the same are refused, with both names.
func TestConflicts(t *testing.T) {
	d := &directory{t, t.TempDir()}
	azure := func(more string) string {
		return "state: {azure: {connection: UseDevelopmentStorage=true" + more + "}}"
	}
	state := `state: {sqlite: "` + d.file("state.db") + `"}`
	workers := func(more string) []string {
		return []string{"target: {command: {count: 'cat " + d.file("a") + " || echo 1', scale: 'echo $SLUICE_INSTANCES > " + d.file("a") + "'}}",
			"target: {workers: {command: sleep 1" + more + "}}"}
	}
	all, parts := config.AllParts, config.Logic
	for _, c := range []struct {
		mode        config.Mode
		first, more []string // replacements in the files a and b
		want        string   // after the place
	}{
		{all, nil, nil, ""},
		{all, nil, []string{"every:", "name: a\nevery:"}, "b.yaml:1:1: name: the resource a is that of "},
		{all, []string{"every:", "name: b\nevery:"}, nil, "b.yaml: the resource b is that of "},
		{all, nil, []string{d.file("b"), d.file("a")}, "b.yaml:3:1: target: the same target as in "},
		{all, workers(""), workers(""), ""},
		{all, workers(", directory: w"), append([]string{"/b ", "/a ", "/b'", "/a'"}, workers(", directory: ./w/")...), ""},
		{parts, []string{state, azure("")}, []string{state, azure("")}, ""},
		{parts, []string{state, azure(", prefix: x-")}, []string{state, azure(", prefix: y-")}, ""},
		{parts, []string{state, azure(", prefix: x-")}, []string{state, azure(", prefix: x-")}, "b.yaml:5:9: state.azure: the queues x-metrics, x-actions and x-reports as in "},
		{parts, []string{state, azure(", published_queues: true")}, []string{state, azure(", published_queues: true")}, "b.yaml:5:9: state.azure: the queues metrics, actions and reports as in "},
		{all, []string{state, azure(", published_queues: true")}, []string{state, azure(", published_queues: true")}, ""}, // they use no queues
	} {
		a, b := d.scaling("a", c.first...), d.scaling("b", c.more...)
		_, err := config.LoadGroup(c.mode, a, b)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v and %v: %v", c.first, c.more, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), a)):
			t.Errorf("%v and %v: got %v, want … %s … %s …", c.first, c.more, err, c.want, a)
		}
	}
	// Parsing refuses both at once.
	if _, err := parse(metrics + target + "rule: {upper: 5, lower: 3}\n" + azure(", prefix: x-, published_queues: true")); err == nil || !strings.Contains(err.Error(), "orders.yaml:5:9: state.azure: prefix and published_queues exclude each other") {
		t.Errorf("prefix and published_queues: %v", err)
	}
}
