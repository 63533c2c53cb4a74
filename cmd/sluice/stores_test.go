package main_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/eventhub"
)

// TestStoresWithoutPipelineFile: the dead letters and checkpoints of a program without a pipeline
// file are listed, shown, marked and discarded by its store alone. Nothing is applied, also where
// no partition has an owner.
func TestStoresWithoutPipelineFile(t *testing.T) {
	t.Parallel()
	url := databases["sqlite"](t)
	_, connection := serve(t, 2)
	source, err := eventhub.New(connection, "flights", nil)
	if err != nil {
		t.Fatal(err)
	}
	namespace := source.Group().Namespace
	config := changed(t, "body.delay, type: integer}", "body.wait, type: integer}")
	env := environment(connection, url)
	must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:6]))
	must(t, "", env, "run", config, "--until-caught-up")
	byFile, _ := deadLetters(t, env, config)
	if len(byFile) != 6 {
		t.Fatalf("%d dead letters", len(byFile))
	}

	plain := []string{"STORE=" + url} // no hub, no file
	args := func(command ...string) []string {
		return append(command, "--database", "env:STORE", "--namespace", namespace, "--hub", "flights")
	}
	var letters []letter
	list := func(more ...string) []letter {
		t.Helper()
		letters = nil
		decode(t, must(t, "", plain, append(args("deadletters", "list", "--json"), more...)...), &letters)
		return letters
	}
	if got := list(); len(got) != 6 || got[0] != byFile[0] {
		t.Errorf("listed %+v", got)
	}
	if got := list("--group", "other"); len(got) != 0 {
		t.Errorf("another group has %+v", got)
	}
	decode(t, must(t, "", plain, args("deadletters", "show", "--json", "1", "2")...), &letters)
	if len(letters) != 2 || !strings.Contains(letters[0].Body, `"delay":`) {
		t.Errorf("shown: %+v", letters)
	}
	if out := must(t, "", plain, args("checkpoints", "list")...); strings.Count(out, "\n") != 3 || !strings.Contains(out, "?") || strings.Contains(out, "recreated") {
		t.Errorf("checkpoints:\n%s", out)
	}
	if out := must(t, "", plain, args("deadletters", "retry", "--all")...); !strings.Contains(out, "6 dead letters") {
		t.Errorf("retry: %s", out)
	}
	for _, l := range list() {
		if l.Status != "retry" || l.Attempts != byFile[0].Attempts {
			t.Errorf("after retry: %+v", l)
		}
	}
	if out := must(t, "", plain, args("deadletters", "discard", "1", "2")...); out != "2 dead letters discarded\n" {
		t.Errorf("discard: %s", out)
	}
	// The owner applies those that are marked, once it can.
	must(t, "", env, "run", example(t), "--until-caught-up")
	await(t, "the owner's retries", func() bool {
		must(t, "", env, "run", example(t), "--until-caught-up")
		return count(t, openDatabase(t, url), countRows) == 4
	})
}

// TestFlagsByEnvironment: a variable sets a flag, the command line wins, and what must be written
// each time cannot be set.
func TestFlagsByEnvironment(t *testing.T) {
	t.Parallel()
	url := databases["sqlite"](t)
	_, connection := serve(t, 1)
	env := environment(connection, url, "SLUICE_CONFIG="+example(t))
	must(t, "", env, "run", "--until-caught-up")
	must(t, "", env, "run", "--config", example(t), "--until-caught-up")
	if out := must(t, "", append(env, "SLUICE_JSON=true"), "checkpoints", "list"); !strings.HasPrefix(out, "[") {
		t.Errorf("SLUICE_JSON: %s", out)
	}
	if out := must(t, "", append(env, "SLUICE_JSON=true"), "checkpoints", "list", "--json=false"); strings.HasPrefix(out, "[") {
		t.Errorf("--json=false: %s", out)
	}
	code, _, errs := invoke(t, "", append(env, "SLUICE_LIMIT=few"), "deadletters", "list")
	if code != 2 || !strings.Contains(errs, "SLUICE_LIMIT: --limit few: write a whole number") || strings.Count(errs, "\n") != 1 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	// Variables that other commands use are no mistake beside a flag that names the store in
	// another way.
	for _, c := range [][]string{
		{"SLUICE_HUB=flights", "deadletters", "list"},
		{"SLUICE_DATABASE=" + url, "deadletters", "list", "--config", example(t)},
		{"SLUICE_STAGE=s", "deadletters", "list", "--database", url, "--namespace", "ns", "--hub", "flights"},
	} {
		must(t, "", append(slices.Clone(env), c[0]), c[1:]...)
	}
	if code, _, errs := invoke(t, "", append(slices.Clone(env), "SLUICE_DATABASE="+url), "deadletters", "list"); code != 2 || !strings.Contains(errs, "leave out --config and --stage, or these") {
		t.Errorf("SLUICE_CONFIG and SLUICE_DATABASE: exit code %d: %s", code, errs)
	}
	if code, _, errs := invoke(t, "", append(env, "SLUICE_ALL=true"), "deadletters", "discard"); code != 2 || !strings.Contains(errs, "select dead letters") {
		t.Errorf("SLUICE_ALL: exit code %d: %s", code, errs)
	}
}

// TestCheckWithoutSecrets: the file is checked as far as the variables allow.
func TestCheckWithoutSecrets(t *testing.T) {
	t.Parallel()
	out := must(t, "", nil, "check", "--without-secrets", example(t))
	if !strings.HasSuffix(out, "flights.yaml: valid; not checked, because not set: EVENTHUB_CONNECTION_STRING, DATABASE_URL\n") {
		t.Errorf("printed %s", out)
	}
	wrong := changed(t, "consumer_group:", "consumer_grup:")
	if code, out, errs := invoke(t, "", nil, "check", "--without-secrets", wrong); code != 1 || !strings.Contains(out, "did you mean consumer_group") || strings.Contains(out, "is not set") || strings.Count(errs, "\n") != 1 {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if code, _, _ := invoke(t, "", nil, "check", "--without-secrets", filepath.Join(t.TempDir(), "none.yaml")); code != 1 {
		t.Errorf("a missing file: exit code %d", code)
	}
}
