package pipeline

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/sluicetest"
)

// opened reads the sound file with another target and database, and opens it.
func opened(t *testing.T, databaseURL, target string) (*Pipeline, *Parts) {
	t.Helper()
	p, err := Parse("p.yaml", []byte(edit(t, sound[strings.Index(sound, "  insert:"):], target)), environment("DATABASE_URL="+databaseURL))
	if err != nil {
		t.Fatal(err)
	}
	parts, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := parts.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p, parts
}

// consume runs a consumer of the pipeline over a hub of two partitions until
// every event is rows or a dead letter.
func consume(t *testing.T, p *Pipeline, parts *Parts, events ...*sluice.Event) {
	t.Helper()
	hub := sluicetest.NewHub(p.Group, 2)
	left := map[string]int64{}
	for i, e := range events {
		partition := fmt.Sprint(i % 2)
		left[partition] = hub.Append(partition, e).Sequence
	}
	done := make(chan string, len(events))
	c, err := parts.Consumer(t.Context(), &Options{Source: hub, Observer: sluice.ObserverFunc(func(o sluice.Observation) {
		if o.Kind == sluice.KindCommitted && o.To.Sequence == left[o.Partition] {
			done <- o.Partition
		}
		if o.Kind == sluice.KindFailed || o.Kind == sluice.KindStopped {
			t.Errorf("partition %s: %v", o.Partition, o.Err)
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for range left {
		select {
		case <-done:
		case <-ctx.Done():
			t.Error("not done in time")
		}
	}
	if err := errors.Join(c.Stop(ctx), <-ended); err != nil {
		t.Fatal(err)
	}
}

// deadLetters lists the errors of the group's dead letters.
func deadLetters(t *testing.T, p *Pipeline, parts *Parts) []string {
	t.Helper()
	list, err := parts.DeadLetters.List(t.Context(), p.Group, sluice.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, d := range list {
		texts = append(texts, d.Error)
	}
	slices.Sort(texts)
	return texts
}

func query(t *testing.T, db *sql.DB, text string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, v := range values {
			if b, ok := (*v.(*any)).([]byte); ok { // as MySQL returns texts
				texts = append(texts, string(b))
				continue
			}
			texts = append(texts, fmt.Sprint(*v.(*any)))
		}
		lines = append(lines, strings.Join(texts, " "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func mustExec(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}

const flightsTarget = `  insert:
    table: flights
    create: true
    columns:
      hub_partition: partition
      sequence_number: sequence
      date: {from: body.date, type: text, required: false}
      delay: {from: body.delay, type: integer}
`

// insertsFlights checks that events become rows of a new table, and returns the errors of the
// others.
func insertsFlights(t *testing.T, address string, db *sql.DB) (p *Pipeline, parts *Parts, letters []string) {
	t.Helper()
	p, parts = opened(t, address, flightsTarget)
	consume(t, p, parts, sluicetest.Bodies(
		`{"date":"2001/01/14 21:55","delay":0}`, `{"delay":-5}`, `{"delay":"n/a"}`, `{"date":"x","delay":3.7}`, `no JSON`, `{"delay":12}`)...)
	if got, want := query(t, db, "SELECT * FROM flights ORDER BY 1, 2"), "0 0 2001/01/14 21:55 0\n1 0 <nil> -5\n1 2 <nil> 12"; got != want {
		t.Errorf("rows\n%s\nwant\n%s", got, want)
	}
	letters = deadLetters(t, p, parts)
	if len(letters) != 3 {
		t.Errorf("dead letters %q", letters)
	}
	return p, parts, letters
}

// refusesRows checks that a row that the table refuses is the error of its event, whatever its
// place in a batch. The table takes delays below 100 only. It returns the errors.
func refusesRows(t *testing.T, address string, db *sql.DB, more ...string) []string {
	t.Helper()
	p, parts := opened(t, address, flightsTarget)
	consume(t, p, parts, sluicetest.Bodies(append([]string{`{"delay":1}`, `{"delay":100}`, `{"delay":3}`, `{"delay":400}`, `{"delay":5}`, `{"delay":"x"}`}, more...)...)...)
	if got, want := query(t, db, "SELECT delay FROM flights ORDER BY 1"), "1\n3\n5"; got != want {
		t.Errorf("rows\n%s\nwant\n%s", got, want)
	}
	return deadLetters(t, p, parts)
}

// storesTypes checks that every type comes out of a database as it should, from a table types that is
// made of the mapping, and from one with other fitting types, which given makes. It returns that table's
// names in a mapping and in SQL. rows is the query of a table.
func storesTypes(t *testing.T, database func(testing.TB) (string, *sql.DB), columns string, bodies []string, given func(*testing.T, *sql.DB) (name, from string),
	rows func(from string) string, want string) {
	for _, name := range []string{"created", "given"} {
		t.Run(name, func(t *testing.T) {
			address, db := database(t)
			target, from := "  insert:\n    table: types\n    create: true\n", "types"
			if name == "given" {
				var table string
				table, from = given(t, db)
				target = "  insert:\n    table: " + table + "\n"
			}
			p, parts := opened(t, address, target+columns)
			consume(t, p, parts, sluicetest.Bodies(bodies...)...)
			if got := query(t, db, rows(from)); got != want {
				t.Errorf("got  %s\nwant %s\ndead letters: %q", got, want, deadLetters(t, p, parts))
			}
		})
	}
}

// lastDelays are events for a statement that stores the last delay, below 100, of each origin.
var lastDelays = []string{
	`{"origin":"SAN","delay":1}`, `{"origin":"LAX","delay":2,"price":"0.10","at":"2026-01-31T08:30:00Z"}`, `{"origin":"SAN","delay":3}`,
	`{"origin":"LAX","delay":500}`, `{"origin":"SAN","delay":5}`, `{"delay":1}`,
}

// storesLastDelays checks a statement by the rows of a query and the errors of two events, of
// which one is refused by the database.
func storesLastDelays(t *testing.T, address string, db *sql.DB, statement, rows, want, refused string) {
	t.Helper()
	p, parts := opened(t, address, statement)
	consume(t, p, parts, sluicetest.Bodies(lastDelays...)...)
	if got := query(t, db, rows); got != want {
		t.Errorf("rows\n%s\nwant\n%s", got, want)
	}
	letters := deadLetters(t, p, parts)
	if len(letters) != 2 || !strings.Contains(strings.Join(letters, "\n"), refused) || !slices.Contains(letters, "parameter origin: body.origin: is missing") {
		t.Errorf("dead letters %q", letters)
	}
}

// targetCase is a table, a target for it, and the error at the start.
type targetCase struct{ table, target, want string }

// checksTargets checks that an error of the target is reported at the start, in one line with
// its place, and by a check too. Each case has an empty database.
func checksTargets(t *testing.T, cases map[string]targetCase, database func(*testing.T) (address string, db *sql.DB)) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			address, db := database(t)
			if c.table != "" {
				mustExec(t, db, c.table)
			}
			p, parts := opened(t, address, c.target)
			_, err := parts.Consumer(t.Context(), nil)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
			} else if want := "p.yaml:14:1: target: " + c.want; err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			checked := p.checkDatabase(t.Context())
			if (name == "fits") != (checked == nil) && name != "schema" {
				t.Errorf("Check: %v", checked)
			}
		})
	}
}

// createsTogether checks that consumers that start at the same time create one table.
func createsTogether(t *testing.T, address string, db *sql.DB) {
	t.Helper()
	_, parts := opened(t, address, flightsTarget)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := parts.Consumer(t.Context(), nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := query(t, db, "SELECT count(*) FROM flights"); got != "0" {
		t.Errorf("%s rows", got)
	}
}

// auditsOneGroup checks that an audit counts nothing of a group whose name differs in its case or its
// trailing blanks.
func auditsOneGroup(t *testing.T, address string, db *sql.DB, dialect audit.Dialect) {
	t.Helper()
	_, parts := opened(t, address, flightsTarget)
	if _, err := parts.Consumer(t.Context(), nil); err != nil { // which makes the table
		t.Fatal(err)
	}
	names := []string{"g", "g ", "G"}
	topic := func(name string) sluice.Topic {
		return sluice.Topic{Group: sluice.Group{Namespace: "n", Topic: "t", Name: name}, Incarnation: "1"}
	}
	for i, name := range names {
		n, group := int64(i), topic(name).Group
		if _, err := parts.Checkpoints.Reset(t.Context(), group, "0", "1", sluice.Position{Sequence: n}); err != nil {
			t.Fatal(err)
		}
		letter := sluice.DeadLetter{Group: group, Incarnation: "1", Event: sluice.Event{Partition: "0", Sequence: n}, Status: sluice.StatusDead}
		if err := parts.store.Park(t.Context(), []sluice.DeadLetter{letter}); err != nil {
			t.Fatal(err)
		}
	}
	ledger := audit.NewSQLLedger(db, dialect, audit.Table{Name: "flights", Partition: "hub_partition", Sequence: "sequence_number"})
	for i, name := range names {
		n := int64(i)
		view, err := ledger.Open(t.Context(), topic(name), "0")
		if err != nil {
			t.Fatal(err)
		}
		at, found, err := view.Checkpoint(t.Context())
		if err != nil || !found || at.Position.Sequence != n {
			t.Errorf("group %q: checkpoint %v, %t, %v; want it at %d", name, at, found, err, n)
		}
		var entries []audit.Entry
		for e, err := range view.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, e)
		}
		if want := []audit.Entry{{Sequence: n, DeadLetter: true}}; !slices.Equal(entries, want) {
			t.Errorf("group %q: %v, want %v", name, entries, want)
		}
		if err := view.Close(); err != nil {
			t.Error(err)
		}
	}
}

// checkLeavesNothing checks that a check creates no table. tables counts them.
func checkLeavesNothing(t *testing.T, address string, db *sql.DB, tables string) {
	t.Helper()
	p, err := Parse("p.yaml", []byte(sound), environment("DATABASE_URL="+address))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.checkDatabase(t.Context()); err != nil {
		t.Error(err)
	}
	if got := query(t, db, tables); got != "0" {
		t.Errorf("Check left %s tables", got)
	}
}

// secret is the password in addresses that do not work.
const secret = "canary-4711"

// hidesPassword checks that neither Parse nor Open nor a check shows the password of an address
// that does not work.
func hidesPassword(t *testing.T, addresses ...string) {
	t.Helper()
	for _, address := range addresses {
		p, err := Parse("p.yaml", []byte(sound), environment("DATABASE_URL="+address))
		if err == nil {
			err = p.checkDatabase(t.Context())
			_, openErr := p.Open(t.Context())
			if openErr == nil {
				t.Errorf("%s opened", address)
			} else {
				err = fmt.Errorf("%w\n%w", err, openErr)
			}
		}
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("got %v", err)
			continue
		}
		for line := range strings.Lines(err.Error()) {
			if !strings.HasPrefix(line, "p.yaml:13:1: database: ") {
				t.Errorf("line %q", line)
			}
		}
	}
}
