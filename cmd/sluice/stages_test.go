package main_test

import (
	"database/sql"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/asazure"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// stagesFile writes the example of three stages for a database with replacements,
// as pairs of old and new, and leases that expire soon.
func stagesFile(t testing.TB, url string, replacements ...string) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/stages.yaml")
	if err != nil {
		t.Fatal(err)
	}
	replacements = slices.Concat(replacements, notationOf(url).statement, shortLease(url))
	for i := 0; i < len(replacements); i += 2 {
		if !strings.Contains(string(text), replacements[i]) {
			t.Fatalf("the example does not contain %q", replacements[i])
		}
	}
	path := filepath.Join(t.TempDir(), "stages.yaml")
	if err := os.WriteFile(path, []byte(strings.NewReplacer(replacements...).Replace(string(text))), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// notation is how a database writes the example's table and statement: pairs of old and new.
type notation struct{ table, statement []string }

// notations are by the schemes of URLs; docs/mysql.md and docs/sqlserver.md have the statements.
var notations = map[string]notation{
	"mariadb": {
		table: []string{"airport text", "airport VARCHAR(64)", "hour text", "hour VARCHAR(64)"},
		statement: []string{
			"ON CONFLICT (airport, hour) DO UPDATE", "ON DUPLICATE KEY UPDATE",
			"SET flights = excluded.flights, delay = excluded.delay, worst = excluded.worst, version = excluded.version",
			"flights = IF(VALUES(version) > version, VALUES(flights), flights), delay = IF(VALUES(version) > version, VALUES(delay), delay),",
			"WHERE excluded.version > airports.version",
			"worst = IF(VALUES(version) > version, VALUES(worst), worst), version = GREATEST(version, VALUES(version))",
		},
	},
	"sqlserver": {
		table: []string{"airport text", "airport nvarchar(64)", "hour text", "hour nvarchar(64)"},
		statement: []string{
			"INSERT INTO airports (airport, hour, flights, delay, worst, version)", "UPDATE airports SET flights = :flights, delay = :delay, worst = :worst, version = :version",
			"VALUES (:airport, :hour, :flights, :delay, :worst, :version)", "WHERE airport = :airport AND hour = :hour AND version < :version;",
			"ON CONFLICT (airport, hour) DO UPDATE", "INSERT INTO airports (airport, hour, flights, delay, worst, version)",
			"SET flights = excluded.flights, delay = excluded.delay, worst = excluded.worst, version = excluded.version",
			"SELECT :airport, :hour, :flights, :delay, :worst, :version",
			"WHERE excluded.version > airports.version",
			"WHERE NOT EXISTS (SELECT 1 FROM airports WITH (UPDLOCK, HOLDLOCK) WHERE airport = :airport AND hour = :hour)",
		},
	},
}

// notationOf returns the notation of a database; that of the example if it has none of its own.
func notationOf(url string) notation {
	scheme, _, _ := strings.Cut(url, ":")
	return notations[scheme]
}

// createAirports creates the table as the example's first lines say.
func createAirports(t testing.TB, url string, db *sql.DB) {
	t.Helper()
	text, err := os.ReadFile("../../examples/stages.yaml")
	if err != nil {
		t.Fatal(err)
	}
	statement := regexp.MustCompile(`(?m)^#   (CREATE TABLE .*)$`).FindSubmatch(text)
	if statement == nil {
		t.Fatal("the example does not say what the table is")
	}
	if _, err := db.ExecContext(t.Context(), strings.NewReplacer(notationOf(url).table...).Replace(string(statement[1]))); err != nil {
		t.Fatal(err)
	}
}

// airport is a row.
type airport struct{ flights, delay, worst int64 }

// departures makes flights of the last three hours, some without their delay,
// and the table that follows from them.
type departures struct {
	sent, spoiled int
	table         map[string]airport
}

// next is one more flight, a line.
func (d *departures) next() string {
	names := []string{"ATL", "DEN", "DFW", "JFK", "LAX", "OAK", "ORD", "PHX", "SAN", "SEA", "SFO", "SMF"}
	i := d.sent
	d.sent++
	origin, delay := names[i%len(names)], int64(i*7919%200-20)
	at := time.Now().UTC().Add(-time.Duration(i*104729%180) * time.Minute).Truncate(time.Minute)
	line := fmt.Sprintf(`{"departure":%q,"origin":%q,"destination":"X","distance":%d`, at.Format(time.RFC3339), origin, i)
	if i%1000 == 999 {
		d.spoiled++
		return line + "}"
	}
	key := origin + " " + at.Truncate(time.Hour).Format(time.RFC3339)
	row, known := d.table[key]
	if !known {
		row.worst = delay
	}
	if d.table == nil {
		d.table = map[string]airport{}
	}
	d.table[key] = airport{row.flights + 1, row.delay + delay, max(row.worst, delay)}
	return fmt.Sprintf(`%s,"delay":%d}`, line, delay)
}

// lines are the next n flights.
func (d *departures) lines(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = d.next()
	}
	return list
}

// feed sends flights to the hub until what it returns is called, which waits
// for the end.
func (d *departures) feed(t testing.TB, env []string, rate int) (end func()) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	sending := startCommand(t, "", env, out, exec.Command(program.Path(t), "send", "--hub", "flights", "--rate", fmt.Sprint(rate), "-"))
	out.Close()
	enough := make(chan struct{})
	fed := make(chan error, 1)
	go func() {
		defer in.Close()
		for {
			select {
			case <-enough:
				fed <- nil
				return
			default:
			}
			if _, err := fmt.Fprintln(in, d.next()); err != nil {
				fed <- err
				return
			}
		}
	}()
	return func() {
		t.Helper()
		close(enough)
		if err := <-fed; err != nil {
			t.Fatalf("feed: %v", err)
		}
		if code := sending.wait(); code != 0 {
			t.Fatalf("send: exit code %d: %s", code, sending.err.String())
		}
	}
}

