package main_test

import (
	"compress/gzip"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/proof/asazure"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/pipeline"
	"github.com/sluice-go/sluice/sqlstore"
)

// databases are those that the tests run on, by name: each makes a fresh one
// and returns its URL.
var databases = map[string]func(testing.TB) string{
	"sqlite":    func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "flights.db") },
	"postgres":  pgtest.Database,
	"mariadb":   mariadbtest.Database,
	"sqlserver": sqlservertest.Database,
}

// existingSQLite returns the URL of a database that has Sluice's tables.
func existingSQLite(t testing.TB) string {
	t.Helper()
	url := databases["sqlite"](t)
	store, err := sqlstore.OpenSQLite(strings.TrimPrefix(url, "sqlite:"), nil)
	if err != nil {
		t.Fatal(err)
	}
	store.Close()
	return url
}

// eachDatabase runs fn on every kind of database, all at the same time.
func eachDatabase(t *testing.T, fn func(t *testing.T, url string)) { onDatabases(t, databases, fn) }

// eachFastDatabase is eachDatabase without SQL Server, unless SLUICE_EVERY_DATABASE is set: for the
// connections of each new process, Babelfish takes seconds. What these tests ask of a database, the
// suites of package sqlstore and the attack ask of SQL Server too.
func eachFastDatabase(t *testing.T, fn func(t *testing.T, url string)) {
	fast := maps.Clone(databases)
	if !need.InEveryDatabase() {
		delete(fast, "sqlserver")
	}
	onDatabases(t, fast, fn)
}

func onDatabases(t *testing.T, databases map[string]func(testing.TB) string, fn func(t *testing.T, url string)) {
	t.Parallel()
	for name, fresh := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, fresh(t))
		})
	}
}

