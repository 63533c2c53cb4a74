package sqlstore

import (
	"context"
	"database/sql"
	"io"
	"strings"
	"testing"
	"time"
)

func TestMySQLLoadedLines(t *testing.T) {
	rows := [][]any{
		{"tab\tline\nback\\slash\x00end", int64(-1), []byte{0, 255}, 1e-7, true, time.Date(2026, 1, 2, 3, 4, 5, 670_000, time.FixedZone("", 3600))},
		{"", nil, []byte(nil), nil, false, nil},
		{`\N`, uint8(1), []byte{}, 2.5, nil, nil},
	}
	const want = `tab\tline\nback\\slash\0end` + "\t-1\t00ff\t1e-07\t1\t2026-01-02 02:04:05.00067\n" +
		"\t\\N\t\\N\t\\N\t0\t\\N\n" +
		`\\N` + "\t1\t\t2.5\t\\N\t\\N\n"
	got, err := io.ReadAll(&loadReader{rows: rows})
	if string(got) != want || err != nil {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	var parts strings.Builder
	if _, err := io.CopyBuffer(struct{ io.Writer }{&parts}, &loadReader{rows: rows}, make([]byte, 3)); parts.String() != want || err != nil {
		t.Errorf("in pieces: %q, %v; want %q", parts.String(), err, want)
	}
}

func TestMySQLLoadKinds(t *testing.T) {
	for _, c := range []struct {
		want   loadKind
		values []any
	}{
		{loadNull, []any{nil, nil}},
		{loadText, []any{nil, "a", time.Now()}},
		{loadSigned, []any{1, int64(2), true, uint8(3)}},
		{loadUnsigned, []any{uint64(1)}},
		{loadBytes, []any{[]byte(nil), []byte("a")}},
		{loadFloat, []any{1.5, nil}},
		{loadNot, []any{"a", 1}},
		{loadNot, []any{"\xff"}},
		{loadNot, []any{time.Time{}}},
		{loadNot, []any{1 / zero}},
		{loadNot, []any{float32(1)}},
		{loadNot, []any{sql.NullString{}}},
	} {
		var rows [][]any
		for _, v := range c.values {
			rows = append(rows, []any{v})
		}
		if got := loadKindOf(rows, 0); got != c.want {
			t.Errorf("%v: %d, want %d", c.values, got, c.want)
		}
	}
}

var zero = 0.0

// executed counts statements, and executes none.
type executed struct{ texts []string }

func (e *executed) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	e.texts = append(e.texts, query)
	return nil, nil
}

func (*executed) QueryContext(context.Context, string, ...any) (*sql.Rows, error) { return nil, nil }

// TestMySQLParksInOneStatement: dead letters are stored in one round trip, large ones in some.
func TestMySQLParksInOneStatement(t *testing.T) {
	for size, want := range map[int]int{10: 1, chunkBytes / 100: 3, 2 * chunkBytes: 300} {
		row := make([]any, len(strings.Split(deadLetterColumns+heavyColumns, ", "))-1)
		row[len(row)-2] = make([]byte, size)
		rows := make([][]any, 300)
		for i := range rows {
			rows[i] = row
		}
		var server executed
		done, err := mysqlDialect{}.park(t.Context(), &server, rows)
		placeholders := strings.Count(strings.Join(server.texts, ""), "?")
		if !done || err != nil || len(server.texts) != want || placeholders != len(rows)*len(row) {
			t.Errorf("300 of %d bytes: %t, %v, %d statements with %d values; want %d", size, done, err, len(server.texts), placeholders, want)
		}
	}
}
