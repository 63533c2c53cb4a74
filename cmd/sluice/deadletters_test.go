package main_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator"
)

// graveyard is a hub whose events are dead letters in a database, all but one.
type graveyard struct {
	hub    *emulator.Server
	env    []string
	strict string // pipeline for which they failed
	mended string // pipeline for which they don't
	db     *sql.DB
	events []event // that are dead letters
	good   event   // shows that the mapping works; its row was removed
}

// bury makes n dead letters, with options that go into both pipelines.
func bury(t *testing.T, url string, n int, replacements ...string) *graveyard {
	t.Helper()
	srv, connection := serve(t, 3)
	g := &graveyard{hub: srv, env: environment(connection, url), db: openDatabase(t, url)}
	replacements = append(replacements, shortLease(url)...) // another lease among the options counts
	g.strict = changed(t, replacements...)
	g.mended = changed(t, append(replacements, "{from: body.delay, type: integer}", "{from: body.delay, type: integer, required: false}")...)
	must(t, "", g.env, "send", "--hub", "flights", writeLines(t, append(spoiled(n), sane)))
	must(t, "", g.env, "run", g.strict, "--until-caught-up", "--log-level", "error")
	_, dead := deadLetters(t, g.env, g.strict)
	for _, e := range lookAt(t, connection).events() {
		if slices.Contains(dead, e) {
			g.events = append(g.events, e)
		} else {
			g.good = e
		}
	}
	exactlyOnce(t, []event{g.good}, rows(t, g.db))
	if len(dead) != n || len(g.events) != n {
		t.Fatalf("%d events, %d dead letters", len(g.events), len(dead))
	}
	if _, err := g.db.ExecContext(t.Context(), "DELETE FROM flights"); err != nil {
		t.Fatal(err)
	}
	return g
}

// applied checks that all were applied once, and no dead letter is left.
func (g *graveyard) applied(t *testing.T) {
	t.Helper()
	exactlyOnce(t, g.events, rows(t, g.db))
	if letters, _ := deadLetters(t, g.env, g.strict, "--all"); len(letters) != 0 {
		t.Errorf("%d dead letters are left", len(letters))
	}
}

func TestRetryWhereNobodyOwns(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		g := bury(t, url, 100)
		code, out, errs := invoke(t, "", g.env, "deadletters", "retry", "--config", g.strict, "--all")
		if code != 1 || !strings.Contains(out, "0 applied, 100 failed again") || !strings.Contains(out, "column delay: body.delay: is missing") ||
			!strings.Contains(errs, "sluice: 100 dead letters failed again") {
			t.Errorf("exit code %d:\n%s%s", code, out, errs)
		}
		if out := must(t, "", g.env, "deadletters", "retry", "--config", g.mended, "--all"); !strings.Contains(out, "100 applied, 0 failed again") {
			t.Errorf("it says %s", out)
		}
		g.applied(t)
		if out := must(t, "", g.env, "deadletters", "retry", "--config", g.mended, "--all"); !strings.Contains(out, "no dead letters to retry") {
			t.Errorf("with none left it says %s", out)
		}
	})
}

// A retry whose target cannot be opened changes no dead letter: marked ones would be redriven by
// whatever process owns the partition next.
func TestRetryWithoutTheTargetMarksNothing(t *testing.T) {
	t.Parallel()
	url := databases["sqlite"](t)
	g := bury(t, url, 5)
	without := changed(t, append(shortLease(url), "table: flights\n    create: true", "table: nowhere")...)
	code, out, errs := invoke(t, "", g.env, "deadletters", "retry", "--config", without, "--all")
	if code != 1 || !strings.Contains(errs, "nowhere") {
		t.Fatalf("exit code %d:\n%s%s", code, out, errs)
	}
	if letters, _ := deadLetters(t, g.env, g.strict, "--where", "status=dead"); len(letters) != 5 {
		t.Errorf("%d dead letters are dead as before, want 5", len(letters))
	}
}

func TestRetryWhereAnOwnerLives(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		g := bury(t, url, 100, longLease...)
		owner := start(t, "", g.env, "run", g.mended)
		await(t, "all partitions to be owned", func() bool {
			return !slices.ContainsFunc(checkpoints(t, g.env, g.strict), func(c checkpoint) bool { return c.Owner == "" })
		})
		// The owner's pipeline is what counts, not the command's.
		if out := must(t, "", g.env, "deadletters", "retry", "--config", g.strict, "--all"); !strings.Contains(out, "100 applied, 0 failed again") {
			t.Errorf("it says %s", out)
		}
		owner.stop()
		g.applied(t)
	})
}

func TestRetryByTwoCommandsAtOnce(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		g := bury(t, url, 300)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				code, out, errs := invoke(t, "", g.env, "deadletters", "retry", "--config", g.mended, "--all")
				none := strings.Contains(out, "no dead letters to retry") // the other was much faster
				if code != 0 || !none && !strings.Contains(out, " 0 failed again") {
					t.Errorf("exit code %d:\n%s%s", code, out, errs)
				}
			})
		}
		both.Wait()
		g.applied(t)
	})
}

func TestRetryUnderKill(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		g := bury(t, url, 2000)
		for kills := range 5 {
			p := start(t, "", g.env, "deadletters", "retry", "--config", g.mended, "--all")
			await(t, "some to be applied", func() bool {
				select {
				case <-p.done:
					t.Fatalf("it ended before it was killed, %d rows: %s%s", count(t, g.db, countRows), p.out.String(), p.err.String())
				default:
				}
				return count(t, g.db, countRows) > int64((kills+1)*125)
			})
			p.kill()
		}
		must(t, "", g.env, "deadletters", "retry", "--config", g.mended, "--all")
		g.applied(t)
	})
}

