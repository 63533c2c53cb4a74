package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a system whose checks are functions.
type fake struct {
	rights  []Right
	prepare func(*Ledger) error
	checks  []func(context.Context) Finding
	bound   time.Duration
}

func (f *fake) Name() string                   { return "fake" }
func (f *fake) Rights(context.Context) []Right { return f.rights }
func (f *fake) Creates() []string              { return []string{"a thing"} }
func (f *fake) Close(context.Context)          {}
func (f *fake) Prepare(_ context.Context, made *Ledger) error {
	if f.prepare == nil {
		return nil
	}
	return f.prepare(made)
}

func (f *fake) Checks() []Check {
	list := make([]Check, len(f.checks))
	for i, run := range f.checks {
		list[i] = Check{Name: fmt.Sprint("fake.", i), Assumes: "It works.", Bound: f.bound, Run: run}
	}
	return list
}

func holds(context.Context) Finding { return held("fine") }

// tested are the findings of checks that test an assumption.
func tested(l List) (list List) {
	for _, f := range l {
		if f.Assumes != "" {
			list = append(list, f)
		}
	}
	return list
}

// verdicts are those of the checks.
func verdicts(l List) (list []State) {
	for _, f := range tested(l) {
		list = append(list, f.State)
	}
	return list
}

// left is what could not be removed.
func left(l List) (list []string) {
	for _, f := range l {
		if f.Check == "removal" {
			list = append(list, f.Found+": "+f.Next)
		}
	}
	return list
}

// things is a place where checks leave something.
type things map[string]bool

func (t things) add(made *Ledger, name string) {
	made.Add(name, func(context.Context) error { delete(t, name); return nil })
	t[name] = true
}

// Whatever a check does, the others run, and what was made is removed.
func TestRunnerKeepsItsBounds(t *testing.T) {
	hang := func(ctx context.Context) Finding { <-ctx.Done(); return failed("waiting", ctx.Err()) }
	deaf := func(context.Context) Finding { time.Sleep(time.Hour); return held("late") } // in the bubble
	for name, c := range map[string]struct {
		check func(context.Context) Finding
		want  State
	}{
		"panics":              {func(context.Context) Finding { panic("broken") }, Undecided},
		"waits for ever":      {hang, Undecided},
		"ignores its context": {deaf, Undecided},
		"gives no verdict":    {func(context.Context) Finding { return Finding{} }, Undecided},
		"differs":             {func(context.Context) Finding { return differed("not so") }, Failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				there := things{}
				f := &fake{bound: 5 * time.Second, checks: []func(context.Context) Finding{holds, c.check, holds}, prepare: func(m *Ledger) error { there.add(m, "table"); return nil }}
				began := time.Now()
				report, err := (&Runner{Systems: []System{f}}).Run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if got, want := verdicts(report), []State{OK, c.want, OK}; !slices.Equal(got, want) {
					t.Errorf("verdicts %v, want %v", got, want)
				}
				if took := time.Since(began); took > 5*time.Second+giveUpAfter {
					t.Errorf("took %v", took)
				}
				if len(there) > 0 {
					t.Errorf("left behind: %v", there)
				}
				time.Sleep(time.Hour) // until the deaf check has ended
			})
		})
	}
}

// An interrupted run removes what it made, with a context that has not ended.
func TestInterruptedRunLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		there := things{}
		f := &fake{
			checks: []func(context.Context) Finding{holds, func(ctx context.Context) Finding { cancel(); <-ctx.Done(); return failed("x", ctx.Err()) }, holds},
			prepare: func(m *Ledger) error {
				there.add(m, "table")
				m.Add("row", func(ctx context.Context) error { return ctx.Err() })
				return nil
			},
		}
		report, err := (&Runner{Systems: []System{f}}).Run(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := verdicts(report), []State{OK, Undecided, Undecided}; !slices.Equal(got, want) {
			t.Errorf("verdicts %v, want %v", got, want)
		}
		if len(there)+len(left(report)) > 0 {
			t.Errorf("left behind: %v, %v", there, left(report))
		}
		if code := report.ExitCode(); code != ExitUndecided {
			t.Errorf("exit code %d", code)
		}
	})
}

