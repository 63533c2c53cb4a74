package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// triedLine is a line of try --json.
type triedLine struct {
	Place, Partition, Outcome, Table, Error string
	Sequence                                int64
	Route                                   int
	Rows                                    []map[string]any
}

func triedLines(t testing.TB, out string) (list []triedLine) {
	t.Helper()
	for line := range strings.Lines(out) {
		var l triedLine
		decode(t, line, &l)
		list = append(list, l)
	}
	return list
}

func TestTryEventsOfAHub(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	dir := t.TempDir()
	database := "sqlite:" + filepath.Join(dir, "f.db")
	env := environment(connection, database)
	code, _, errs := invoke(t, dir, env, "try", example(t))
	if code != 1 || !strings.Contains(errs, "hub flights has no such events: pass --sample FILE") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	produce(t, connection, "0", numberedEvents(0, 9)...)
	produce(t, connection, "1", numberedEvents(10, 19)...)
	out := must(t, dir, env, "try", example(t), "--rows", "1")
	for _, part := range []string{
		"Tried all 20 events of hub flights; nothing was written.\n", "  20  a row of flights each\n   0  would become dead letters\n",
		"delay            integer        20        0  5\n", "date             timestamp       0       20\n", "\nRow of flights: partition ",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in %s", part, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "f.db")); err == nil {
		t.Error("a database was made")
	}
	strange := numberedEvents(20, 20)
	strange[0].Body = []byte(`{"delay":"late","distance":1}`)
	produce(t, connection, "1", strange...)
	code, out, errs = invoke(t, dir, env, "try", example(t), "--partition", "1", "--events", "2", "--json")
	list := triedLines(t, out)
	if code != 1 || len(list) != 2 || list[0].Outcome != "rows" || list[0].Rows[0]["delay"] != 5.0 || list[1].Outcome != "dead_letter" ||
		list[1].Partition != "1" || list[1].Sequence != 10 || !strings.Contains(errs, "of 2 events 1 would become dead letters") {
		t.Errorf("exit code %d: %+v: %s", code, list, errs)
	}
	code, out, _ = invoke(t, dir, env, "try", example(t), "--failed")
	if want := "partition 1, sequence 10\n  column delay: body.delay: \"late\" where a whole number should be\n  body: {\"delay\":\"late\",\"distance\":1}\n\n"; code != 1 || out != want {
		t.Errorf("exit code %d: %s", code, out)
	}
	out = must(t, dir, environment(connection, ""), "try", example(t), "--start", "sequence 3", "--partition", "0", "--events", "2")
	if !strings.Contains(out, "Tried the first 2 events of hub flights") || !strings.Contains(out, "were not looked at: DATABASE_URL is not set.") {
		t.Error(out)
	}
}

