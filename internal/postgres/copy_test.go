package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/internal/postgres"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

func connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func exec(t testing.TB, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// copied copies rows of one column into the table t, in a transaction that is rolled back, and
// returns the texts that are there then.
func copied(t testing.TB, conn *pgx.Conn, values ...any) ([]string, error) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	c := rowsOf("t", values)
	if n, err := c.RunTx(t.Context(), tx); err != nil || n != int64(len(values)) {
		return nil, fmt.Errorf("%d rows: %w", n, err)
	}
	rows, err := tx.Query(t.Context(), `SELECT coalesce(c::text, '<NULL>') FROM t`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func rowsOf(table string, values []any) *postgres.Copy {
	return &postgres.Copy{Table: pgx.Identifier{table}, Columns: []string{"c"}, Row: func(i int) ([]any, error) {
		if i == len(values) {
			return nil, io.EOF
		}
		return values[i : i+1], nil
	}}
}

// Every text arrives as it is, wherever what COPY escapes stands in it.
func TestCopyTexts(t *testing.T) {
	conn := connect(t)
	exec(t, conn, `CREATE TABLE t (c text)`)
	texts := []any{"", `\.`, `\N`, `\`, "\\\n", "NULL", strings.Repeat("x", 200_000) + "\t", "größe", "\x01\x1f\x7f", strings.Repeat("\\\t\n\r", 50_000)}
	for _, special := range []string{"\t", "\n", "\r", "\\", "\b", "\v", "é", "\x1f"} {
		for length := range 20 {
			for at := range length {
				texts = append(texts, strings.Repeat("x", at)+special+strings.Repeat("y", length-at-1))
			}
		}
	}
	got, err := copied(t, conn, texts...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range texts {
		if got[i] != texts[i] {
			t.Fatalf("text %d is %.60q, want %.60q", i, got[i], texts[i])
		}
	}
	var row *postgres.CopyError
	if _, err := copied(t, conn, "a", "b\x00", "c"); !errors.As(err, &row) || row.Row != 1 || !strings.Contains(err.Error(), "NUL") {
		t.Errorf("a NUL character: %v", err)
	}
}

type named string

// A value of Go is stored as what it is, in a column of a type that pgx knows and of one that it
// does not know, whatever the session's settings are.
func TestCopyValues(t *testing.T) {
	conn := connect(t)
	exec(t, conn, `CREATE TYPE word AS ENUM ('some', 'none'); CREATE DOMAIN octets AS bytea; SET DateStyle = 'German, DMY'; SET IntervalStyle = 'sql_standard'; SET TimeZone = 'Asia/Tokyo'; SET bytea_output = 'escape'`)
	east := time.FixedZone("east", 5*3600+1800)
	at := time.Date(2026, 7, 8, 21, 4, 5, 678_901_999, east)
	for _, c := range []struct {
		kind  string
		value any
		want  string // as a literal, which the server reads by itself
	}{
		{"integer", 12, "12"}, {"integer", "12", "12"}, {"smallint", int16(-7), "-7"}, {"bigint", uint32(1 << 31), "2147483648"}, {"real", 12, "12"},
		{"numeric", uint64(1 << 63), "9223372036854775808"}, {"numeric", 1e20, "100000000000000000000"}, {"double precision", math.Inf(-1), "-Infinity"}, {"real", float32(0.1), "0.1"},
		{"boolean", true, "t"}, {"text", false, "false"}, {"text", named("x\ty"), "x\ty"}, {"integer", nil, ""}, {"integer", (*int)(nil), ""},
		{"bytea", []byte("a\\b\x00"), `\x615c6200`}, {"octets", []byte{1}, `\x01`}, {"text", []byte("a\\b"), `a\b`}, {"word", []byte("none"), "none"}, {"word", named("some"), "some"},
		{"jsonb", []byte(`{"a": "\n"}`), `{"a": "\n"}`}, {"jsonb", map[string]any{"a": "x\ty"}, `{"a": "x\ty"}`}, {"json", json.RawMessage(`[1]`), `[1]`}, {"jsonb", at.Truncate(time.Second), `"2026-07-08T21:04:05+05:30"`},
		{"jsonb", 12, "12"}, {"jsonb", `{"a": 1}`, `{"a": 1}`}, {"jsonb", []string{"a"}, `["a"]`},
		{"text[]", []string{"a b", `c"\d`, "NULL"}, `{"a b","c\"\\d","NULL"}`}, {"integer[]", []int{1, 2}, "{1,2}"}, {"inet", netip.MustParseAddr("10.0.0.1"), "10.0.0.1"},
		{"uuid", [16]byte{15: 1}, "00000000-0000-0000-0000-000000000001"}, {"interval", "P1Y2M", "P1Y2M"}, {"interval", time.Minute, "00:01:00"}, {"money", 12345.67, "12345.67"},
		{"timestamptz", at, "2026-07-08 21:04:05.678901+05:30"}, {"timestamp", at, "2026-07-08 21:04:05.678901"}, {"date", at, "2026-07-08"}, {"timestamptz", "January 8, 1999", "January 8, 1999"},
		{"timestamptz", time.Date(-43, 3, 15, 0, 0, 0, 0, time.UTC), "0044-03-15 00:00:00+00 BC"}, {"timestamptz", time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC), "12026-01-01 00:00:00+00"},
	} {
		exec(t, conn, `DROP TABLE IF EXISTS t; CREATE TABLE t (c `+c.kind+`)`)
		conn.DeallocateAll(t.Context())
		want := "<NULL>"
		if c.want != "" {
			if err := conn.QueryRow(t.Context(), `SELECT (`+postgres.Literal(c.want)+`::`+c.kind+`)::text`).Scan(&want); err != nil {
				t.Fatal(err)
			}
		}
		got, err := copied(t, conn, c.value)
		if _, changed := errors.AsType[*postgres.ColumnsError](err); changed { // it is another table now
			got, err = copied(t, conn, c.value)
		}
		if err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%T %v into %s is %q, %v, want %q", c.value, c.value, c.kind, got, err, want)
		}
	}
}

// What may be written to a table decides COPY alone: a right to one column, a view with a trigger,
// the table's defaults.
func TestCopyNeedsNoMoreThanCopy(t *testing.T) {
	conn := connect(t)
	exec(t, conn, `CREATE SCHEMA "a""b"; CREATE DOMAIN must AS int NOT NULL;
		CREATE TABLE "a""b"."t\'x" (id bigint GENERATED ALWAYS AS IDENTITY, must must NOT NULL, "c'\" text, other text DEFAULT 'x');
		CREATE ROLE copier; GRANT USAGE ON SCHEMA "a""b" TO copier; GRANT INSERT (must, "c'\") ON "a""b"."t\'x" TO copier;
		CREATE VIEW seen AS SELECT must, "c'\" AS c FROM "a""b"."t\'x";
		CREATE FUNCTION through() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO "a""b"."t\'x" (must, "c'\") VALUES (NEW.must, NEW.c); RETURN NEW; END $$;
		CREATE TRIGGER through INSTEAD OF INSERT ON seen FOR EACH ROW EXECUTE FUNCTION through()`)
	run := func(table pgx.Identifier, columns ...string) {
		t.Helper()
		c := postgres.Copy{Table: table, Columns: columns, Row: func(i int) ([]any, error) {
			if i == 1 {
				return nil, io.EOF
			}
			return []any{1, "x"}, nil
		}}
		if n, err := c.Run(t.Context(), conn); n != 1 || err != nil {
			t.Errorf("%q: %d rows, %v", table, n, err)
		}
	}
	run(pgx.Identifier{"seen"}, "must", "c")
	exec(t, conn, `SET standard_conforming_strings = off; SET ROLE copier`)
	run(pgx.Identifier{`a"b`, `t\'x`}, "must", `c'\`)
	exec(t, conn, `RESET ROLE; DROP OWNED BY copier; DROP ROLE copier`)
}

// BenchmarkCopy compares the text form with pgx's binary one: the forms take turns.
func BenchmarkCopy(b *testing.B) {
	const rows = 4000
	conn := connect(b)
	exec(b, conn, `CREATE TABLE wide (a text, b bigint, c text, d timestamptz, e integer, f integer, g text); CREATE TABLE narrow (a bigint, b bigint, c integer, d double precision)`)
	at, payload := time.Date(2026, 11, 23, 21, 0, 0, 123_456_000, time.UTC), strings.Repeat("Nothing of this is copied. ", 32)
	for table, value := range map[string]func(i int) []any{
		"wide":   func(i int) []any { return []any{"0", int64(i), "gauge-0001", at, 310, 480, payload} },
		"narrow": func(i int) []any { return []any{int64(i), int64(i) << 20, i, float64(i) / 7} },
	} {
		columns := strings.Split("a b c d e f g", " ")[:len(value(0))]
		text := func() (int64, error) {
			c := postgres.Copy{Table: pgx.Identifier{table}, Columns: columns, Row: func(i int) ([]any, error) {
				if i == rows {
					return nil, io.EOF
				}
				return value(i), nil
			}}
			return c.Run(b.Context(), conn)
		}
		binary := func() (int64, error) {
			return conn.CopyFrom(b.Context(), pgx.Identifier{table}, columns, pgx.CopyFromSlice(rows, func(i int) ([]any, error) { return value(i), nil }))
		}
		b.Run(table, func(b *testing.B) {
			var took [2]time.Duration
			for b.Loop() {
				for i, copy := range []func() (int64, error){text, binary} {
					exec(b, conn, `TRUNCATE `+table)
					began := time.Now()
					if n, err := copy(); n != rows || err != nil {
						b.Fatal(n, err)
					}
					took[i] += time.Since(began)
				}
			}
			b.ReportMetric(float64(took[0].Nanoseconds())/float64(b.N)/rows, "text-ns/row")
			b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "text/binary")
		})
	}
}