// airports reads the table.
func airports(t testing.TB, db *sql.DB) map[string]airport {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT airport, hour, flights, delay, worst FROM airports")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	table := map[string]airport{}
	for rows.Next() {
		var name, hour string
		var row airport
		if err := rows.Scan(&name, &hour, &row.flights, &row.delay, &row.worst); err != nil {
			t.Fatal(err)
		}
		table[name+" "+hour] = row
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return table
}

// stageNames are the example's, in the order in which events pass them.
var stageNames = []string{"clean", "figures", "table"}

// TestEachStageIsKilled: each stage is a process of its own, and so is the hub.
// While flights come in, each is killed in turn, and one that keeps its memory
// is paused beyond its lease and wakes up beside its successor. The table is
// the one that follows from the flights. SLUICE_STAGES_ROUNDS is how often all
// are killed; 2 by default.
func TestEachStageIsKilled(t *testing.T) {
	rounds := 2
	if text := os.Getenv("SLUICE_STAGES_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil || rounds < 1 {
			t.Fatalf("SLUICE_STAGES_ROUNDS is %q", text)
		}
	}
	eachFastDatabase(t, func(t *testing.T, url string) {
		r := need.Rand(t)
		server := start(t, "", nil, "emulator", "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--hub", "flights=2", "--hub", "clean=2", "--hub", "figures=2")
		env := environment(connectionOf(t, server), url)
		db := openDatabase(t, url)
		createAirports(t, url, db)
		config := stagesFile(t, url)
		must(t, "", env, "check", "--connect", config)

		var flights departures
		fed := flights.feed(t, env, 1000)
		run := func(stage string) *process {
			return start(t, "", env, "run", config, "--stage", stage, "--log-level", "debug")
		}
		work := map[string]*process{}
		for _, stage := range stageNames {
			work[stage] = run(stage)
		}
		// A stage that has done nothing yet is not worth killing.
		atWork := func(stage string) {
			await(t, stage+" to be at work", func() bool { return strings.Contains(work[stage].err.String(), "msg=committed") })
			<-time.NewTimer(time.Duration(r.Int64N(int64(300 * time.Millisecond)))).C
		}
		kills := map[string]int{}
		for round := range rounds {
			t.Logf("round %d of %d", round+1, rounds)
			for _, stage := range stageNames {
				atWork(stage)
				work[stage].kill()
				kills[stage]++
				work[stage] = run(stage)
			}
		}
		atWork("figures")
		paused := work["figures"]
		paused.signal(syscall.SIGSTOP)
		work["figures"] = run("figures")
		atWork("figures")
		paused.signal(syscall.SIGCONT)

		fed()
		want, counted := flights.table, int64(flights.sent-flights.spoiled)
		await(t, "all flights to be counted", func() bool {
			return count(t, db, "SELECT coalesce(sum(flights), 0) FROM airports") == counted
		})
		paused.kill()
		for _, stage := range stageNames {
			work[stage].stop()
		}
		// All once more, in one process: every figure comes again and changes nothing.
		last := start(t, "", env, "run", stagesFile(t, url, longLease...), "--until-caught-up")
		if code := last.wait(); code != 0 {
			t.Fatalf("exit code %d: %s", code, last.err.String())
		}
		if got := airports(t, db); !maps.Equal(got, want) {
			need.Verdict(t)
			t.Errorf("the table is %v, want %v", got, want)
		}
		if letters, _ := deadLetters(t, env, config, "--stage", "clean"); len(letters) != flights.spoiled {
			need.Verdict(t)
			t.Errorf("%d dead letters, want %d", len(letters), flights.spoiled)
		}
		figures := regexp.MustCompile(`msg=stopped stage=figures events=(\d+) counted=(\d+) repeats=(\d+) .* published=(\d+)`).FindStringSubmatch(last.err.String())
		if figures == nil || figures[2] != fmt.Sprint(counted) {
			t.Fatalf("the memory's figures are %q", figures)
		}
		t.Logf("%d flights, kills %v, a pause of figures: %s events in the second hub, of them %s repeats that were not counted, %d rows", flights.sent, kills, figures[1], figures[3], len(want))
		server.stop()
	})
}