func TestTryAgainstTheTable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	database := "sqlite:" + filepath.Join(dir, "f.db")
	file := filepath.Join(dir, "s.ndjson")
	if err := os.WriteFile(file, []byte(`{"delay":5,"distance":480}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := environment("", database)
	db := openDatabase(t, existingSQLiteAt(t, dir, "f.db"))
	if _, err := db.Exec("CREATE TABLE flights (hub_partition TEXT, sequence_number INTEGER)"); err != nil {
		t.Fatal(err)
	}
	code, out, errs := invoke(t, dir, env, "try", example(t), "--sample", file)
	if code != 1 || !strings.Contains(out, "do not fit the file") || !strings.Contains(errs, "table flights has no column date") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if out = must(t, dir, env, "try", example(t), "--sample", file, "--without-database"); !strings.Contains(out, "--without-database.") {
		t.Error(out)
	}
	if _, err := db.Exec("DROP TABLE flights"); err != nil {
		t.Fatal(err)
	}
	if out = must(t, dir, env, "try", example(t), "--sample", file); !strings.Contains(out, "Values were tried against the tables") {
		t.Error(out)
	}
	env = environment("", "postgres://u@127.0.0.1:1/d")
	if out = must(t, dir, env, "try", example(t), "--sample", file); !strings.Contains(out, "connection refused") {
		t.Error(out)
	}
}

// existingSQLiteAt is the address of a file for SQLite.
func existingSQLiteAt(t testing.TB, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + path
}

func TestTryASample(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	routes, err := filepath.Abs("../../examples/routes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	peeked := write("peek.ndjson", `{"partition":"3","sequence":7,"properties":{"type":"GateChange"},"body":{"flight":"A","gate":"\u001b[2J"}}
{"partition":"3","sequence":8,"properties":{"type":"Heartbeat"},"body_text":"x"}
{"partition":"3","sequence":9,"properties":{"type":"FlightPlan"},"body":{"flight":"A","delay":"x"}}
{"partition":"3","sequence":10,"properties":{"type":"FlightPlan"},"body":{"flight":"B","delay":"y"}}
{"flight":"B"}
`)
	code, out, _ := invoke(t, dir, nil, "try", routes, "--sample", peeked)
	for _, part := range []string{
		"Tried 5 events of peek.ndjson", "  1  route 2: a row of gates\n", "  1  left out by only or otherwise\n", "  3  would become dead letters\n",
		`  2 × column delay: body.delay: "x" where a whole number should be (first: partition 3, sequence 9)`,
		"  1 × no route takes the event: add one, or write otherwise: ignore (peek.ndjson: line 5)\n",
		"\nRow of gates: partition 3, sequence 7\n", `\u001b[2J`,
	} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in %s", part, out)
		}
	}
	if code != 1 || strings.Contains(out, "\x1b") {
		t.Errorf("exit code %d: %q", code, out)
	}
	csv := write("f.csv", "delay,distance\n5,480\n6,much\n")
	code, out, _ = invoke(t, dir, nil, "try", example(t), "--sample", csv, "--json")
	list := triedLines(t, out)
	if code != 1 || len(list) != 2 || list[0].Place != "f.csv: line 2" || list[0].Outcome != "rows" || list[1].Rows[0]["distance"].(map[string]any)["error"] == nil {
		t.Errorf("exit code %d: %s", code, out)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{example(t), "--sample", csv, "--start", "earliest"}, 2, "--start is for events of the log"},
		{[]string{example(t), "--decoded"}, 2, "--decoded goes with --sample"},
		{[]string{example(t), "--rows", "2", "--json"}, 2, "--rows is for the summary"},
		{[]string{example(t), "--events", "0"}, 2, "--events 0: must be 1 to 100000"},
		{[]string{}, 2, "name the pipeline"},
		{[]string{example(t), "--sample", "none.csv"}, 1, "none.csv"},
		{[]string{example(t), "clean", "--sample", csv}, 2, `has no stage "clean"`},
		{[]string{example(t)}, 1, "the environment variable EVENTHUB_CONNECTION_STRING is not set: set it, or try events of a file: --sample FILE"},
		{[]string{filepath.Join(dir, "none.yaml")}, 1, "or write a new file: sluice init"},
	} {
		code, _, errs := invoke(t, dir, nil, append([]string{"try"}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%q: exit code %d: %s", c.args, code, errs)
		}
	}
}

func TestTryATopic(t *testing.T) {
	t.Parallel()
	k := newTopic(t, 2, fakeKafka(t))
	k.fill(2)
	code, out, errs := invoke(t, "", k.environment("sqlite:not-there.db"), "try", kafkaExample(t), "--start", "earliest")
	if want := fmt.Sprintf("  %d  would become dead letters\n", len(k.bad)); code != 1 || !strings.Contains(out, want) || !strings.Contains(out, "of topic "+k.name) {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

func TestTestCommand(t *testing.T) {
	t.Parallel()
	routes, err := filepath.Abs("../../examples/routes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if out := must(t, "", nil, "test", routes); strings.Count(out, "\nok ") != 3 || !strings.HasSuffix(out, "\n4 tests: 4 ok, 0 failed\n") {
		t.Error(out)
	}
	wrong := changedFile(t, routes, "row: {flight: LH 123, delay: 5}", "row: {flight: LH 124, delay: 5}", "skipped: true", "row: {flight: x}")
	code, out, errs := invoke(t, "", nil, "test", wrong)
	for _, part := range []string{
		"FAILED  " + wrong + ":5", "  a delay\n        flight  want \"LH 124\", got \"LH 123\" (text from body.flight)\n", "want a row, got skipped\n", "\n4 tests: 2 ok, 2 failed\n",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in %s", part, out)
		}
	}
	if code != 1 || !strings.Contains(errs, "sluice: failed tests: 2") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	code, out, _ = invoke(t, "", nil, "test", wrong, "--json")
	var line struct {
		Name        string
		OK          bool
		Differences []map[string]any
	}
	first, _, _ := strings.Cut(out, "\n")
	if err := json.Unmarshal([]byte(first), &line); err != nil || code != 1 || line.OK || line.Name != "a delay" || line.Differences[0]["column"] != "flight" {
		t.Errorf("exit code %d: %s", code, out)
	}
	bad := changedFile(t, routes, "row: {delay: 0}", "row: {dely: 0}")
	if code, _, errs = invoke(t, "", nil, "test", bad, routes); code != 1 || !strings.Contains(errs, "tests[1].expect.row.dely: the mapping has no such column") || !strings.Contains(errs, "invalid files: "+bad) {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if code, _, errs = invoke(t, "", nil, "test", example(t)); code != 1 || !strings.Contains(errs, "has no tests\nsluice: no tests") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if code, _, errs = invoke(t, "", nil, "test"); code != 2 || !strings.Contains(errs, "name the files") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// The file of docs/try.md makes the output on that page, also without the format.
func TestTestCommandAsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/try.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Tests in the file\n")
	block := func(language string) (text string) {
		t.Helper()
		_, text, _ = strings.Cut(section, "```"+language+"\n")
		text, section, _ = strings.Cut(text, "```")
		return text
	}
	file := block("yaml")
	dir := t.TempDir()
	for _, text := range []string{file, strings.Replace(file, ", format: unix_ms", "", 1)} {
		text += "source: {kafka: {brokers: '${BROKERS}', topic: t}}\npartitions: all\ndatabase: '${DATABASE}'\n"
		if err := os.WriteFile(filepath.Join(dir, "orders.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want := block("text")
		if _, out, errs := invoke(t, dir, nil, "test", "orders.yaml"); out != want {
			t.Errorf("%s%s\nwant %s", out, errs, want)
		}
	}
}
