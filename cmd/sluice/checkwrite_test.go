package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-go/sluice/emulator"
)

// names lists the files in a directory.
func names(t testing.TB, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// The hub, the database and the container of a pipeline are checked, and the file to send names
// none of them.
func TestCheckWritePipeline(t *testing.T) {
	t.Parallel()
	srv, err := emulator.Start([]emulator.Hub{{Name: "docs", Partitions: 2, ConsumerGroups: []string{"sluice-check"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	account, err := emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "docs", KeyPaths: []string{"/key"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer account.Close()
	dir := t.TempDir()
	env := []string{
		"EVENTHUB_CONNECTION_STRING=" + srv.ConnectionString(), "DATABASE_URL=sqlite:docs.db", "COSMOS_RU=1000",
		"COSMOS_ENDPOINT=" + account.Endpoint(), "COSMOS_KEY=" + account.Key(),
	}
	config, err := filepath.Abs("../../examples/cosmos.yaml")
	if err != nil {
		t.Fatal(err)
	}
	code, out, stderr := invoke(t, dir, env, "check", config, "--write", "--send", "20", "--yes", "--json")
	var report examined
	decode(t, out, &report)
	if code != 0 || report.Result != "warning" || len(report.findings("removal")) > 0 || report.Counts["ok"] < 25 || len(report.findings("db.atomic"))*len(report.findings("hub.next"))*len(report.findings("cosmos.etag")) != 1 {
		t.Errorf("exit code %d, report %+v, %s", code, report, stderr)
	}
	if list := names(t, dir); !slices.Equal(list, []string{"sluice-check.json"}) {
		t.Errorf("files %v", list)
	}
	if stats, err := account.ContainerStats("db", "docs"); err != nil || stats.Documents != 0 {
		t.Errorf("error %v, %d documents", err, stats.Documents)
	}
	text, err := os.ReadFile(filepath.Join(dir, "sluice-check.json"))
	if err != nil || !json.Valid(text) {
		t.Errorf("error %v, file %s", err, text)
	}
	for _, name := range []string{"127.0.0.1", "docs.db", "SAS_KEY_VALUE", account.Key(), "db/docs"} {
		if bytes.Contains(text, []byte(name)) {
			t.Errorf("the file names %s: %s", name, text)
		}
	}
}

// ^C during the checks leaves nothing, and says that nothing was decided.
func TestCheckWriteInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir, nil, "check", "--write", "--store", "sqlite:flights.db", "--yes", "--json", "--report", "")
	await(t, "the database of the checks", func() bool {
		return slices.ContainsFunc(names(t, dir), func(name string) bool { return strings.HasPrefix(name, "flights.db.sluice-check-") })
	})
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != 3 {
		t.Errorf("exit code %d", code)
	}
	var report examined
	decode(t, p.out.String(), &report)
	if list := names(t, dir); len(list) > 0 || len(report.findings("removal")) > 0 || report.Result != "undecided" {
		t.Errorf("files %v, report %+v", list, report)
	}
}

// A right that is missing is named before anything is made, also of another store.
func TestCheckWriteMissingRight(t *testing.T) {
	t.Parallel()
	srv, err := emulator.Start([]emulator.Hub{{Name: "docs", Partitions: 1, ConsumerGroups: []string{"sluice-check"}}}, &emulator.Config{Keys: []emulator.Key{{Name: "reader", Secret: "c2VjcmV0LWNhbmFyeQ==", Rights: emulator.Listen}}})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	dir := t.TempDir()
	code, out, stderr := invoke(t, dir, []string{"HUB=" + srv.ConnectionString()}, "check", "--write", "--source", "env:HUB", "--hub", "docs", "--store", "sqlite:flights.db", "--send", "5", "--json", "--report", "")
	var report examined
	decode(t, out, &report)
	missing := 0
	for _, r := range report.findings("rights") {
		if r.State != "ok" {
			missing++
			if !strings.Contains(r.Found, "may not send to the hub") || r.Next == "" {
				t.Errorf("right %+v", r)
			}
		}
	}
	if code != 3 || missing != 1 || len(names(t, dir)) > 0 {
		t.Errorf("exit code %d, %d rights are missing, files %v", code, missing, names(t, dir))
	}
	if strings.Contains(out+stderr, "c2VjcmV0LWNhbmFyeQ==") {
		t.Errorf("the key is printed: %s%s", out, stderr)
	}
}

func TestCheckWriteMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "name the pipeline: pass PIPELINE.yaml or --config PIPELINE.yaml, or --source, --store or --autoscale"},
		{[]string{"--store", "sqlite:x.db", "--scale"}, "--scale is for the target of an autoscaler: pass --autoscale too"},
		{[]string{"--store", "oracle://x"}, "--store: write sqlite:PATH, postgres://"},
		{[]string{"--store", "mysql://u:secret@x"}, "--store: MySQL URL: names no database"},
		{[]string{"--store", "sqlserver://u:secret@x"}, "--store: SQL Server URL: names no database"},
		{[]string{"--store", "env:NOT_SET"}, "--store: the environment variable NOT_SET is not set"},
		{[]string{"--store", "sqlite:x.db", "--send", "-1"}, "--send -1"},
		{[]string{"--without-secrets", "x.yaml"}, "--without-secrets checks only a pipeline file"},
		{[]string{"--write=false", "--store", "sqlite:x.db", "--send", "5"}, "--send, --load and --scale go with --write"},
		{[]string{"--hub", "x", "--store", "sqlite:x.db"}, "--hub names the hub of --source"},
		{[]string{"--store", "sqlite:x.db"}, "there is no terminal to ask on: pass --yes"},
	} {
		dir := t.TempDir()
		code, _, stderr := invoke(t, dir, nil, append([]string{"check", "--write"}, c.args...)...)
		if code != 2 || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit code %d, %s", c.args, code, stderr)
		}
		if list := names(t, dir); len(list) > 0 {
			t.Errorf("%q: files %v", c.args, list)
		}
	}
}

