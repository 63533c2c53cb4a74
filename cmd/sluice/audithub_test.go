package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

type auditReport struct {
	Exact  bool
	Total  struct{ Held, Written, Waiting int64 }
	Faults []struct {
		Kind, Partition string
		First, Last     int64
	}
}

// TestAuditHub runs a pipeline, audits it, and spoils what it has written.
func TestAuditHub(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		_, connection := serve(t, 2)
		env := environment(connection, url)
		config := example(t)
		must(t, "", env, "send", "--hub", "flights", "--key-field", "distance", writeLines(t, flights20k(t)[:4000]), writeLines(t, spoiled(10)))
		must(t, "", env, "run", config, "--until-caught-up", "--within", "2m")
		audit := func(code int, faults ...string) auditReport {
			t.Helper()
			got, out, errs := invoke(t, "", env, "audit", "hub", "--config", config, "--json")
			var r auditReport
			if err := json.Unmarshal([]byte(out), &r); err != nil || got != code || r.Exact != (code == 0) {
				t.Fatalf("exit code %d: %v\n%s%s", got, err, out, errs)
			}
			var found []string
			for _, f := range r.Faults {
				found = append(found, fmt.Sprintf("%s %s %d-%d", f.Kind, f.Partition, f.First, f.Last))
			}
			if !slices.Equal(found, faults) {
				t.Errorf("found %v, want %v", found, faults)
			}
			return r
		}
		whole := audit(0)
		must(t, "", env, "send", "--hub", "flights", "--key-field", "distance", writeLines(t, spoiled(6)))
		if r := audit(0); r.Total.Waiting != 6 || r.Total.Held != whole.Total.Held+6 {
			t.Errorf("with six events more it counts %+v", r.Total)
		}

		db := openDatabase(t, url)
		exec := func(text string) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		exec(`DELETE FROM flights WHERE hub_partition = '0' AND sequence_number BETWEEN 100 AND 102`)
		exec(`INSERT INTO flights SELECT * FROM flights WHERE hub_partition = '1' AND sequence_number = 50`)
		audit(1, "missing 0 100-102", "doubled 1 50-50")
		letter := count(t, db, `SELECT min(sequence_number) FROM sluice_dead_letters WHERE sluice_dead_letters.partition = '1'`)
		exec(`DELETE FROM sluice_dead_letters WHERE sluice_dead_letters.partition = '1' AND sequence_number = ` + fmt.Sprint(letter))
		last := count(t, db, `SELECT max(sequence_number) FROM sluice_checkpoints WHERE sluice_checkpoints.partition = '0'`)
		exec(`UPDATE sluice_checkpoints SET sequence_number = sequence_number + 2 WHERE sluice_checkpoints.partition = '0'`)
		audit(1, "missing 0 100-102", fmt.Sprintf("missing 0 %d-%d", last+1, last+2), "doubled 1 50-50", fmt.Sprintf("missing 1 %d-%d", letter, letter))

		page := filepath.Join(t.TempDir(), "audit.html")
		code, out, errs := invoke(t, "", env, "audit", "hub", "--config", config, "--html", page)
		for _, want := range []string{"partition 0: events 100 to 102 are lost", "partition 1: event 50 is duplicated", "Not exact: 6 lost, 1 duplicated, of "} {
			if code != 1 || !strings.Contains(out, want) || !strings.HasSuffix(errs, "sluice: not exact: events are lost or duplicated\n") {
				t.Errorf("exit code %d:\n%s%s", code, out, errs)
			}
		}
		if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "Not exact: 6 lost") {
			t.Errorf("the page: %v", err)
		}
	})
}

// TestAuditHubOfALateStart: a pipeline that starts at the latest event and loses everything has
// lost it, and what came before its start counts for nothing.
func TestAuditHubOfALateStart(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		_, connection := serve(t, 1)
		env := environment(connection, url)
		config := changed(t, "start: earliest", "start: latest")
		events := flights20k(t)
		must(t, "", env, "send", "--hub", "flights", writeLines(t, events[:50]))
		must(t, "", env, "run", config, "--until-caught-up", "--within", "2m")
		must(t, "", env, "send", "--hub", "flights", writeLines(t, events[50:80]))
		must(t, "", env, "run", config, "--until-caught-up", "--within", "2m")
		if out := must(t, "", env, "audit", "hub", "--config", config); !strings.Contains(out, "Nothing lost, nothing duplicated: 80 events, 50 before the beginning, 30 written") || !strings.Contains(out, "50 start") {
			t.Errorf("without a loss: %s", out)
		}
		if _, err := openDatabase(t, url).ExecContext(t.Context(), "DELETE FROM flights"); err != nil {
			t.Fatal(err)
		}
		// The configuration of today says nothing about the beginning.
		for _, config := range []string{config, example(t)} {
			code, out, errs := invoke(t, "", env, "audit", "hub", "--config", config)
			if code != 1 || !strings.Contains(out, "partition 0: events 50 to 79 are lost\n") || !strings.Contains(out, "50 events are before the beginning") {
				t.Errorf("all lost: exit code %d: %s%s", code, out, errs)
			}
		}
	})
}

