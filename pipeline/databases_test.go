package pipeline

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/sluicetest"
)

// opened reads the sound file with another target and database, and more edits, and opens it.
func opened(t *testing.T, databaseURL, target string, edits ...string) (*Pipeline, *Parts) {
	t.Helper()
	p, err := Parse("p.yaml", []byte(edit(t, append(edits, sound[strings.Index(sound, "  insert:"):], target)...)), environment("DATABASE_URL="+databaseURL))
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
// every event is rows or a dead letter. It returns how many events were left out.
func consume(t *testing.T, p *Pipeline, parts *Parts, events ...*sluice.Event) (filtered int64) {
	t.Helper()
	return consumeFrom(t, sluicetest.NewHub(p.Group, 2), parts, events...)
}

func consumeFrom(t *testing.T, hub *sluicetest.Hub, parts *Parts, events ...*sluice.Event) (filtered int64) {
	t.Helper()
	left := map[string]int64{}
	for i, e := range events {
		partition := fmt.Sprint(i % 2)
		left[partition] = hub.Append(partition, e).Sequence
	}
	done := make(chan string, len(events))
	var leftOut atomic.Int64
	c, err := parts.Consumer(t.Context(), &Options{Source: hub, Observer: driver.ObserverFunc(func(o driver.Observation) {
		leftOut.Add(int64(o.Filtered))
		if o.Kind == driver.KindCommitted && o.To.Sequence == left[o.Partition] {
			done <- o.Partition
		}
		if o.Kind == driver.KindFailed || o.Kind == driver.KindHalted {
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
	return leftOut.Load()
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

// emptyDatabases makes empty databases of a server.
func emptyDatabases(make func(testing.TB) string) func(testing.TB) (address string, db *sql.DB) {
	return func(t testing.TB) (string, *sql.DB) {
		t.Helper()
		address := make(t)
		db, err := OpenReader(address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return address, db
	}
}

// testedEngine is a database system, with what differs there.
type testedEngine struct {
	database  func(testing.TB) (address string, db *sql.DB) // makes an empty database
	dialect   audit.Dialect
	text      string // is a type of texts
	formats   string // makes a table whose types are nearer to those of Avro than those of a new table; empty: there are none
	short     string // is the type of a column date that holds three characters
	serial    string // is a column that numbers its rows
	generated string // is the type of a column that is generated
	check     string // matches the error of a row that a check refuses
	tooLong   string // matches the error of a text that is too long
	types     typesCase
	statement statementCase
	leavesOut map[string]leavesOutCase
	targets   map[string]targetCase // are those of this engine only
	kinds     columnKinds

	alterations map[string]alteration
	alone       bool     // no table is altered while a transaction is open
	slow        []string // are parts of test and alterations that take long here: the soak's stage every-database runs them
}

// flights is the statement that makes the table of flightsTarget, without its column delay.
func (e *testedEngine) flights(more string) string {
	return fmt.Sprintf("CREATE TABLE flights (hub_partition %s, sequence_number bigint, date %[1]s%s)", e.text, more)
}

// test runs what every engine must do, each with a database of its own.
func (e *testedEngine) test(t *testing.T) {
	for name, do := range map[string]func(*testedEngine, *testing.T, string, *sql.DB){
		"Insert": (*testedEngine).testInsert, "Refuses": (*testedEngine).testRefuses, "Statement": (*testedEngine).testStatement,
		"Target": (*testedEngine).testTarget, "CreateTogether": (*testedEngine).testCreateTogether, "Audit": (*testedEngine).testAudit,
		"Routes": (*testedEngine).testRoutes, "LeavesOut": (*testedEngine).testLeavesOut, "Formats": (*testedEngine).testFormats,
		"Changes": (*testedEngine).testChanges, "Conflicts": (*testedEngine).testConflicts, "OldDeletes": (*testedEngine).testOldDeletes, "SharedKeys": (*testedEngine).testSharedKeys, "Replay": (*testedEngine).testReplay, "NoKey": (*testedEngine).testNoKey, "Elements": (*testedEngine).testElements, "ElementChanges": (*testedEngine).testElementChanges,
		"Defaults": (*testedEngine).testDefaults, "Evolve": (*testedEngine).testEvolve, "Debezium": (*testedEngine).testDebezium,
	} {
		if e.leaves(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			address, db := e.database(t)
			do(e, t, address, db)
		})
	}
	t.Run("Types", e.testTypes)
}

// leaves reports whether a part is left to the soak.
func (e *testedEngine) leaves(name string) bool {
	return slices.Contains(e.slow, name) && !need.InEveryDatabase()
}

// Events become rows of a new table; the others become dead letters.
func (e *testedEngine) testInsert(t *testing.T, address string, db *sql.DB) {
	p, parts := opened(t, address, flightsTarget)
	consume(t, p, parts, sluicetest.Bodies(
		`{"date":"2001/01/14 21:55","delay":0}`, `{"delay":-5}`, `{"delay":"n/a"}`, `{"date":"x","delay":3.7}`, `no JSON`, `{"delay":12}`)...)
	if got, want := query(t, db, "SELECT * FROM flights ORDER BY 1, 2"), "0 0 2001/01/14 21:55 0\n1 0 <nil> -5\n1 2 <nil> 12"; got != want {
		t.Errorf("rows\n%s\nwant\n%s", got, want)
	}
	want := []string{
		`body: not JSON at byte 1: 'o' where the rest of null should be`,
		`column delay: body.delay: "n/a" where a whole number should be`,
		`column delay: body.delay: 3.7 is not a whole number`,
	}
	if letters := deadLetters(t, p, parts); !slices.Equal(letters, want) {
		t.Errorf("dead letters %q, want %q", letters, want)
	}
	progress, err := parts.Checkpoints.Read(t.Context(), p.Group)
	if err != nil || len(progress) != 2 || progress[0].Position.Sequence != 2 || progress[1].Position.Sequence != 2 {
		t.Errorf("checkpoints %+v, %v", progress, err)
	}
}

// A row that the table refuses is the error of its event, whatever its place in a batch.
func (e *testedEngine) testRefuses(t *testing.T, address string, db *sql.DB) {
	mustExec(t, db, "CREATE TABLE flights (hub_partition "+e.text+", sequence_number bigint, date "+e.short+", delay integer CHECK (delay < 100))")
	p, parts := opened(t, address, flightsTarget)
	consume(t, p, parts, sluicetest.Bodies(
		`{"delay":1}`, `{"delay":100}`, `{"delay":3}`, `{"delay":400}`, `{"delay":5}`, `{"delay":"x"}`, `{"delay":6,"date":"long"}`)...)
	if got, want := query(t, db, "SELECT delay FROM flights ORDER BY 1"), "1\n3\n5"; got != want {
		t.Errorf("rows\n%s\nwant\n%s", got, want)
	}
	letters := strings.Join(deadLetters(t, p, parts), "\n")
	count := func(pattern string) int {
		return len(regexp.MustCompile("(?m)^"+pattern+"$").FindAllString(letters, -1))
	}
	refused, long := count("insert into flights: "+e.check), count("insert into flights: "+e.tooLong)
	if refused != 2 || long != 1 || count(`column delay: body.delay: "x" where a whole number should be`) != 1 || strings.Count(letters, "\n") != 3 {
		t.Errorf("dead letters\n%s", letters)
	}
}

// leavesOutCase makes a table flights that does not keep one of two rows with the delay 7, and says
// what the dead letter of the other one must match.
type leavesOutCase struct{ table, want string }

// testLeavesOut: each event is a row or a dead letter, whatever rule of the table leaves a row out
// or puts it in the place of another.
func (e *testedEngine) testLeavesOut(t *testing.T, _ string, _ *sql.DB) {
	for name, c := range e.leavesOut {
		for _, n := range []int{2, 400} { // many rows are written in another way
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				address, db := e.database(t)
				mustExec(t, db, c.table)
				bodies := make([]string, n)
				for i := range bodies {
					bodies[i] = fmt.Sprintf(`{"delay":%d}`, 1000+i)
				}
				bodies = append(bodies, `{"delay":7}`, `{"delay":8}`, `{"delay":7}`)
				p, parts := opened(t, address, uncreated)
				consume(t, p, parts, sluicetest.Bodies(bodies...)...)
				rows, letters := query(t, db, "SELECT count(*) FROM flights"), deadLetters(t, p, parts)
				if len(letters) == 0 || rows != fmt.Sprint(len(bodies)-len(letters)) || !regexp.MustCompile(c.want).MatchString(letters[0]) {
					t.Errorf("%s rows of %d events, dead letters %q; want the others to match %s", rows, len(bodies), letters, c.want)
				}
			})
		}
	}
}

// startedSpans reports each span, whose start waits until all are released.
type startedSpans struct {
	started, released chan struct{}
}

func (s startedSpans) OnStart(context.Context, sdktrace.ReadWriteSpan) {
	select {
	case s.started <- struct{}{}:
		<-s.released
	case <-s.released:
	}
}

func (startedSpans) OnEnd(sdktrace.ReadOnlySpan)      {}
func (startedSpans) Shutdown(context.Context) error   { return nil }
func (startedSpans) ForceFlush(context.Context) error { return nil }

// testConnections: as many partitions are written at the same time as the file has connections.
func (e *testedEngine) testConnections(t *testing.T) {
	const partitions, connections = 5, 2
	address, _ := e.database(t)
	p, parts := opened(t, address, flightsTarget, "database: ${DATABASE_URL}", fmt.Sprintf("database: {url: \"${DATABASE_URL}\", connections: %d}\nassign: {burst: %d}", connections, partitions))
	hub := sluicetest.NewHub(p.Group, partitions)
	for i := range partitions {
		hub.Append(fmt.Sprint(i), sluicetest.Bodies(`{"delay":1}`)...)
	}
	spans := startedSpans{started: make(chan struct{}), released: make(chan struct{})}
	c, err := parts.Consumer(t.Context(), &Options{Source: hub, TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))})
	suite.NoError(t, "consumer", err)
	ended := suite.Spawn(t, func() error { return c.Run(t.Context()) })
	if got := countTo(spans.started, connections+1); got != connections {
		t.Errorf("%d partitions are written at the same time over %d connections", got, connections)
	}
	close(spans.released)
	suite.Eventually(t, "all partitions to be written", func() bool {
		list, err := parts.Checkpoints.Read(t.Context(), p.Group)
		return err == nil && len(list) == partitions && !slices.ContainsFunc(list, func(c sluice.Checkpoint) bool { return c.Position.Sequence != 0 })
	})
	suite.NoError(t, "stop", errors.Join(c.Stop(t.Context()), <-ended))
}

// typesCase is a table of other types than the mapping's, and what is read from both.
type typesCase struct {
	optional bool // of the columns a to i
	bodies   []string
	given    func(*testing.T, *sql.DB) (name, from string) // makes the table, and returns its names in a mapping and in SQL
	rows     string                                        // is a query without its table
	want     string
}

// typed are the columns of a target for every type.
const typed = `      a: {from: body.a, type: text}
      b: {from: body.b, type: integer}
      c: {from: body.c, type: bigint}
      d: {from: body.d, type: double}
      e: {from: body.e, type: numeric}
      f: {from: body.f, type: boolean}
      g: {from: body.g, type: timestamp}
      h: {from: body.h, type: bytes}
      i: {from: body.i, type: json}
`

// Every type comes out of a database as it should, from a table that is made of the mapping, and
// from one with other fitting types.
func (e *testedEngine) testTypes(t *testing.T) {
	columns := "    columns:\n" + typed
	if e.types.optional {
		columns = strings.ReplaceAll(columns, "}", ", required: false}")
	}
	columns += `      j: {from: body.j, default: none}
      k: {from: body.k, type: integer, required: false}
      l: {from: body.l, type: timestamp, required: false}
`
	for _, name := range []string{"created", "given"} {
		t.Run(name, func(t *testing.T) {
			address, db := e.database(t)
			target, from := "  insert:\n    table: types\n    create: true\n", "types"
			if name == "given" {
				var table string
				table, from = e.types.given(t, db)
				target = "  insert:\n    table: " + table + "\n"
			}
			p, parts := opened(t, address, target+columns)
			consume(t, p, parts, sluicetest.Bodies(e.types.bodies...)...)
			if got := query(t, db, e.types.rows+" FROM "+from+" ORDER BY b"); got != e.types.want {
				t.Errorf("got  %s\nwant %s\ndead letters: %q", got, e.types.want, deadLetters(t, p, parts))
			}
		})
	}
}

// statementCase is a statement that stores the last delay, below 100, of each origin.
type statementCase struct{ table, sql, rows, want, refused string }

// A statement gets its parameters; one event of two that fail is refused by the database.
func (e *testedEngine) testStatement(t *testing.T, address string, db *sql.DB) {
	c := e.statement
	mustExec(t, db, c.table)
	p, parts := opened(t, address, "  statement:\n    sql: |\n"+c.sql+`    parameters:
      origin: body.origin
      delay: {from: body.delay, type: integer}
      price: {from: body.price, type: numeric, default: 1.5}
      at: {from: body.at, type: timestamp, required: false}
      raw: {from: body, type: json}
`)
	consume(t, p, parts, sluicetest.Bodies(
		`{"origin":"SAN","delay":1}`, `{"origin":"LAX","delay":2,"price":"0.10","at":"2026-01-31T08:30:00Z"}`, `{"origin":"SAN","delay":3}`,
		`{"origin":"LAX","delay":500}`, `{"origin":"SAN","delay":5}`, `{"delay":1}`)...)
	if got := query(t, db, c.rows+" FROM last ORDER BY origin"); got != c.want {
		t.Errorf("rows\n%s\nwant\n%s", got, c.want)
	}
	letters := deadLetters(t, p, parts)
	if len(letters) != 2 || !strings.Contains(strings.Join(letters, "\n"), c.refused) || !slices.Contains(letters, "parameter origin: body.origin: is missing") {
		t.Errorf("dead letters %q", letters)
	}
}

// targetCase is a table, a target for it, and the error at the start.
type targetCase struct{ table, target, want string }

// uncreated is flightsTarget of a table that must exist.
var uncreated = strings.Replace(flightsTarget, "create: true", "create: false", 1)

// An error of the target is reported at the start, in one line with its place, and by a check too.
func (e *testedEngine) testTarget(t *testing.T, address string, db *sql.DB) {
	typeName, _, _ := strings.Cut(e.text, "(")
	cases := map[string]targetCase{
		"missing": {"", uncreated, "table flights does not exist: create it, or set create: true"},
		"column":  {e.flights(""), flightsTarget, "table flights has no column delay: it has hub_partition, sequence_number, date"},
		"type": {e.flights(", delay " + e.text), flightsTarget,
			"table flights: column delay is " + typeName + ", which can't hold the mapping's integer: change one of them"},
		"several": {fmt.Sprintf("CREATE TABLE flights (hub_partition %s, sequence_number %[1]s, delay %[1]s, origin %[1]s NOT NULL, %s)", e.text, e.serial), flightsTarget,
			"table flights: column sequence_number is " + typeName + ", which can't hold the mapping's bigint: change one of them\n" +
				"table flights has no column date: it has hub_partition, sequence_number, delay, origin, id\n" +
				"table flights: column delay is " + typeName + ", which can't hold the mapping's integer: change one of them\n" +
				"table flights: column origin must have a value and has no default: add it to the mapping"},
		"must": {e.flights(", delay int, origin " + e.text + " NOT NULL, " + e.serial), flightsTarget,
			"table flights: column origin must have a value and has no default: add it to the mapping"},
		"generated": {e.flights(", delay " + e.generated), flightsTarget,
			"table flights: column delay is generated and takes no values: remove it from the mapping"},
	}
	maps.Copy(cases, e.targets)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			mustExec(t, db, "DROP TABLE IF EXISTS flights")
			mustExec(t, db, "DROP TABLE IF EXISTS Flights")
			if c.table != "" {
				mustExec(t, db, c.table)
			}
			p, parts := opened(t, address, c.target)
			_, err := parts.Consumer(t.Context(), nil)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
			} else if want := "p.yaml:14:1: target: " + strings.ReplaceAll(c.want, "\n", "\np.yaml:14:1: target: "); err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			checked := p.checkDatabase(t.Context())
			if (name == "fits") != (checked == nil) && name != "schema" {
				t.Errorf("Check: %v", checked)
			}
		})
	}
}

