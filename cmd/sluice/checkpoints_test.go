package main_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestCheckpointsAreListedAndSet(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		_, connection := serve(t, 2)
		env := environment(connection, url)
		config := quick(t, url)
		db := openDatabase(t, url)
		must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:200]))
		unread := checkpoints(t, env, config)
		for _, c := range unread {
			if c.Position != nil || *c.Lag != 100 {
				t.Errorf("before anything was read: %+v", c)
			}
		}
		if path, is := strings.CutPrefix(url, "sqlite:"); is {
			if _, err := os.Stat(path); unread != nil || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a list of a database that does not exist is %+v, and there is its file: %v", unread, err)
			}
		} else if len(unread) != 2 {
			t.Errorf("before anything was read: %+v", unread)
		}
		if path, is := strings.CutPrefix(url, "sqlite:"); is {
			out := must(t, "", env, "checkpoints", "set", "--config", config, "--partition", "0", "--to", "sequence 60", "--dry-run")
			if _, err := os.Stat(path); out != "would set partition 0: no checkpoint → 59: 60 events are skipped\n" || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a dry run before there is a database says %s, and there is its file: %v", out, err)
			}
		}
		must(t, "", env, "run", config, "--until-caught-up")
		set := func(more ...string) (int, string, string) {
			return invoke(t, "", env, append([]string{"checkpoints", "set", "--config", config}, more...)...)
		}

		code, out, _ := set("--all", "--to", "earliest", "--dry-run")
		if code != 0 || out != "would set partition 0: 99 → origin: 100 events are repeated\nwould set partition 1: 99 → origin: 100 events are repeated\n" {
			t.Errorf("dry run: exit code %d, %s", code, out)
		}
		if c := checkpoints(t, env, config)[0]; *c.Position != 99 || *c.Lag != 0 {
			t.Errorf("a dry run has moved the checkpoint: %+v", c)
		}

		// Back: the events are delivered again.
		var moves []struct {
			Partition         string
			From              *int64
			To                int64
			Repeated, Skipped int64
			Epoch             int64
		}
		before := checkpoints(t, env, config)[1]
		_, out, _ = set("--partition", "1", "--to", "sequence 60", "--json")
		decode(t, out, &moves)
		if m := moves[0]; len(moves) != 1 || m.Partition != "1" || *m.From != 99 || m.To != 59 || m.Repeated != 40 || m.Skipped != 0 || m.Epoch <= before.Epoch {
			t.Errorf("moved %+v", moves)
		}
		must(t, "", env, "run", config, "--until-caught-up")
		if n := count(t, db, countRows+" WHERE hub_partition = '1' AND sequence_number >= 60"); n != 80 {
			t.Errorf("%d rows of the repeated events", n)
		}

		// Forward: events are skipped.
		must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:20]))
		if code, out, _ := set("--partition", "0", "--to", "latest"); code != 0 || out != "partition 0: 99 → 109: 10 events are skipped\n" {
			t.Errorf("forward: exit code %d, %s", code, out)
		}
		must(t, "", env, "run", config, "--until-caught-up")
		if n := count(t, db, countRows+" WHERE sequence_number >= 100"); n != 10 {
			t.Errorf("%d rows of the later events", n)
		}
		if code, _, errs := set("--partition", "0", "--to", "offset nonsense"); code != 1 || strings.Count(errs, "\n") != 1 {
			t.Errorf("nonsense: exit code %d, %s", code, errs)
		}
	})
}

func TestCheckpointsAreNotSetUnderALiveOwner(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		_, connection := serve(t, 1)
		env := environment(connection, url)
		config := changed(t, longLease...)
		db := openDatabase(t, url)
		must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:100]))
		owner := start(t, "", env, "run", config)
		await(t, "all rows", func() bool { return count(t, db, countRows) == 100 })
		for _, more := range [][]string{nil, {"--dry-run"}} {
			code, out, errs := invoke(t, "", env, append([]string{"checkpoints", "set", "--config", config, "--all", "--to", "earliest"}, more...)...)
			if code != 1 || out != "" || !strings.Contains(errs, "partition 0 is owned by ") || !strings.Contains(errs, "--force") {
				t.Errorf("exit code %d: %s%s", code, out, errs)
			}
		}
		out := must(t, "", env, "checkpoints", "set", "--config", config, "--all", "--to", "sequence 90", "--force")
		if !strings.Contains(out, " is fenced, 10 events are repeated") {
			t.Errorf("it says %s", out)
		}
		must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:1]))
		await(t, "the repeated rows", func() bool { return count(t, db, countRows) == 111 })
		owner.stop()
		list := rows(t, db)
		for s := range int64(101) {
			want := 1
			if s >= 90 && s < 100 {
				want = 2
			}
			if n := len(slices.DeleteFunc(slices.Clone(list), func(e event) bool { return e.sequence != s })); n != want {
				t.Errorf("event %d has %d rows, not %d", s, n, want)
			}
		}
	})
}

