//go:build unix

package debezium

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/internal/proof/built"
	"github.com/sluice-go/sluice/internal/proof/kafkatest"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

var sluice = built.Main("github.com/sluice-go/sluice/cmd/sluice")

func TestMain(m *testing.M) { os.Exit(built.Run(m)) }

// columns are those of both tables. big is stored out of line, so that Debezium does not know it in
// an update of another column.
const columns = `(id bigint PRIMARY KEY, n %s, price numeric(12,3), free numeric, day date, at timestamp, atz timestamptz, clock time, word text, flag boolean,
	doc jsonb, tags text[], raw bytea, u uuid, bits bit(10), spot point, big text)`

const pipelineFile = `
source:
  kafka:
    brokers: ${BROKERS}
    topic: shop.public.goods
    group: copy
  start: earliest
  format: {envelope: debezium}
partitions: all
lease: {for: 3s}
database: ${TARGET_URL}
target:
  insert:
    table: goods
    key: id
    truncates: delete
    columns:
      id: {from: body.id, type: bigint}
      n: {from: body.n, type: bigint, required: false}
      price: {from: body.price, type: numeric, required: false}
      free: {from: body.free, type: numeric, required: false}
      day: {from: body.day, type: date, required: false}
      at: {from: body.at, type: timestamp, required: false}
      atz: {from: body.atz, type: timestamp, required: false}
      clock: {from: body.clock, type: text, required: false}
      word: {from: body.word, type: text, required: false}
      flag: {from: body.flag, type: boolean, required: false}
      doc: {from: body.doc, type: json, required: false}
      tags: {from: body.tags, type: json, required: false}
      raw: {from: body.raw, type: bytes, required: false}
      u: {from: body.u, type: text, required: false}
      bits: {from: body.bits, type: text, required: false}
      spot: {from: body.spot, type: text, required: false}
      big: {from: body.big, type: text, required: false}
`