// TestAuditHubWithoutARecord: where the checkpoint does not say where it began, nothing is decided,
// and the error has the command that records it.
func TestAuditHubWithoutARecord(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		_, connection := serve(t, 1)
		env := environment(connection, url)
		config := example(t)
		events := flights20k(t)
		must(t, "", env, "send", "--hub", "flights", writeLines(t, events[:50]))
		must(t, "", env, "run", config, "--until-caught-up", "--within", "2m")
		must(t, "", env, "audit", "hub", "--config", config)
		db := openDatabase(t, url)
		exec := func(text string) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		undecided := func(why string) string {
			t.Helper()
			code, out, errs := invoke(t, "", env, "audit", "hub", "--config", config)
			if code != 3 || !strings.HasPrefix(errs, "sluice: cannot decide: partition 0 "+why) || strings.Count(errs, "\n") != 1 || strings.Contains(out, "Nothing lost") {
				t.Errorf("exit code %d, %s%s", code, out, errs)
			}
			return errs
		}
		exec(`UPDATE sluice_checkpoints SET began_how = ''`) // as an earlier version stores it
		errs := undecided("does not record where it began")
		_, command, found := strings.Cut(errs, "sluice checkpoints ")
		if want := fmt.Sprintf("set --config %s --partition 0 --to \"sequence 50\"\n", config); !found || command != want {
			t.Fatalf("the next step is %q, want %q", command, want)
		}
		must(t, "", env, "checkpoints", "set", "--config", config, "--partition", "0", "--to", "sequence 50")
		must(t, "", env, "send", "--hub", "flights", writeLines(t, events[50:60]))
		must(t, "", env, "run", config, "--until-caught-up", "--within", "2m")
		exec(`DELETE FROM flights WHERE sequence_number = 55`)
		if code, out, errs := invoke(t, "", env, "audit", "hub", "--config", config); code != 1 || !strings.Contains(out, "partition 0: event 55 is lost\n") || !strings.Contains(out, "50 events are before the beginning") {
			t.Errorf("after the command: exit code %d, %s%s", code, out, errs)
		}
		exec(`DELETE FROM sluice_checkpoints`)
		if errs := undecided("has no checkpoint"); !strings.Contains(errs, "run the pipeline") {
			t.Error(errs)
		}
	})
}

func TestAuditHubMistakes(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 1)
	env := environment(connection, "sqlite:"+filepath.Join(t.TempDir(), "none.db"))
	config := example(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--config", config, "--consumer-group", "$Default"}, "--consumer-group $Default is the pipeline's own"},
		{[]string{"--config", config, "--bin", "1s"}, "--bin 1s: must be at least 1m"},
		{[]string{"--config", config, "--ru", "0"}, "--ru 0: must be 1 to 10000000"},
		{[]string{"--config", config, "--ru", "100"}, "--ru 100 is for a target in Cosmos DB, and that of flights is insert: remove it"},
		{[]string{"--config", config, "--target-consumer-group", "a"}, "--target-consumer-group a is for a hub as the target, and that of flights is insert: remove it"},
		{[]string{"--config", config, "--subscription", "s"}, "--subscription s is for a topic of Service Bus as the target, and that of flights is insert: remove it"},
		{[]string{"--config", "none.yaml"}, "none.yaml: cannot be read"},
		{[]string{"--config", config}, "none.db"},
		{[]string{"--config", changed(t, "      hub_partition: partition\n", "")}, "table flights: no column is mapped from partition"},
	} {
		code, _, errs := invoke(t, t.TempDir(), env, append([]string{"audit", "hub"}, c.args...)...)
		wanted := 3 // it cannot decide
		if strings.Contains(errs, "; see sluice audit") {
			wanted = 2 // wrong usage
		}
		if code != wanted || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit code %d: %s", c.args, code, errs)
		}
	}
}