// A checkpoint is set back over dead letters whose cause is gone: each event takes effect
// once, the audit agrees, and nothing is left to retry.
func TestCheckpointsSetBackOverDeadLetters(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		const n = 30
		g := bury(t, url, n)
		must(t, "", g.env, "deadletters", "retry", "--config", g.strict, "--where", "partition=1", "--no-wait")
		out := must(t, "", g.env, "checkpoints", "set", "--config", g.mended, "--all", "--to", "earliest")
		for _, c := range checkpoints(t, g.env, g.strict) {
			events := c.DeadLetters
			if c.Partition == g.good.partition {
				events++
			}
			want := fmt.Sprintf("partition %s: %d → origin: %d events are repeated, %d dead letters of these are replaced by the outcome\n", c.Partition, events-1, events, c.DeadLetters)
			if !strings.Contains(out, want) {
				t.Errorf("it says %s, want %s", out, want)
			}
		}
		must(t, "", g.env, "run", g.mended, "--until-caught-up")
		must(t, "", g.env, "deadletters", "retry", "--config", g.mended, "--all")
		g.events = append(g.events, g.good)
		g.applied(t)
		must(t, "", g.env, "audit", "hub", "--config", g.mended)
	})
}

// At-least-once delivery does not read the events of dead letters again: the command marks them for
// a retry, so that every event after the new position is written.
func TestCheckpointsSetBackRetriesDeadLetters(t *testing.T) {
	t.Parallel()
	w := cosmosServers(t, 0, 1)
	config := w.edited("rate:\n  ru: ${COSMOS_RU}", "rate:\n  events: 8000")
	w.send(20)
	must(t, "", w.env, "send", "--hub", "docs", writeLines(t, spoiled(8)))
	must(t, "", w.env, "run", config, "--until-caught-up", "--log-level", "error")
	out := must(t, "", w.env, "checkpoints", "set", "--config", config, "--all", "--to", "earliest", "--dry-run")
	if letters, _ := deadLetters(t, w.env, config, "--where", "status=retry"); len(letters) != 0 {
		t.Errorf("a dry run has marked %d dead letters", len(letters))
	}
	var moves []struct {
		Repeated    int64
		DeadLetters int64 `json:"dead_letters"`
	}
	decode(t, must(t, "", w.env, "checkpoints", "set", "--config", config, "--all", "--to", "earliest", "--json"), &moves)
	var repeated, letters int64
	for _, m := range moves {
		repeated, letters = repeated+m.Repeated, letters+m.DeadLetters
	}
	if repeated != 20 || letters != 8 {
		t.Errorf("%d events are repeated, %d dead letters, want 20 and 8", repeated, letters)
	}
	if !strings.Contains(out, " retried\n") {
		t.Errorf("it says %s", out)
	}
	if letters, _ := deadLetters(t, w.env, config, "--where", "status=retry"); len(letters) != 8 {
		t.Errorf("%d dead letters are marked for a retry, want 8", len(letters))
	}
	must(t, "", w.env, "deadletters", "discard", "--config", config, "--all")
	out = must(t, "", w.env, "checkpoints", "set", "--config", config, "--all", "--to", "earliest")
	if strings.Contains(out, "retried") || strings.Contains(out, "replaced") {
		t.Errorf("after all were discarded it says %s", out)
	}
}

func TestCheckpointsTable(t *testing.T) {
	t.Parallel()
	srv, connection := serve(t, 2)
	url := databases["sqlite"](t)
	env := environment(connection, url)
	config := quick(t, url)
	must(t, "", env, "send", "--hub", "flights", writeLines(t, append(spoiled(3), `{"delay":1,"distance":2}`)))
	must(t, "", env, "run", config, "--until-caught-up")
	must(t, "", env, "send", "--hub", "flights", writeLines(t, spoiled(2)))
	table := func() []string {
		var lines []string
		for line := range strings.Lines(must(t, "", env, "checkpoints", "list", "--config", config)) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		return lines
	}
	// The first of three dead letters and the third share a partition.
	letters := [2]int{2, 1}
	if strings.HasPrefix(table()[2], "1 1 1 2 ") {
		letters = [2]int{1, 2}
	}
	expect := func(position, lag string) {
		t.Helper()
		want := []string{"PARTITION POSITION LAG DEAD LETTERS EPOCH LEASE OWNER"}
		for p, n := range letters {
			want = append(want, fmt.Sprintf("%d %s %s %d 1 - -", p, position, lag, n))
		}
		if got := table(); !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	expect("1", "1")
	if err := srv.Recreate("flights"); err != nil {
		t.Fatal(err)
	}
	expect("1 (recreated)", "0")
	srv.Close()
	expect("1", "?")
}
