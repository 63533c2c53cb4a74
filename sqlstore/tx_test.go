package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// A Tx is what sqlc's generated code asks for.
var _ interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
} = (*Tx)(nil)

// insert runs one step whose handler inserts rows.
func insert(t testing.TB, s *Store, l driver.Lease, table string, columns []string, rows [][]any) error {
	t.Helper()
	return s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
		return tx.Insert(ctx, table, columns, rows)
	})
}

func TestInsert(t *testing.T) {
	s, l := begun(t, nil)
	if _, err := s.DB().Exec(`CREATE TABLE "a ""quoted"" table" ("order by" INTEGER, "?" TEXT, n)`); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, n := range []int{0, 1, chunkRows - 1, chunkRows, chunkRows + 1, 3*chunkRows + 5} {
		rows := make([][]any, n)
		for i := range rows {
			rows[i] = []any{total, fmt.Sprint("row ", total), nil}
			total++
		}
		table := `a "quoted" table`
		if n%2 == 0 {
			table = "main." + table
		}
		if err := insert(t, s, l, table, []string{"order by", "?", "n"}, rows); err != nil {
			t.Fatalf("%d rows: %v", n, err)
		}
	}
	var got, distinct int
	query := `SELECT count(*), count(DISTINCT "order by") FROM "a ""quoted"" table" WHERE "?" = 'row ' || "order by" AND n IS NULL`
	if err := s.DB().QueryRow(query).Scan(&got, &distinct); err != nil || got != total || distinct != total {
		t.Errorf("%d rows, %d of them distinct, %v; want %d", got, distinct, err, total)
	}

	wide := make([]string, 2000)
	row := make([]any, len(wide))
	for i := range wide {
		wide[i] = fmt.Sprint("c", i)
		row[i] = i
	}
	if _, err := s.DB().Exec("CREATE TABLE wide (" + strings.Join(wide, ", ") + ")"); err != nil {
		t.Fatal(err)
	}
	if err := insert(t, s, l, "wide", wide, [][]any{row, row, row, row, row, row, row, row, row, row, row, row, row, row, row, row, row}); err != nil {
		t.Errorf("rows of %d columns: %v", len(wide), err)
	}
}

// The row that the database refuses is named, wherever in the batch it is.
func TestInsertNamesRow(t *testing.T) {
	s, l := begun(t, nil)
	for _, n := range []int{1, 10, 3*chunkRows + 5} {
		for _, bad := range []int{0, n / 2, n - 1} {
			rows := make([][]any, n)
			for i := range rows {
				rows[i] = []any{i % 10}
			}
			rows[bad] = []any{10}
			err := insert(t, s, l, "children", []string{"small"}, rows)
			mustBlame(t, "commit", err)
			if row, ok := errors.AsType[*RowError](err); !ok || row.Row != bad {
				t.Errorf("row %d of %d is bad: %v", bad, n, err)
			}
		}
	}
	var left int
	if err := s.DB().QueryRow("SELECT count(*) FROM children").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows of inserts that failed, %v", left, err)
	}
}

func TestInsertErrors(t *testing.T) {
	s, l := begun(t, nil)
	for what, c := range map[string]struct {
		table   string
		columns []string
		rows    [][]any
		words   []string
		open    bool
	}{
		"no such table":  {"nowhere", []string{"key"}, [][]any{{1}}, []string{"insert into nowhere", "no such table"}, true},
		"no such column": {"effects", []string{"kex"}, [][]any{{1}}, []string{"insert into effects", "kex"}, true},
		"no columns":     {"effects", nil, [][]any{{}}, []string{"insert into effects", "0 columns"}, false},
		"short row":      {"effects", []string{"key", "part"}, [][]any{{"a", 1}, {"b"}}, []string{"row 1", "1 values for 2 columns"}, false},
		"no value":       {"effects", []string{"key"}, [][]any{{struct{}{}}}, []string{"insert into effects", "unsupported type"}, false},
		"many columns":   {"effects", make([]string, 40_000), nil, []string{"40000 columns"}, false},
	} {
		err := insert(t, s, l, c.table, c.columns, c.rows)
		if c.open {
			mustNameStatement(t, what, err)
		} else {
			mustBlame(t, what, err)
		}
		saysAll(t, what, err, c.words...)
		if _, ok := errors.AsType[*RowError](err); ok {
			t.Errorf("%s: %v blames a row", what, err)
		}
	}
	// A handler that goes on after a failed insert does not get half of it.
	err := s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx *Tx) error {
		rows := rowsOf("half", 2*chunkRows, 1)
		rows[len(rows)-1][0] = nil
		tx.Insert(ctx, "effects", []string{"key", "part"}, rows)
		return nil
	})
	mustBlame(t, "failed insert that is ignored", err)
	untouched(t, "failed insert that is ignored", s, l)
}

// What a handler writes as a time is a time to SQLite as well.
func TestTimes(t *testing.T) {
	s, l := begun(t, nil)
	noon := time.Date(2026, 7, 1, 14, 0, 0, 123_000_000, time.FixedZone("CEST", 2*3600))
	if err := insert(t, s, l, "effects", []string{"key"}, [][]any{{noon}}); err != nil {
		t.Fatal(err)
	}
	var text string
	if err := s.DB().QueryRow("SELECT strftime('%Y-%m-%d %H:%M:%f', key) FROM effects").Scan(&text); err != nil || text != "2026-07-01 12:00:00.123" {
		t.Errorf("got %q, %v", text, err)
	}
}
