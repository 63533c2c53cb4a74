package pipeline

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicetest"
)

// changesTarget changes rows by key.
const changesTarget = `  insert:
    table: changes
    key: id
    delete_when: {body.op: d}
    columns:
      id: {from: body.id, type: text}
      n: {from: body.n, type: integer}
      note: {from: body.note, type: text, required: false}
`

// folded is a table with one row for each key, as a log of changes makes it.
type folded map[string]*foldedRow

type foldedRow struct{ n, note string }

// String lists the rows as query does.
func (f folded) String() string {
	var lines []string
	for id, row := range f {
		lines = append(lines, id+" "+row.n+" "+row.note)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// change applies one change: what it does not have keeps its value, or has the default.
func (f folded) change(id, n, note string) {
	row := f[id]
	if row == nil {
		row = &foldedRow{note: "new"}
		f[id] = row
	}
	row.n = n
	if note != "" {
		row.note = note
	}
}

// words writes the type of a short text where SQL says WORD.
func (e *testedEngine) words(sql string) string {
	word := "varchar(20)"
	if strings.HasPrefix(e.text, "nvarchar") {
		word = "nvarchar(20)"
	}
	return strings.ReplaceAll(sql, "WORD", word)
}

// testChanges: whatever the batches, the table is the log folded by key, without the events that
// are dead letters.
func (e *testedEngine) testChanges(t *testing.T, address string, db *sql.DB) {
	mustExec(t, db, e.words("CREATE TABLE changes (id WORD NOT NULL PRIMARY KEY, n integer CHECK (n < 100), note WORD DEFAULT 'new')"))
	p, parts := opened(t, address, changesTarget)
	for round := range 3 {
		r := rand.New(rand.NewPCG(uint64(round), 7))
		var bodies []string
		want := folded{}
		mustExec(t, db, "DELETE FROM changes")
		failed := 0
		for i := range 400 {
			id := fmt.Sprintf("k%d_%d", i%2, r.IntN(12)) // a key is in one partition
			n := r.IntN(90)
			switch r.IntN(10) {
			case 0, 1:
				bodies = append(bodies, fmt.Sprintf(`{"op":"d","id":%q,"n":"not looked at"}`, id))
				delete(want, id)
			case 2:
				bodies = append(bodies, fmt.Sprintf(`{"op":"u","id":%q,"n":"x"}`, id))
				failed++
			case 3:
				if i%40 < 2 { // of a key of its own: a change that another one follows in its batch is not tried
					bodies = append(bodies, fmt.Sprintf(`{"op":"u","id":"bad%d","n":100}`, i))
					failed++
					break
				}
				bodies = append(bodies, fmt.Sprintf(`{"op":"u","id":%q,"n":%d,"note":null}`, id, n))
				want.change(id, fmt.Sprint(n), "<nil>")
			case 4, 5, 6:
				bodies = append(bodies, fmt.Sprintf(`{"op":"c","id":%q,"n":%d}`, id, n))
				want.change(id, fmt.Sprint(n), "")
			default:
				bodies = append(bodies, fmt.Sprintf(`{"op":"u","id":%q,"n":%d,"note":"n%[2]d"}`, id, n))
				want.change(id, fmt.Sprint(n), fmt.Sprint("n", n))
			}
		}
		letters := consumeAgain(t, p, parts, round, sluicetest.Bodies(bodies...))
		if got := query(t, db, "SELECT id, n, note FROM changes ORDER BY id"); got != want.String() {
			t.Errorf("round %d: rows\n%s\nwant\n%s", round, got, want)
		}
		if len(letters) != failed {
			t.Errorf("round %d: %d dead letters %q, want %d", round, len(letters), letters, failed)
		}
	}
}

// testReplay: after `checkpoints set` back, over deletes too, the table is again what the log says.
func (e *testedEngine) testReplay(t *testing.T, address string, db *sql.DB) {
	mustExec(t, db, e.words("CREATE TABLE changes (id WORD NOT NULL PRIMARY KEY, n integer, note WORD DEFAULT 'new')"))
	p, parts := opened(t, address, changesTarget)
	hub := sluicetest.NewHub(p.Group, 2)
	var bodies []string
	for i := range 60 {
		id := fmt.Sprintf("k%d_%d", i%2, i/2%5)
		switch {
		case i%7 == 3:
			bodies = append(bodies, fmt.Sprintf(`{"op":"d","id":%q}`, id))
		case i%3 == 0:
			bodies = append(bodies, fmt.Sprintf(`{"id":%q,"n":%d}`, id, i))
		default:
			bodies = append(bodies, fmt.Sprintf(`{"id":%q,"n":%d,"note":"n%[2]d"}`, id, i))
		}
	}
	consumeFrom(t, hub, parts, sluicetest.Bodies(bodies...)...)
	want := query(t, db, "SELECT id, n, note FROM changes ORDER BY id")
	for round, back := range []int64{25, 10, 1} {
		checkpoints, err := parts.Checkpoints.Read(t.Context(), p.Group)
		if err != nil || len(checkpoints) != 2 {
			t.Fatalf("checkpoints %v, %v", checkpoints, err)
		}
		for _, c := range checkpoints {
			if _, err := parts.Checkpoints.Reset(t.Context(), p.Group, c.Partition, c.Incarnation, sluice.Position{Sequence: back}, "set"); err != nil {
				t.Fatal(err)
			}
		}
		consumeFrom(t, hub, parts, sluicetest.Bodies(fmt.Sprintf(`{"id":"x0","n":%d}`, round), fmt.Sprintf(`{"id":"x1","n":%d}`, round))...)
		if got := query(t, db, "SELECT id, n, note FROM changes WHERE id LIKE 'k%' ORDER BY id"); got != want {
			t.Errorf("after %d: rows\n%s\nwant\n%s", back, got, want)
		}
	}
	if letters := deadLetters(t, p, parts); len(letters) > 0 {
		t.Errorf("dead letters %q", letters)
	}
}

// consumeAgain consumes another hub, and returns the errors of its dead letters.
func consumeAgain(t *testing.T, p *Pipeline, parts *Parts, round int, events []*sluice.Event) (letters []string) {
	t.Helper()
	group := p.Group
	group.Topic = fmt.Sprint(group.Topic, round)
	consumeFrom(t, sluicetest.NewHub(group, 2), parts, events...)
	list, err := parts.DeadLetters.List(t.Context(), group, sluice.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		letters = append(letters, d.Error)
	}
	return letters
}

// testSharedKeys: partitions that change the same rows in other orders wait for each other; a
// deadlock is no fault of an event, and the row is as its last event in one of the partitions has
// it.
func (e *testedEngine) testSharedKeys(t *testing.T, address string, db *sql.DB) {
	mustExec(t, db, e.words("CREATE TABLE shared (id WORD NOT NULL PRIMARY KEY, n integer, other WORD)"))
	p, parts := opened(t, address, `  insert:
    table: shared
    key: id
    columns:
      id: {from: body.id, type: text}
      n: {from: body.n, type: integer}
`)
	const keys, each = 40, 1500
	last := [2]map[string]int{{}, {}}
	r := rand.New(rand.NewPCG(3, 3))
	var bodies []string
	for n := range 2 * each {
		id := fmt.Sprintf("k%02d", r.IntN(keys))
		bodies = append(bodies, fmt.Sprintf(`{"id":%q,"n":%d}`, id, n))
		last[n%2][id] = n
	}
	letters := consumeAgain(t, p, parts, 0, sluicetest.Bodies(bodies...))
	if len(letters) > 0 {
		t.Errorf("dead letters %q", letters)
	}
	rows := strings.Split(query(t, db, "SELECT id, n FROM shared ORDER BY id"), "\n")
	if len(rows) != keys {
		t.Errorf("%d rows, want %d", len(rows), keys)
	}
	for _, row := range rows {
		id, text, _ := strings.Cut(row, " ")
		if n, err := strconv.Atoi(text); err != nil || last[0][id] != n && last[1][id] != n {
			t.Errorf("row %s: want %d or %d", row, last[0][id], last[1][id])
		}
	}
}

// testNoKey: a table without the key is refused before the first event, with what it needs.
func (e *testedEngine) testNoKey(t *testing.T, address string, db *sql.DB) {
	mustExec(t, db, e.words("CREATE TABLE changes (id WORD, n integer, note WORD)"))
	p, parts := opened(t, address, changesTarget)
	for name, check := range map[string]func() error{
		"run":   func() error { _, err := parts.Consumer(t.Context(), nil); return err },
		"check": func() error { return errors.Join(p.CheckDatabase(t.Context())) },
	} {
		if err := check(); err == nil || !strings.Contains(err.Error(), "p.yaml:14:1: target: table changes has no unique index") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// testConflicts: skip keeps the first row of a key, and newer the one with the highest version.
func (e *testedEngine) testConflicts(t *testing.T, address string, db *sql.DB) {
	for conflict, want := range map[string]string{"on_conflict: skip": "a 1 5\nb 4 <nil>", "on_conflict: newer\n    version: v": "a 3 9\nb 5 0"} {
		mustExec(t, db, e.words("CREATE TABLE kept (id WORD NOT NULL PRIMARY KEY, n integer, v integer)"))
		p, parts := opened(t, address, `  insert:
    table: kept
    key: [id]
    `+conflict+`
    columns:
      id: {from: body.id, type: text}
      n: {from: body.n, type: integer}
      v: {from: body.v, type: integer, required: false}
`)
		round := len(conflict)
		consumeAgain(t, p, parts, round, sluicetest.Bodies(
			`{"id":"a","n":1,"v":5}`, `{"id":"b","n":4}`, `{"id":"a","n":2,"v":4}`, `{"id":"b","n":5,"v":0}`, `{"id":"a","n":3,"v":9}`, `{"id":"b","n":6}`))
		if got := query(t, db, "SELECT id, n, v FROM kept ORDER BY id"); got != want {
			t.Errorf("%s: rows\n%s\nwant\n%s", conflict, got, want)
		}
		mustExec(t, db, "DROP TABLE kept")
	}
}

// testOldDeletes: a delete that is older than a row of its batch, before or after it, does not
// clear what the row's event lacks.
func (e *testedEngine) testOldDeletes(t *testing.T, address string, db *sql.DB) {
	mustExec(t, db, e.words("CREATE TABLE versions (id WORD NOT NULL PRIMARY KEY, v integer, note WORD DEFAULT 'new')"))
	p, parts := opened(t, address, `  insert:
    table: versions
    key: id
    on_conflict: newer
    version: v
    delete_when: {body.op: d}
    columns:
      id: {from: body.id, type: text}
      v: {from: body.v, type: integer}
      note: {from: body.note, type: text, required: false}
`)
	mustExec(t, db, "INSERT INTO versions VALUES ('a', 0, 'old'), ('b', 0, 'old'), ('c', 0, 'old'), ('d', 0, 'old')")
	consume(t, p, parts, sluicetest.Bodies(
		`{"id":"a","op":"d","v":1}`, `{"id":"c","op":"d","v":7}`, `{"id":"a","v":5}`, `{"id":"b","v":5}`, `{"id":"d","v":6}`, `{"id":"b","op":"d","v":1}`, `{"id":"d","v":6}`, `{"id":"c","v":6}`)...)
	if got, want := query(t, db, "SELECT id, v, note FROM versions ORDER BY id"), "a 5 old\nb 5 old\nd 6 old"; got != want {
		t.Errorf("rows\n%s\nwant\n%s", got, want)
	}
}

// testElements: each element of an array is a row, all of an event or none.
func (e *testedEngine) testElements(t *testing.T, address string, db *sql.DB) {
	p, parts := opened(t, address, `  insert:
    table: elements
    create: true
    each: body.records
    columns:
      site: body.site
      at: each_index
      n: {from: each.n, type: integer}
      name: {from: 'lower(each.name)', required: false}
      tag: {from: 'coalesce(each.tags[0], body.tag, "none")'}
`)
	consume(t, p, parts, sluicetest.Bodies(
		`{"site":"a","records":[{"n":1,"name":"X"},{"n":2,"tags":["t","u"]}]}`, `{"site":"b","records":[]}`,
		`{"site":"c","tag":"p","records":[{"n":3},{"n":"x"}]}`, `{"site":"d"}`, `{"site":"e","records":{"n":1}}`, `{"site":"f","tag":"p","records":[{"n":4}]}`)...)
	if got, want := query(t, db, "SELECT site, at, n, name, tag FROM elements ORDER BY 1, 2"), "a 0 1 x none\na 1 2 <nil> t\nf 0 4 <nil> p"; got != want {
		t.Errorf("rows\n%s\nwant\n%s", got, want)
	}
	want := []string{
		`body.records[1]: column n: each.n: "x" where a whole number should be`,
		`each: body.records: is missing`,
		`each: body.records: is object and no array`,
	}
	if letters := deadLetters(t, p, parts); !slices.Equal(letters, want) {
		t.Errorf("dead letters %q, want %q", letters, want)
	}
}

// testElementChanges: a delete deletes the row of each element, if the key is one of elements.
func (e *testedEngine) testElementChanges(t *testing.T, address string, db *sql.DB) {
	mustExec(t, db, e.words("CREATE TABLE elements (site WORD NOT NULL, n integer NOT NULL, v integer, PRIMARY KEY (n, site))"))
	mustExec(t, db, e.words("CREATE TABLE sites (site WORD NOT NULL PRIMARY KEY, v integer)"))
	p, parts := opened(t, address, `  insert:
    table: elements
    each: body.l
    key: [site, n]
    delete_when: {body.op: d}
    columns:
      site: body.site
      n: {from: each.n, type: integer}
      v: {from: each.v, type: integer}
`)
	bodies := sluicetest.Bodies(`{"site":"a","l":[{"n":1,"v":1},{"n":2,"v":1},{"n":3,"v":1}]}`, `{"site":"b","l":[{"n":1,"v":1}]}`,
		`{"op":"d","site":"a","l":[{"n":1},{"n":2}]}`, `{"op":"d","site":"b"}`, `{"op":"d","site":"a","l":[]}`)
	letters := consumeAgain(t, p, parts, 0, bodies)
	if want := []string{"each: body.l: is missing"}; !slices.Equal(letters, want) {
		t.Errorf("dead letters %q, want %q", letters, want)
	}
	if got, want := query(t, db, "SELECT site, n, v FROM elements ORDER BY site, n"), "a 3 1\nb 1 1"; got != want {
		t.Errorf("rows\n%s\nwant\n%s", got, want)
	}
	p, parts = opened(t, address, `  insert:
    table: sites
    each: body.l
    key: site
    delete_when: {body.op: d}
    columns:
      site: body.site
      v: {from: each.v, type: integer}
`)
	letters = consumeAgain(t, p, parts, 1, sluicetest.Bodies(`{"site":"a","l":[{"v":1},{"v":2}]}`, `{"site":"b","l":[{"v":7}]}`, `{"site":"c","l":[{"v":1},{"v":3}]}`, `{"op":"d","site":"b"}`))
	if got, want := query(t, db, "SELECT site, v FROM sites ORDER BY site"), "a 2\nc 3"; got != want || len(letters) > 0 {
		t.Errorf("rows\n%s\nwant\n%s, dead letters %q", got, want, letters)
	}
}

// testDefaults: a value that an insert lacks is the column's default; null is NULL.
func (e *testedEngine) testDefaults(t *testing.T, address string, db *sql.DB) {
	mustExec(t, db, e.words("CREATE TABLE defaults (n integer, a WORD DEFAULT 'one', b WORD DEFAULT 'two' NOT NULL)"))
	p, parts := opened(t, address, `  insert:
    table: defaults
    columns:
      n: {from: body.n, type: integer, required: false}
      a: {from: body.a, type: text, required: false}
      b: {from: body.b, type: text, required: false}
`)
	consume(t, p, parts, sluicetest.Bodies(`{"n":1}`, `{"n":2,"a":"x"}`, `{"n":3,"a":null,"b":"y"}`, `{"n":4,"a":"x","b":"y"}`, `{}`, `{"n":5}`)...)
	if got, want := query(t, db, "SELECT coalesce(n, 0) AS n, a, b FROM defaults ORDER BY n"), "0 one two\n1 one two\n2 x two\n3 <nil> y\n4 x y\n5 one two"; got != want {
		t.Errorf("rows\n%s\nwant\n%s, dead letters %q", got, want, deadLetters(t, p, parts))
	}
}

// testEvolve: a new column of the mapping is added to the table, and a key to a new table.
func (e *testedEngine) testEvolve(t *testing.T, address string, db *sql.DB) {
	const head = "  insert:\n    table: evolved\n    create: true\n    evolve: true\n    key: id\n    columns:\n      id: {from: body.id, type: text}\n      n: {from: body.n, type: integer}\n"
	p, parts := opened(t, address, head)
	consumeAgain(t, p, parts, 0, sluicetest.Bodies(`{"id":"a","n":1}`, `{"id":"b","n":1}`, `{"id":"a","n":2}`))
	p, parts = opened(t, address, head+"      late: {from: body.late, type: date, required: false}\n")
	consumeAgain(t, p, parts, 1, sluicetest.Bodies(`{"id":"a","n":3,"late":"2026-07-08"}`, `{"id":"c","n":1}`))
	if got, want := query(t, db, "SELECT id, n, CASE WHEN late IS NULL THEN 0 ELSE 1 END AS has FROM evolved ORDER BY id"), "a 3 1\nb 1 0\nc 1 0"; got != want {
		t.Errorf("rows\n%s\nwant\n%s, dead letters %q", got, want, deadLetters(t, p, parts))
	}
}

// testDebezium: the table is a copy of the one whose changes Debezium reports.
func (e *testedEngine) testDebezium(t *testing.T, address string, db *sql.DB) {
	mustExec(t, db, e.words("CREATE TABLE copied (id integer NOT NULL PRIMARY KEY, n integer, big WORD)"))
	p, parts := opened(t, address, "  insert:\n    table: copied\n    key: id\n    truncates: delete\n    columns:\n      id: {from: body.id, type: integer}\n"+
		"      n: {from: body.n, type: integer, required: false}\n      big: {from: body.big, type: text, required: false}\n", "  start: earliest\n", "  start: earliest\n  format: {envelope: debezium}\n")
	row := func(id, n int) string { return fmt.Sprintf(`{"id":%d,"n":%d,"big":"x"}`, id, n) }
	change := func(op, before, after string) string {
		return fmt.Sprintf(`{"payload":{"before":%s,"after":%s,"op":%q,"source":{"table":"t"}}}`, before, after, op)
	}
	const null = "null"
	even := []string{ // all of a table that was truncated are in one partition
		change("r", null, row(1, 1)), change("c", null, row(2, 1)), change("u", row(1, 1), row(1, 2)), change("t", null, null), change("c", null, row(3, 1)),
		change("u", row(3, 1), `{"id":3,"n":2,"big":"__debezium_unavailable_value"}`), change("c", null, row(4, 1)), change("d", `{"id":4,"n":null,"big":null}`, null), change("c", null, row(5, 5)),
	}
	var bodies []string
	for i, b := range even {
		odd := change("m", null, null)
		if i == 0 { // an event that can be mapped, of no row
			odd = change("d", `{"id":99}`, null)
		}
		bodies = append(bodies, b, odd)
	}
	consume(t, p, parts, sluicetest.Bodies(bodies...)...)
	if got, want := query(t, db, "SELECT id, n, big FROM copied ORDER BY id"), "3 2 x\n5 5 x"; got != want {
		t.Errorf("rows\n%s\nwant\n%s", got, want)
	}
	if letters := deadLetters(t, p, parts); len(letters) != len(even)-1 || !strings.Contains(letters[0], "message of the database") {
		t.Errorf("dead letters %q", letters)
	}
}

// A null value of Kafka deletes the row of its key, where the file says so.
func TestTombstones(t *testing.T) {
	target := "  insert:\n    table: t\n    key: name\n    delete_when: tombstone\n    columns:\n      name: {from: key, required: true}\n      value: {from: body, type: json}\n"
	p, err := Parse("p.yaml", []byte(editTopic(t, soundTopic[strings.Index(soundTopic, "  insert:"):], target)), kafkaEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	to := targetOf[*tableTarget](p)
	events := []*sluice.Event{{Key: "a", Body: []byte(`{"n":1}`)}, {Key: "a"}, {Key: "b", Body: []byte(`null`)}, {}}
	runs, err := runsOf(to, events)
	if len(runs) > 0 || err == nil || !strings.Contains(err.Error(), "event 2 of the batch: column value: body: is null") || !strings.Contains(err.Error(), "event 3 of the batch: column name: key: is missing") {
		t.Errorf("runs %+v, %v", runs, err)
	}
	runs, err = runsOf(to, events[:2])
	if err != nil || len(runs) != 1 || len(runs[0].changes) != 2 || runs[0].keyed(to.key).Delete(0) || !runs[0].keyed(to.key).Delete(1) || runs[0].changes[1].row[0] != "a" {
		t.Errorf("runs %+v, %v", runs, err)
	}
}

// runsOf are the runs that are written for events.
func runsOf(to *tableTarget, events []*sluice.Event) (runs []run, err error) {
	err = to.change(events, nil, func(r *run) error { runs = append(runs, *r); return nil })
	return runs, err
}

// TestChangesOfManyElements: the rows of an event are written in parts, so that they are not in
// memory all at once, and none after an event that is rejected.
func TestChangesOfManyElements(t *testing.T) {
	columns := "      n: {from: each, type: integer}\n"
	for i := range 99 {
		columns += fmt.Sprintf("      c%d: {from: body.id}\n", i)
	}
	target := "  insert:\n    table: t\n    each: body.list\n    columns:\n" + columns
	p, err := Parse("p.yaml", []byte(edit(t, sound[strings.Index(sound, "  insert:"):], target)), environment("DATABASE_URL=sqlite:x.db"))
	if err != nil {
		t.Fatal(err)
	}
	to := targetOf[*tableTarget](p)
	const rows = 25_000
	many := &sluice.Event{Body: []byte(`{"id":"a","list":[` + strings.Repeat("1,", rows-1) + "1]}")}
	runs, err := runsOf(to, []*sluice.Event{many, many})
	written := 0
	for _, r := range runs {
		if written += len(r.changes); len(r.changes)*len(r.columns) > maxValues {
			t.Errorf("a run of %d rows", len(r.changes))
		}
	}
	if last := runs[len(runs)-1].changes; err != nil || written != 2*rows || last[len(last)-1].event != 1 {
		t.Errorf("%d rows, the last of event %d, %v", written, last[len(last)-1].event, err)
	}
	runs, err = runsOf(to, []*sluice.Event{{Body: []byte(`{"list":[1]}`)}, many, {Body: []byte(`{}`)}})
	if len(runs) > 0 || err == nil || strings.Count(err.Error(), "of the batch") != 2 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
}

// The tombstones of Debezium are left out: they cannot delete.
func TestTombstonesOfDebezium(t *testing.T) {
	_, err := Parse("p.yaml", []byte(editTopic(t, soundTopic[strings.Index(soundTopic, "  insert:"):], "  insert: {table: t, key: id, delete_when: tombstone, columns: {id: {from: key}}}\n",
		"partitions: all\n", "", "    topic: flights\n", "    topic: flights\n  format: {envelope: debezium}\n")), kafkaEnvironment())
	if err == nil || !strings.Contains(err.Error(), "target.insert.delete_when: tombstone does not go with source.format.envelope: debezium") {
		t.Error(err)
	}
}

// A truncation that a trigger prevents is a dead letter, not a success.
func TestTruncationIsProved(t *testing.T) {
	address, db := sqliteFile(t)
	mustExec(t, db, "CREATE TABLE copied (id integer NOT NULL PRIMARY KEY); INSERT INTO copied VALUES (7); CREATE TRIGGER keep BEFORE DELETE ON copied WHEN OLD.id = 7 BEGIN SELECT RAISE(IGNORE); END")
	p, parts := opened(t, address, "  insert:\n    table: copied\n    key: id\n    truncates: delete\n    columns:\n      id: {from: body.id, type: integer}\n",
		"  start: earliest\n", "  start: earliest\n  format: {envelope: debezium}\n")
	letters := consumeAgain(t, p, parts, 0, sluicetest.Bodies(`{"op":"c","after":{"id":1}}`, `{"op":"c","after":{"id":2}}`, `{"op":"t"}`))
	if len(letters) != 1 || !strings.Contains(letters[0], "truncate copied: rows are left: a trigger") {
		t.Errorf("dead letters %q", letters)
	}
	if got := query(t, db, "SELECT id FROM copied ORDER BY id"); got != "1\n2\n7" {
		t.Errorf("rows %s", got)
	}
}

func TestChangesMistakes(t *testing.T) {
	for target, want := range map[string]string{
		"key: nowhere":                               "target.insert.key: nowhere is not among the columns",
		"key: [id, id]":                              "target.insert.key: has id twice",
		"on_conflict: skip":                          "target.insert.on_conflict: goes with key",
		"delete_when: {body.op: d}":                  "target.insert.delete_when: goes with key",
		"key: id, on_conflict: replace":              `target.insert.on_conflict: "replace": write one of update, skip, newer`,
		"key: id, on_conflict: newer":                "newer goes with version",
		"key: id, version: n":                        "target.insert.version: goes with on_conflict: newer",
		"key: id, on_conflict: newer, version: x":    "target.insert.version: x is not among the columns",
		"key: id, on_conflict: newer, version: id":   "target.insert.version: id is part of the key",
		"key: id, delete_when: gone":                 `target.insert.delete_when: "gone": write one of tombstone`,
		"key: id, delete_when: tombstone":            "target.insert.delete_when: tombstone goes with source.kafka",
		"key: id, truncates: delete":                 "target.insert.truncates: goes with source.format.envelope: debezium",
		"each: key":                                  `target.insert.each: "key": write body, or body.PATH of an array`,
		"columns: {a: each.x}":                       "each.x goes with the key each",
		"each: body.list, delete_when: {each.op: d}": "only columns of an insert with the key each can be of an element",
	} {
		keys := target
		if !strings.Contains(keys, "columns:") {
			keys += ", columns: {id: {from: body.id}, n: {from: body.n, type: integer}}"
		}
		_, err := Parse("p.yaml", []byte(edit(t, sound[strings.Index(sound, "  insert:"):], "  insert: {table: t, "+keys+"}\n")), environment("DATABASE_URL=sqlite:x.db"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", target, err, want)
		}
	}
}