// Consumers that start at the same time create one table.
func (e *testedEngine) testCreateTogether(t *testing.T, address string, db *sql.DB) {
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

// An audit counts nothing of a group whose name differs in its case or its trailing blanks.
func (e *testedEngine) testAudit(t *testing.T, address string, db *sql.DB) {
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
		if _, err := parts.Checkpoints.Reset(t.Context(), group, "0", "1", sluice.Position{Sequence: n}, "set"); err != nil {
			t.Fatal(err)
		}
		letter := sluice.DeadLetter{Group: group, Incarnation: "1", Event: sluice.Event{Partition: "0", Sequence: n}, Status: sluice.StatusDead}
		if err := parts.store.Park(t.Context(), []sluice.DeadLetter{letter}); err != nil {
			t.Fatal(err)
		}
	}
	ledger := audit.NewSQLLedger(db, e.dialect, audit.Table{Name: "flights", Partition: "hub_partition", Sequence: "sequence_number"})
	for i, name := range names {
		n := int64(i)
		view, err := ledger.Open(t.Context(), topic(name), "0")
		if err != nil {
			t.Fatal(err)
		}
		at, found, err := view.Checkpoint(t.Context())
		if err != nil || !found || at.Position.Sequence != n || at.Began != (driver.Beginning{After: n, How: driver.HowSet}) {
			t.Errorf("group %q: checkpoint %+v, %t, %v; want it set to %d", name, at, found, err, n)
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

// secret is the password in addresses that do not work.
const secret = "canary-4711"

// testCheck checks that a check creates no table, which tables counts, and that neither Parse nor
// Open nor a check shows the password of an address that does not work: of server addresses of a
// scheme with a database after them, and of more.
func (e *testedEngine) testCheck(t *testing.T, tables, scheme, database string, more func(*url.URL) []string) {
	t.Helper()
	address, db := e.database(t)
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
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	addresses := more(u)
	for _, server := range []string{"app:" + secret + "@127.0.0.1:1", "app:" + secret + "@no.such.host.invalid", "app:" + secret + "@127.0.0.1:port",
		"app:" + secret + "%zz@h", "app:x@" + secret + "@h:x", "app:1/" + secret + "@h"} {
		addresses = append(addresses, scheme+server+database)
	}
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