func TestRetryAfterRetention(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		g := bury(t, url, 30)
		for _, p := range []string{"0", "1", "2"} {
			if err := g.hub.Trim("flights", p, 10); err != nil {
				t.Fatal(err)
			}
		}
		must(t, "", g.env, "deadletters", "retry", "--config", g.mended, "--all")
		g.applied(t)
	})
}

func TestRetryWithoutStoredBodies(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		g := bury(t, url, 30, "\ndatabase:", "\ndead_letters: {store_bodies: false}\ndatabase:")
		if err := g.hub.Trim("flights", "0", 4); err != nil {
			t.Fatal(err)
		}
		code, out, errs := invoke(t, "", g.env, "deadletters", "retry", "--config", g.mended, "--all")
		if code != 1 || !strings.Contains(out, "26 applied, 4 failed again") || !strings.Contains(out, "retention removed events") {
			t.Errorf("exit code %d:\n%s%s", code, out, errs)
		}
		_, dead := deadLetters(t, g.env, g.strict)
		exactlyOnce(t, g.events, rows(t, g.db), dead)
		if len(dead) != 4 {
			t.Errorf("%d dead letters are left", len(dead))
		}
	})
}

func TestRetryWithoutTheHub(t *testing.T) {
	t.Parallel()
	g := bury(t, databases["sqlite"](t), 30)
	g.hub.Close()
	must(t, "", g.env, "deadletters", "retry", "--config", g.mended, "--all")
	g.applied(t)
}

func TestRetryLater(t *testing.T) {
	t.Parallel()
	g := bury(t, databases["sqlite"](t), 6)
	letters, _ := deadLetters(t, g.env, g.strict)
	retry := func(more ...string) string {
		return must(t, "", g.env, append([]string{"deadletters", "retry", "--config", g.strict}, more...)...)
	}
	id := func(i int) string { return fmt.Sprint(letters[i].ID) }
	if out := retry("--after", "2h", id(0)); !strings.Contains(out, "1 dead letter marked for a retry at ") {
		t.Errorf("it says %s", out)
	}
	retry("--at", time.Now().Add(2*time.Hour).Format(time.RFC3339), id(1))
	retry("--no-wait", id(2))
	retry("--after", "4s", id(3))
	owner := start(t, "", g.env, "run", g.mended)
	await(t, "those that are due to be applied", func() bool { return count(t, g.db, countRows) == 2 })
	owner.stop()
	left, _ := deadLetters(t, g.env, g.strict)
	if len(left) != 4 || left[0].Status != "retry" || left[1].Status != "retry" || left[2].Status != "dead" || left[3].Status != "dead" {
		t.Errorf("left are %+v", left)
	}
	if out := must(t, "", g.env, "deadletters", "list", "--config", g.strict); strings.Count(out, "retry at ") != 2 {
		t.Errorf("the list says\n%s", out)
	}
}

func TestDeadLettersAreSelectedShownAndDiscarded(t *testing.T) {
	t.Parallel()
	g := bury(t, databases["sqlite"](t), 30)
	all, _ := deadLetters(t, g.env, g.strict)
	for conditions, want := range map[string]int{
		"partition=1":                10,
		"partition=1, sequence=3..5": 3,
		"sequence=..4":               15,
		"error~BODY.DELAY":           30,
		"error~timeout":              0,
		"status=discarded":           0,
		"since=1h ago":               30,
		"before=1h ago":              0,
		"key=LAX":                    0,
		"partition=2, error~\"is missing\", status=dead|retry":    10,
		"since=" + time.Now().Add(time.Hour).Format(time.RFC3339): 0,
	} {
		if letters, _ := deadLetters(t, g.env, g.strict, "--where", conditions); len(letters) != want {
			t.Errorf("%s selects %d, not %d", conditions, len(letters), want)
		}
	}
	if letters, _ := deadLetters(t, g.env, g.strict, "--limit", "7"); len(letters) != 7 {
		t.Errorf("%d within a limit of 7", len(letters))
	}

	id := fmt.Sprint(all[0].ID)
	out := must(t, "", g.env, "deadletters", "show", "--config", g.strict, id)
	for _, want := range []string{"status       dead", "error        column delay: body.delay: is missing", `"origin":"SAN"`, "content type application/json"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var shown []letter
	decode(t, must(t, "", g.env, "deadletters", "show", "--json", "--config", g.strict, id), &shown)
	if len(shown) != 1 || !strings.HasPrefix(shown[0].Body, `{"date":"2001/01/14 21:55"`) || shown[0].Attempts != 1 {
		t.Errorf("shown is %+v", shown)
	}

	if out := must(t, "", g.env, "deadletters", "discard", "--config", g.strict, "--where", "partition=1"); out != "10 dead letters discarded\n" {
		t.Errorf("it says %s", out)
	}
	if letters, _ := deadLetters(t, g.env, g.strict); len(letters) != 20 {
		t.Errorf("%d are listed after 10 were discarded", len(letters))
	}
	if letters, _ := deadLetters(t, g.env, g.strict, "--all"); len(letters) != 30 {
		t.Errorf("%d are listed with those discarded", len(letters))
	}
	if out := must(t, "", g.env, "deadletters", "retry", "--config", g.mended, "--all"); !strings.Contains(out, "20 applied") {
		t.Errorf("it says %s", out)
	}
	discarded, _ := deadLetters(t, g.env, g.strict, "--where", "status=discarded")
	must(t, "", g.env, "deadletters", "retry", "--config", g.mended, fmt.Sprint(discarded[0].ID))
	left, dead := deadLetters(t, g.env, g.strict, "--all")
	exactlyOnce(t, g.events, rows(t, g.db), dead)
	if len(left) != 9 {
		t.Errorf("%d are left", len(left))
	}
}