func TestStagesInOneProcess(t *testing.T) {
	t.Parallel()
	server := start(t, "", nil, "emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "flights=1", "--hub", "clean=1", "--hub", "figures=1")
	url := databases["sqlite"](t)
	env := environment(connectionOf(t, server), url)
	db := openDatabase(t, url)
	createAirports(t, url, db)
	config := stagesFile(t, url, longLease...)

	var flights departures
	must(t, "", env, "send", "--hub", "flights", writeLines(t, flights.lines(3000)))
	want, spoiled := flights.table, flights.spoiled
	code, _, errs := invoke(t, "", env, "run", config, "--until-caught-up")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	if got := airports(t, db); !maps.Equal(got, want) {
		need.Verdict(t)
		t.Errorf("the table is %v, want %v", got, want)
	}
	clean := "msg=stopped stage=clean events=3000 dead_letters=3 redriven=0 written=2997 retries="
	if !asazure.Enabled { // a busy hub refuses messages at random
		clean += "0\n"
	}
	for _, part := range []string{
		clean,
		"msg=stopped stage=figures events=2997 counted=2997 repeats=0 untimely=0 held=0 malformed=0 published=",
		"msg=stopped stage=table events=",
	} {
		if !strings.Contains(errs, part) {
			t.Errorf("no %q in %s", part, errs)
		}
	}

	// An older figure that comes late changes nothing.
	var late []string
	for key, row := range want {
		airport, hour, _ := strings.Cut(key, " ")
		late = append(late, fmt.Sprintf(`{"airport":%q,"hour":%q,"flights":%d,"delay":0,"worst":0,"version":0}`, airport, hour, row.flights-1))
	}
	must(t, "", env, "send", "--hub", "figures", writeLines(t, late))
	must(t, "", env, "run", config, "--stage", "table", "--until-caught-up")
	if got := airports(t, db); !maps.Equal(got, want) {
		need.Verdict(t)
		t.Errorf("after late figures the table is %v, want %v", got, want)
	}

	// Commands that look at one stage.
	out := must(t, "", env, "check", config)
	if strings.Count(out, "stage ") != 3 || strings.Count(out, ": valid: ") != 3 {
		t.Errorf("check says %s", out)
	}
	if out := must(t, "", env, "check", config, "--stage", "table"); strings.Count(out, "\n") != 1 || !strings.Contains(out, "hub figures") {
		t.Errorf("check of one says %s", out)
	}
	if letters, _ := deadLetters(t, env, config, "--stage", "clean"); len(letters) != spoiled {
		t.Errorf("%d dead letters, want %d", len(letters), spoiled)
	}
	var list []checkpoint
	decode(t, must(t, "", env, "checkpoints", "list", "--json", "--config", config, "--stage", "table"), &list)
	if len(list) != 1 || *list[0].Lag != 0 {
		t.Errorf("checkpoints %+v", list)
	}
	mended := stagesFile(t, url, "delay: {from: body.delay, type: integer}", "delay: {from: body.delay, type: integer, required: false}")
	if out := must(t, "", env, "deadletters", "retry", "--all", "--config", mended, "--stage", "clean"); !strings.Contains(out, "3 applied, 0 failed again") {
		t.Errorf("the retry says %s", out)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no stage":           {[]string{"checkpoints", "list", "--config", config}, 2, "has several stages, name one of them: clean, figures, table"},
		"unknown stage":      {[]string{"run", config, "--stage", "clena"}, 2, `has no stage "clena": its stages are clean, figures, table`},
		"memory":             {[]string{"deadletters", "list", "--config", config, "--stage", "figures"}, 1, "stage figures is in memory: it has no checkpoints and no dead letters"},
		"history of several": {[]string{"run", config, "--history", "x"}, 2, "--history records one stage: choose it with --stage"},
	} {
		code, out, errs := invoke(t, t.TempDir(), env, c.args...)
		if code != c.code || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit code %d, %s%s", name, code, out, errs)
		}
	}
}

// TestAStageThatCannotBegin: a hub that is missing is reported at the start, with
// the place in the file.
func TestAStageThatCannotBegin(t *testing.T) {
	t.Parallel()
	server := start(t, "", nil, "emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "flights=1", "--hub", "clean=1")
	url := databases["sqlite"](t)
	env := environment(connectionOf(t, server), url)
	createAirports(t, url, openDatabase(t, url))
	code, _, errs := invoke(t, "", env, "run", stagesFile(t, url))
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(errs), "\n"), func(line string) bool { return !strings.HasPrefix(line, "sluice: ") })
	if code != 1 || len(lines) == 0 || !strings.Contains(lines[0], "stages.yaml:") || !strings.Contains(lines[0], "hub figures") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	failsCheck(t, env, stagesFile(t, url), "stages.yaml:", "hub figures")
}
