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

// verified is a report as --json prints it.
type verified struct {
	Result  string
	Held    int
	Systems []struct {
		System string
		Rights []struct {
			Name    string
			Granted bool
			Next    string
		}
		Checks []struct{ Name, Verdict, Found string }
	}
	Left []string
}

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

// The hub, the database and the container of a pipeline are checked, and the file to send names none
// of them.
func TestVerifyPipeline(t *testing.T) {
	t.Parallel()
	srv, err := emulator.Start([]emulator.Hub{{Name: "docs", Partitions: 2, ConsumerGroups: []string{"sluice-verify"}}}, nil)
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
	code, out, stderr := invoke(t, dir, env, "verify", "--config", config, "--send", "20", "--yes", "--json")
	var report verified
	decode(t, out, &report)
	if code != 0 || report.Result != "held" || len(report.Systems) != 3 || len(report.Left) > 0 || report.Held < 25 {
		t.Errorf("exit code %d, report %+v, %s", code, report, stderr)
	}
	if list := names(t, dir); !slices.Equal(list, []string{"sluice-verify.json"}) {
		t.Errorf("files %v", list)
	}
	if stats, err := account.ContainerStats("db", "docs"); err != nil || stats.Documents != 0 {
		t.Errorf("error %v, %d documents", err, stats.Documents)
	}
	text, err := os.ReadFile(filepath.Join(dir, "sluice-verify.json"))
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
func TestVerifyInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir, nil, "verify", "--store", "sqlite:flights.db", "--yes", "--json", "--report", "")
	await(t, "the database of the checks", func() bool {
		return slices.ContainsFunc(names(t, dir), func(name string) bool { return strings.HasPrefix(name, "flights.db.sluice-verify-") })
	})
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != 3 {
		t.Errorf("exit code %d", code)
	}
	var report verified
	decode(t, p.out.String(), &report)
	if list := names(t, dir); len(list) > 0 || len(report.Left) > 0 || report.Result != "undecided" {
		t.Errorf("files %v, report %+v", list, report)
	}
}

// A right that is missing is named before anything is made, also of another store.
func TestVerifyMissingRight(t *testing.T) {
	t.Parallel()
	srv, err := emulator.Start([]emulator.Hub{{Name: "docs", Partitions: 1, ConsumerGroups: []string{"sluice-verify"}}}, &emulator.Config{Keys: []emulator.Key{{Name: "reader", Secret: "c2VjcmV0LWNhbmFyeQ==", Rights: emulator.Listen}}})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	dir := t.TempDir()
	code, out, stderr := invoke(t, dir, []string{"HUB=" + srv.ConnectionString()}, "verify", "--source", "env:HUB", "--hub", "docs", "--store", "sqlite:flights.db", "--send", "5", "--json", "--report", "")
	var report verified
	decode(t, out, &report)
	missing := 0
	for _, s := range report.Systems {
		for _, r := range s.Rights {
			if !r.Granted {
				missing++
				if r.Name != "send to the hub" || r.Next == "" {
					t.Errorf("right %+v", r)
				}
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

func TestVerifyMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "nothing to check: pass --source, --store, --config or --autoscale"},
		{[]string{"--store", "sqlite:x.db", "--scale"}, "--scale is for the target of an autoscaler: pass --autoscale too"},
		{[]string{"--store", "oracle://x"}, "--store: write sqlite:PATH, postgres://"},
		{[]string{"--store", "mysql://u:secret@x"}, "--store: MySQL URL: names no database"},
		{[]string{"--store", "sqlserver://u:secret@x"}, "--store: SQL Server URL: names no database"},
		{[]string{"--store", "env:NOT_SET"}, "--store: the environment variable NOT_SET is not set"},
		{[]string{"--store", "sqlite:x.db", "--send", "-1"}, "--send -1"},
		{[]string{"--hub", "x", "--store", "sqlite:x.db"}, "--hub names the hub of --source"},
		{[]string{"--store", "sqlite:x.db"}, "there is no terminal to ask on: pass --yes"},
	} {
		dir := t.TempDir()
		code, _, stderr := invoke(t, dir, nil, append([]string{"verify"}, c.args...)...)
		if code != 2 || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit code %d, %s", c.args, code, stderr)
		}
		if list := names(t, dir); len(list) > 0 {
			t.Errorf("%q: files %v", c.args, list)
		}
	}
}

// An error that prevents a verdict does not have the exit code of a difference.
func TestVerifyErrors(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--config", "missing.yaml"},
		{"--store", "sqlite:missing/x.db", "--report", "missing/report.json"},
	} {
		if code, _, stderr := invoke(t, t.TempDir(), nil, append([]string{"verify", "--yes"}, args...)...); code != 3 || !strings.Contains(stderr, "no such file") {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}

// The metrics and the target of an autoscaler are checked. Only with --scale is the number of instances
// changed, and then it is set back.
func TestVerifyAutoscaler(t *testing.T) {
	t.Parallel()
	file, instances := autoscaler(t)
	for _, c := range []struct {
		flag string
		want map[string]string
	}{
		{"", map[string]string{"metric.read": "held", "metric.late": "skipped", "metric.settled": "skipped", "scaling.count": "held", "scaling.repeat": "held", "scaling.change": "skipped"}},
		{"--scale", map[string]string{"scaling.repeat": "held", "scaling.change": "held"}},
	} {
		dir := t.TempDir()
		args := []string{"verify", "--autoscale", file, "--yes", "--json"}
		if c.flag != "" {
			args = append(args, c.flag)
		}
		code, out, stderr := invoke(t, dir, nil, args...)
		var report verified
		decode(t, out, &report)
		got := map[string]string{}
		for _, s := range report.Systems {
			for _, check := range s.Checks {
				got[check.Name] = check.Verdict
			}
		}
		for name, want := range c.want {
			if got[name] != want {
				t.Errorf("%s is %q, want %q", name, got[name], want)
			}
		}
		if code != 0 || len(report.Systems) != 2 || len(report.Left) > 0 || !reads(instances, "1\n")() {
			t.Errorf("exit code %d, report %+v, %s", code, report, stderr)
		}
		text, err := os.ReadFile(filepath.Join(dir, "sluice-verify.json"))
		if err != nil || !bytes.Contains(text, []byte("scaling.change")) || bytes.Contains(text, []byte(filepath.Base(filepath.Dir(filepath.Dir(file))))) || bytes.Contains(text, []byte("backlog")) {
			t.Errorf("error %v, file %s", err, text)
		}
	}
	if code, _, stderr := invoke(t, "", nil, "verify", "--autoscale", file+".not", "--yes"); code != 3 || !strings.Contains(stderr, "cannot be read") {
		t.Errorf("no such file: exit code %d, %s", code, stderr)
	}
}