// openDatabase opens a database for the test's own queries.
func openDatabase(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := pipeline.OpenReader(url)
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok && err == nil {
		db.Close()
		db, err = sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)") // which may write too
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// count answers a query for a number; a table that is not there yet has 0 rows.
func count(t testing.TB, db *sql.DB, query string) (n int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		for _, missing := range []string{"no such table", "does not exist", "doesn't exist", "Invalid object name"} {
			if strings.Contains(err.Error(), missing) {
				return 0
			}
		}
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

const countRows = "SELECT count(*) FROM flights"

// event is an event's identity within its hub.
type event struct {
	partition string
	sequence  int64
}

// rows lists the events that the rows of flights are of, one entry a row.
func rows(t testing.TB, db *sql.DB) (list []event) {
	t.Helper()
	result, err := db.QueryContext(t.Context(), "SELECT hub_partition, sequence_number FROM flights")
	if err != nil {
		t.Fatal(err)
	}
	defer result.Close()
	for result.Next() {
		var e event
		if err := result.Scan(&e.partition, &e.sequence); err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// hub is what the tests ask about a hub themselves.
type hub struct {
	t      testing.TB
	source *eventhub.Source
	ids    []string
}

func lookAt(t testing.TB, connection string) *hub {
	t.Helper()
	source, err := eventhub.New(connection, "flights", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Close(context.Background()) })
	topic, err := source.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &hub{t, source, topic.Partitions}
}

// events lists the identities of all events ever sent.
func (h *hub) events() (list []event) {
	h.t.Helper()
	for _, p := range h.ids {
		for s, last := int64(0), h.last(p); s <= last; s++ {
			list = append(list, event{p, s})
		}
	}
	return list
}

// last returns the number of a partition's last event. The runtime information may be out of date.
func (h *hub) last(partition string) int64 {
	h.t.Helper()
	last, err := h.source.Seek(h.t.Context(), partition, sluice.Latest(), 0)
	if err != nil {
		h.t.Fatal(err)
	}
	return last.Sequence
}

// bodies reads all events of the hub.
func (h *hub) bodies() (list []string) {
	h.t.Helper()
	for _, p := range h.ids {
		last, read := h.last(p), int64(-1)
		await(h.t, "all events of partition "+p, func() bool {
			bodies, err := h.readAfter(p, read, last)
			list, read = append(list, bodies...), read+int64(len(bodies))
			return err == nil
		})
	}
	return list
}

// readAfter reads the bodies of the events after one up to another, or to an error.
func (h *hub) readAfter(partition string, after, last int64) (bodies []string, err error) {
	r, err := h.source.Open(h.t.Context(), partition, driver.Position{Sequence: after}, 1<<40)
	if err != nil {
		return nil, err
	}
	defer r.Close(h.t.Context())
	for after+int64(len(bodies)) < last {
		events, err := r.Read(h.t.Context(), 1000)
		if err != nil {
			return bodies, err
		}
		for _, e := range events {
			bodies = append(bodies, string(e.Body))
		}
	}
	return bodies, nil
}

// exactlyOnce checks that the events each have exactly one effect, and nothing
// else has.
func exactlyOnce(t testing.TB, events []event, effects ...[]event) {
	t.Helper()
	all := slices.Concat(effects...)
	late := t.Failed() // what has failed before may have left events waiting
	times := make(map[event]int, len(events))
	for _, e := range all {
		times[e]++
	}
	for _, e := range events {
		if n := times[e]; n != 1 {
			if n > 1 || !late {
				need.Verdict(t)
			}
			t.Errorf("event %d of partition %s has %d effects", e.sequence, e.partition, n)
			break
		}
	}
	if len(all) > len(events) {
		need.Verdict(t)
	}
	if len(all) != len(events) {
		t.Errorf("%d events have %d effects", len(events), len(all))
	}
}

// letter is a dead letter as `deadletters list --json` prints it.
type letter struct {
	ID        int64
	Status    string
	Partition string
	Sequence  int64
	Key       string
	Attempts  int
	Error     string
	Body      string
}

func deadLetters(t testing.TB, env []string, config string, more ...string) (letters []letter, events []event) {
	t.Helper()
	args := append([]string{"deadletters", "list", "--json", "--config", config}, more...)
	decode(t, must(t, "", env, args...), &letters)
	for _, l := range letters {
		events = append(events, event{l.Partition, l.Sequence})
	}
	return letters, events
}

// checkpoint is a row as `checkpoints list --json` prints it.
type checkpoint struct {
	Partition   string
	Position    *int64
	Lag         *int64
	Owner       string
	Epoch       int64
	DeadLetters int `json:"dead_letters"`
	Recreated   bool
}

// checkpoints returns none before the pipeline has created its database.
func checkpoints(t testing.TB, env []string, config string) (list []checkpoint) {
	t.Helper()
	code, out, errs := invoke(t, "", env, "checkpoints", "list", "--json", "--config", config)
	switch {
	case code == 1 && strings.Contains(errs, missingDatabase):
		return nil
	case code != 0:
		t.Fatalf("checkpoints list: exit code %d: %s%s", code, out, errs)
	}
	decode(t, out, &list)
	return list
}

const missingDatabase = "the database does not exist: run the pipeline first, or correct the name"

func decode(t testing.TB, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

// serve starts a hub named flights in this process.
func serve(t testing.TB, partitions int) (srv *emulator.Server, connection string) {
	t.Helper()
	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: partitions, ConsumerGroups: []string{"sluice-audit"}}}, &emulator.Config{AsAzure: asazure.FreshRuntime()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	return srv, srv.ConnectionString()
}

// environment is what examples/flights.yaml reads.
func environment(connection, database string, more ...string) []string {
	return append([]string{"EVENTHUB_CONNECTION_STRING=" + connection, "DATABASE_URL=" + database}, more...)
}

// example is the pipeline that scripts use.
func example(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs("../../examples/flights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// changed writes the example with replacements, as pairs of old and new.
func changed(t testing.TB, replacements ...string) string {
	t.Helper()
	return changedFile(t, example(t), replacements...)
}

// changedFile is changed for any file.
func changedFile(t testing.TB, file string, replacements ...string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(replacements); i += 2 {
		if !strings.Contains(string(text), replacements[i]) {
			t.Fatalf("the example does not contain %q", replacements[i])
		}
	}
	path := filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.WriteFile(path, []byte(strings.NewReplacer(replacements...).Replace(string(text))), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// quick has leases that expire soon.
func quick(t testing.TB, url string) string {
	t.Helper()
	return changed(t, shortLease(url)...)
}

// shortLease is a replacement in an example: leases that expire soon. A request lasts for a third
// of a lease at most, and a connection to Babelfish costs it much time on a busy machine.
func shortLease(url string) []string {
	lease := "lease: {for: 3s, renew: 1s}"
	if strings.HasPrefix(url, "sqlserver:") {
		lease = "lease: {for: 15s, renew: 3s}"
	}
	return []string{"\npartitions:", "\n" + lease + "\npartitions:"}
}

// longLease is a replacement in an example: leases that do not expire while a process gets no CPU.
var longLease = []string{"\npartitions:", "\nlease: {for: 1m}\npartitions:"}

// flights200k is a file of 200,000 flight records.
func flights200k(t testing.TB) string {
	t.Helper()
	need.Flights(t)
	path, err := filepath.Abs("../../.dev/flights-200k.json")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// flights20k are the demo's records, as the package has them.
func flights20k(t testing.TB) (list []json.RawMessage) {
	t.Helper()
	f, err := os.Open("internal/flights/flights-20k.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(unpacked).Decode(&list); err != nil {
		t.Fatal(err)
	}
	return list
}

// writeLines writes a file with a line for each record.
func writeLines[T ~[]byte | ~string](t testing.TB, lines []T) string {
	t.Helper()
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(string(l))
		b.WriteByte('\n')
	}
	path := filepath.Join(t.TempDir(), "records.ndjson")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// spoiled makes records that lack their delay.
func spoiled(n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"date":"2001/01/14 21:55","distance":%d,"origin":"SAN","destination":"SMF"}`, i)
	}
	return lines
}

// sane is a record with all that a pipeline needs.
const sane = `{"date":"2001/01/14 21:55","delay":5,"distance":480,"origin":"SAN","destination":"SMF"}`

// sum adds up the numbers in a column.
func sum(t testing.TB, db *sql.DB, column string) int64 {
	t.Helper()
	return count(t, db, "SELECT coalesce(sum("+column+"), 0) FROM flights")
}