// Inserts, updates, deletes, a TRUNCATE and a change of a type of one PostgreSQL, by Debezium over
// Kafka into another one, while Sluice and Debezium are killed: the tables are equal, row by row.
// SLUICE_DEBEZIUM_CHANGES is how many changes there are.
func TestCopyOfATable(t *testing.T) {
	need.Debezium(t)
	changes := 6000
	if text := os.Getenv("SLUICE_DEBEZIUM_CHANGES"); text != "" {
		var err error
		if changes, err = strconv.Atoi(text); err != nil {
			t.Fatalf("SLUICE_DEBEZIUM_CHANGES: %v", err)
		}
	}
	ctx := t.Context()
	server := pgtest.New(t, &pgtest.Config{Settings: []string{"wal_level = logical"}})
	sourceURL, err := server.CreateDatabase(ctx, "source")
	if err != nil {
		t.Fatal(err)
	}
	targetURL := pgtest.Database(t)
	cluster := kafkatest.New(t, nil)
	source, target := open(t, sourceURL), open(t, targetURL)
	run(t, source, fmt.Sprintf("CREATE TABLE goods "+columns, "integer"))
	run(t, source, "ALTER TABLE goods ALTER big SET STORAGE EXTERNAL")
	run(t, target, fmt.Sprintf("CREATE TABLE goods "+columns, "bigint"))
	w := &writer{conn: source, random: rand.New(rand.NewPCG(1, 2))}
	w.write(t, changes/10) // before the connector begins: its snapshot

	debezium := newConnect(t, cluster.Brokers(), sourceURL, "goods")
	debezium.start(t)
	file := filepath.Join(t.TempDir(), "goods.yaml")
	if err := os.WriteFile(file, []byte(pipelineFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cluster.CreateTopic(ctx, "shop.public.goods", 1); err != nil {
		t.Fatal(err)
	}
	consume := func() *process {
		return start(t, "sluice run", []string{"BROKERS=" + strings.Join(cluster.Brokers(), ","), "TARGET_URL=" + targetURL}, sluice.Path(t), "run", file)
	}
	consumer := consume()
	const rounds = 10
	for round := range rounds {
		w.write(t, changes*9/10/rounds)
		switch round {
		case 3:
			run(t, source, "TRUNCATE goods")
			w.ids = nil
		case 5:
			run(t, source, "ALTER TABLE goods ALTER n TYPE bigint")
			w.wide = true
		}
		if round%3 == 1 {
			debezium.kill()
			debezium.start(t)
		}
		time.Sleep(time.Duration(w.random.IntN(1500)) * time.Millisecond) // at which point of its work a process is killed is up to chance
		consumer.kill()
		consumer = consume()
	}
	awaitEqual(t, source, target, consumer)
	var letters int
	if err := target.QueryRow(ctx, "SELECT count(*) FROM sluice_dead_letters").Scan(&letters); err != nil || letters > 0 {
		t.Errorf("%d dead letters, %v", letters, err)
	}
	t.Logf("%d changes, %d rows at the end, %d kills of Sluice, 3 of Debezium", w.changes, len(w.ids), rounds)
}

func open(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url+"&default_query_exec_mode=exec") // the table changes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func run(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// writer changes the source's table.
type writer struct {
	conn    *pgx.Conn
	random  *rand.Rand
	ids     []int64 // of the rows that are there
	next    int64
	wide    bool // n is a bigint
	changes int
}

// write makes changes, in transactions of one to twenty.
func (w *writer) write(t *testing.T, changes int) {
	t.Helper()
	for changes > 0 {
		tx, err := w.conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range min(changes, 1+w.random.IntN(20)) {
			sql, args := w.change()
			if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
			changes--
			w.changes++
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// change returns a statement.
func (w *writer) change() (string, []any) {
	r := w.random
	n := int64(r.Int32())
	if w.wide {
		n *= 1 << 20
	}
	if len(w.ids) == 0 || r.IntN(3) == 0 {
		w.next++
		w.ids = append(w.ids, w.next)
		return `INSERT INTO goods VALUES ($1, $2, $3::text::numeric, $4::text::numeric, $5::text::date, $6::text::timestamp, $7::text::timestamptz, $8::text::time, $9, $10, $11::text::jsonb,
			$12, $13, gen_random_uuid(), $14::text::bit(10), point($15, 1.5), $16)`, []any{
				w.next, n, fmt.Sprintf("%d.%03d", r.IntN(1e6)-5e5, r.IntN(1000)), fmt.Sprintf("%d.%d", r.Int64()-1<<62, r.IntN(1e9)),
				fmt.Sprintf("%04d-%02d-%02d", 1+r.IntN(9998), 1+r.IntN(12), 1+r.IntN(28)), fmt.Sprintf("2%03d-07-08 21:04:05.%06d", r.IntN(1000), r.IntN(1e6)),
				fmt.Sprintf("1999-%02d-08 21:04:05.%03d+05:30", 1+r.IntN(12), r.IntN(1000)), fmt.Sprintf("%02d:%02d:59.%06d", r.IntN(24), r.IntN(60), r.IntN(1e6)),
				fmt.Sprintf("größe \"%d\" \\ 😀\t'x'", n), r.IntN(2) == 0, fmt.Sprintf(`{"a": [%d, 1.50, "ü"], "b": null}`, n), []string{"a,b", "", `c"d`, "{e}"}, []byte{0, 255, byte(n)},
				fmt.Sprintf("%010b", r.IntN(1024)), float64(r.IntN(1000)) / 4, strings.Repeat(fmt.Sprint(n, " "), 400),
			}
	}
	i := r.IntN(len(w.ids))
	id := w.ids[i]
	switch r.IntN(8) {
	case 0:
		w.ids[i] = w.ids[len(w.ids)-1]
		w.ids = w.ids[:len(w.ids)-1]
		return "DELETE FROM goods WHERE id = $1", []any{id}
	case 1: // another key: Debezium reports a delete and an insert, which needs all values
		w.next++
		w.ids[i] = w.next
		return "UPDATE goods SET id = $2, big = $3 WHERE id = $1", []any{id, w.next, fmt.Sprint(n)}
	case 2:
		return "UPDATE goods SET price = NULL, doc = NULL, tags = NULL, day = NULL, clock = '24:00', word = NULL WHERE id = $1", []any{id}
	case 3:
		return "UPDATE goods SET big = $2, flag = NOT flag WHERE id = $1", []any{id, strings.Repeat(fmt.Sprint(n, "-"), 500)}
	}
	return "UPDATE goods SET n = $2, word = 'updated' WHERE id = $1", []any{id, n}
}

// awaitEqual waits until both tables have the same rows.
func awaitEqual(t *testing.T, source, target *pgx.Conn, consumer *process) {
	t.Helper()
	// Debezium leaves out zeros at the end of a numeric without a scale.
	const sums = "SELECT count(*)::text || ' rows, ' || coalesce(md5(string_agg((to_jsonb(goods) || jsonb_build_object('free', trim_scale(free)))::text, E'\\n' ORDER BY id)), 'none') FROM goods"
	sum := func(conn *pgx.Conn) (s string) {
		if err := conn.QueryRow(t.Context(), sums).Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	run(t, source, "SET TimeZone = 'UTC'")
	run(t, target, "SET TimeZone = 'UTC'")
	want := sum(source)
	deadline := time.Now().Add(3 * time.Minute)
	for sum(target) != want {
		if time.Now().After(deadline) || !consumer.running() {
			t.Fatalf("the target has %s, the source %s\n%s", sum(target), want, difference(t, source, target))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// difference lists some rows that are not the same.
func difference(t *testing.T, source, target *pgx.Conn) string {
	t.Helper()
	rows := func(conn *pgx.Conn) map[int64]string {
		list := map[int64]string{}
		r, err := conn.Query(t.Context(), "SELECT id, g::text FROM goods g")
		if err != nil {
			t.Fatal(err)
		}
		var id int64
		var text string
		if _, err := pgx.ForEachRow(r, []any{&id, &text}, func() error { list[id] = text; return nil }); err != nil {
			t.Fatal(err)
		}
		return list
	}
	was, is := rows(source), rows(target)
	var lines []string
	for id, text := range was {
		if is[id] != text && len(lines) < 5 {
			lines = append(lines, fmt.Sprintf("source %.600s\ntarget %.600s", text, is[id]))
		}
	}
	return strings.Join(lines, "\n")
}