// An error that prevents a verdict does not have the exit code of a difference.
func TestCheckWriteErrors(t *testing.T) {
	t.Parallel()
	code, _, stderr := invoke(t, t.TempDir(), nil, "check", "--write", "--yes", "--store", "sqlite:missing/x.db", "--report", "missing/report.json")
	if code != 3 || !strings.Contains(stderr, "no such file") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// The metrics and the target of an autoscaler are checked. Only with --scale is the number of
// instances changed, and then it is set back.
func TestCheckWriteAutoscaler(t *testing.T) {
	t.Parallel()
	file, instances := autoscaler(t)
	for _, c := range []struct {
		flag string
		want map[string]string
	}{
		{"", map[string]string{"metric.read": "ok", "metric.late": "skipped", "metric.settled": "skipped", "scaling.count": "ok", "scaling.repeat": "ok", "scaling.change": "skipped"}},
		{"--scale", map[string]string{"scaling.repeat": "ok", "scaling.change": "ok"}},
	} {
		dir := t.TempDir()
		args := []string{"check", "--write", "--autoscale", file, "--yes", "--json"}
		if c.flag != "" {
			args = append(args, c.flag)
		}
		code, out, stderr := invoke(t, dir, nil, args...)
		var report examined
		decode(t, out, &report)
		got := map[string]string{}
		for _, f := range report.Findings {
			got[f.Check] = f.State
		}
		for name, want := range c.want {
			if got[name] != want {
				t.Errorf("%s is %q, want %q", name, got[name], want)
			}
		}
		if code != 0 || report.File != "" || len(report.findings("removal")) > 0 || !reads(instances, "1\n")() {
			t.Errorf("exit code %d, report %+v, %s", code, report, stderr)
		}
		text, err := os.ReadFile(filepath.Join(dir, "sluice-check.json"))
		if err != nil || !bytes.Contains(text, []byte("scaling.change")) || bytes.Contains(text, []byte(filepath.Base(filepath.Dir(filepath.Dir(file))))) || bytes.Contains(text, []byte("backlog")) {
			t.Errorf("error %v, file %s", err, text)
		}
	}
	if code, out, stderr := invoke(t, "", nil, "check", "--write", "--autoscale", file+".not", "--yes"); code != 1 || !strings.Contains(out, "cannot be read") {
		t.Errorf("no such file: exit code %d, %s%s", code, out, stderr)
	}
}