// Nothing is created if a right is missing in any system, or if the user says no.
func TestNothingIsCreatedWithoutRights(t *testing.T) {
	prepared := false
	prepare := func(*Ledger) error { prepared = true; return nil }
	good := &fake{checks: []func(context.Context) Finding{holds}, prepare: prepare}
	poor := &fake{checks: []func(context.Context) Finding{holds}, prepare: prepare, rights: []Right{{Name: "write", Found: "denied", Next: "grant it"}}}
	asked := false
	confirm := func([]string) error { asked = true; return errors.New("no") }
	report, err := (&Runner{Systems: []System{good, poor}, Confirm: confirm}).Run(t.Context())
	if err != nil || prepared || asked || report.ExitCode() != ExitUndecided {
		t.Errorf("error %v, prepared %t, asked %t, report %+v", err, prepared, asked, report)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil || !strings.Contains(text.String(), "undecided  rights: fake: may not write: denied\n           → grant it") {
		t.Errorf("%v, %s", err, text.String())
	}
	if _, err := (&Runner{Systems: []System{good}, Confirm: confirm}).Run(t.Context()); err == nil || prepared || !asked {
		t.Errorf("error %v, prepared %t, asked %t", err, prepared, asked)
	}
}

// What cannot be removed is named, and the rest is removed all the same.
func TestRemainsAreNamed(t *testing.T) {
	there := things{}
	f := &fake{checks: []func(context.Context) Finding{holds}, prepare: func(m *Ledger) error {
		there.add(m, "first")
		m.Add("stubborn", func(context.Context) error { return errors.New("locked") })
		there.add(m, "last")
		return errors.New("half-way")
	}}
	report, err := (&Runner{Systems: []System{f}}).Run(t.Context())
	if err != nil || len(there) > 0 || len(left(report)) != 1 || left(report)[0] != "stubborn could not be removed: locked: remove it by hand" {
		t.Errorf("error %v, left %v, report %v", err, there, left(report))
	}
	if report.ExitCode() != ExitUndecided || verdicts(report)[0] != Undecided {
		t.Errorf("exit code %d, verdicts %v", report.ExitCode(), verdicts(report))
	}
}

func TestReportHidesSecretsAndNames(t *testing.T) {
	f := &fake{checks: []func(context.Context) Finding{func(context.Context) Finding {
		return differed("contoso.example refused key hunter2 for db, not for dbs").next("ask contoso at 10.1.2.3:443 or [fe80::1%%eth0]:443, version 3.54.1")
	}}}
	report, err := (&Runner{Systems: []System{f}}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	report = report.Redact([]string{"", "hunter2"})
	var named, anonymous strings.Builder
	if err := errors.Join(report.WriteText(&named), report.Anonymous([]string{"contoso", "contoso.example", "db", ""}).WriteText(&anonymous)); err != nil {
		t.Fatal(err)
	}
	if text := named.String(); strings.Contains(text, "hunter2") || !strings.Contains(text, "contoso.example refused key *** for db") {
		t.Errorf("text: %s", text)
	}
	if text := anonymous.String(); !strings.Contains(text, "fake: (name 2) refused key *** for (name 3), not for dbs\n") || !strings.Contains(text, "→ ask (name 1) at (address):443 or (address):443, version 3.54.1\n") {
		t.Errorf("anonymous: %s", text)
	}
	if report.ExitCode() != ExitFailed {
		t.Errorf("exit code %d", report.ExitCode())
	}
}

// find returns a check of a system.
func find(t *testing.T, s System, name string) Check {
	t.Helper()
	for _, c := range s.Checks() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %s", name)
	return Check{}
}

// broken is one assumption that is broken on purpose.
type broken[S System] struct {
	what   string
	check  string // that must name it
	want   State
	damage func(S) // breaks it
}

// expect runs one check of a system.
func expect(t *testing.T, s System, name string, want State) {
	t.Helper()
	c := find(t, s, name)
	got := judged(t.Context(), time.Minute, c.Run)
	if got.State != want {
		t.Errorf("%s is %s, want %s: %s", name, got.State, want, got.Found)
	}
	t.Logf("%s: %s: %s", name, got.State, got.Found)
}

// eachRow runs fn for several rows at the same time, since most of them wait.
func eachRow[S System](t *testing.T, rows []broken[S], fn func(t *testing.T, row broken[S])) {
	var running sync.WaitGroup
	places := make(chan struct{}, 6)
	for _, row := range rows {
		running.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			t.Run(row.what, func(t *testing.T) { fn(t, row) })
		})
	}
	running.Wait()
}

// TestChecksAreDocumented checks that docs/reference/checks.md lists every check with what is
// assumed. With UPDATE=1 it writes the page.
func TestChecksAreDocumented(t *testing.T) {
	const path = "../../../../docs/reference/checks.md"
	var page strings.Builder
	page.WriteString("# What sluice check --write tests\n\nEach row is a check, and what Sluice assumes of the system. [How to run them](../check.md).\n")
	kinds := []struct{ kind, heading string }{
		{"hub", "An event hub"},
		{"kafka", "A topic of Kafka"},
		{"database", "A database"},
		{"server", "Two sessions of a database server"},
		{"blob", "A container of Azure Blob Storage"},
		{"cosmos", "A container of Cosmos DB"},
		{"http", "An HTTP endpoint"},
		{"metric", "A metric of an autoscaler"},
		{"scaling", "A target of an autoscaler"},
	}
	if len(kinds) != len(catalog()) {
		t.Errorf("the page has %d kinds of system, want %d", len(kinds), len(catalog()))
	}
	for _, k := range kinds {
		list := catalog()[k.kind]
		if len(list) == 0 {
			t.Errorf("there are no checks of %s", k.kind)
		}
		fmt.Fprintf(&page, "\n## %s\n\n| check | what Sluice assumes, and why |\n|---|---|\n", k.heading)
		for _, c := range list {
			fmt.Fprintf(&page, "| `%s` | %s |\n", c.name, c.assumes)
		}
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := os.ReadFile(path); err != nil || string(found) != page.String() {
		t.Errorf("%s does not list the checks (%v): run UPDATE=1 go test ./internal/check -run TestChecksAreDocumented in cmd/sluice", path, err)
	}
}

// every reports checks that no row of a table breaks.
func every[S System](t *testing.T, kind string, rows []broken[S], except ...string) {
	t.Helper()
	for _, c := range catalog()[kind] {
		if !slices.Contains(except, c.name) && !slices.ContainsFunc(rows, func(r broken[S]) bool { return r.check == c.name }) {
			t.Errorf("no row breaks what %s assumes", c.name)
		}
	}
}

// named is a check without its function.
type named struct{ name, assumes string }

// catalog lists all checks of all kinds of system, by kind.
func catalog() map[string][]named {
	return map[string][]named{
		"hub":      names(hubChecks),
		"kafka":    names(kafkaChecks),
		"database": append(names(databaseChecks), names(leaseTable)...),
		"server":   names(sessionChecks),
		"blob":     append(names(blobChecks), names(leaseTable)...),
		"cosmos":   names(cosmosChecks),
		"http":     names(httpChecks),
		"metric":   names(metricChecks),
		"scaling":  names(scalingChecks),
	}
}

func names[S any](table []check[S]) []named {
	list := make([]named, len(table))
	for i, c := range table {
		list[i] = named{c.name, c.assumes}
	}
	return list
}
