package pgstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pgstore"
)

func TestInsert(t *testing.T) {
	s, l := begun(t)
	if _, err := s.Pool().Exec(t.Context(), `
		CREATE SCHEMA app;
		CREATE TABLE app.flights (day date, delay int, origin text);
		CREATE TABLE app.strict (day date NOT NULL, delay int CHECK (delay < 50), origin text);
		CREATE UNIQUE INDEX ON app.strict (delay) WHERE delay = 7;
		INSERT INTO app.strict VALUES ('2001-01-01', 7, 'x');
		CREATE TABLE app.target (id int PRIMARY KEY);
		CREATE TABLE app.pointing (day date, delay int REFERENCES app.target, origin text);
		CREATE FUNCTION app.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN IF NEW.origin = 'bad' THEN RAISE EXCEPTION 'bad'; END IF; RETURN NEW; END $$;
		CREATE TRIGGER refuse BEFORE INSERT ON app.strict FOR EACH ROW EXECUTE FUNCTION app.refuse()`); err != nil {
		t.Fatal(err)
	}
	columns := []string{"day", "delay", "origin"}
	err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
		return pgstore.Insert(ctx, tx, "app.flights", columns, [][]any{{"2001-02-03", 12, "JFK"}, {nil, "-3", "O'HARE\t\\N"}})
	})
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := s.Pool().QueryRow(t.Context(), `SELECT string_agg(concat_ws(',', day, delay, origin), ';' ORDER BY delay) FROM app.flights`).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if want := "-3,O'HARE\t\\N;2001-02-03,12,JFK"; got != want {
		t.Errorf("rows are %q, want %q", got, want)
	}
	good := []any{"2001-02-03", 1, "x"}
	for name, c := range map[string]struct {
		table string
		rows  [][]any
		row   int
	}{
		"a value of another type": {"app.flights", [][]any{good, {"not a date", 1, "x"}, good}, 1},
		"a value missing":         {"app.flights", [][]any{good, good, {"2001-02-03"}}, 2},
		"null":                    {"app.strict", [][]any{good, good, good, {nil, 2, "x"}}, 3},
		"a check":                 {"app.strict", [][]any{good, {"2001-02-03", 99, "x"}, good}, 1},
		"a repeat in the table":   {"app.strict", [][]any{good, {"2001-02-03", 7, "x"}, good}, 1},
		"a trigger":               {"app.strict", [][]any{{"2001-02-03", 1, "bad"}, good}, 0},
		"a repeat among many":     {"app.strict", append(slices.Repeat([][]any{good}, 5000), []any{"2001-02-03", 7, "x"}, good), 5000},
		"a foreign key":           {"app.pointing", [][]any{good, good}, -1}, // found out after the rows
	} {
		err = s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(1), To: positionAt(2)}, func(ctx context.Context, tx pgx.Tx) error {
			return pgstore.Insert(ctx, tx, c.table, columns, c.rows)
		})
		if !blames(err) || !strings.Contains(err.Error(), c.table) {
			t.Errorf("%s: error is %v, want a HandlerError that names the table", name, err)
		}
		row := -1
		if e, found := errors.AsType[*pgstore.RowError](err); found {
			row = e.Row
		}
		if row != c.row {
			t.Errorf("%s: the error blames row %d, want %d: %v", name, row, c.row, err)
		}
	}
	err = s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(1), To: positionAt(2)}, func(ctx context.Context, tx pgx.Tx) error {
		return pgstore.Insert(ctx, tx, "app.none", columns, [][]any{good})
	})
	if failed, _ := errors.AsType[*driver.HandlerError](err); failed == nil || len(failed.Statements) != 1 || !strings.Contains(failed.Statements[0], `"none"`) {
		t.Errorf("no such table: error is %T %v, want one of the statement", err, err)
	}
	if !strings.Contains(err.Error(), "app.none") || !strings.Contains(err.Error(), "a table is missing") {
		t.Errorf("no such table: error is %v", err)
	}
}

func TestInsertFunc(t *testing.T) {
	s, l := begun(t)
	if _, err := s.Pool().Exec(t.Context(), `CREATE TABLE numbers (n int CHECK (n >= 0))`); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken" + strings.Repeat(", and more of it", 1000))
	for name, c := range map[string]struct {
		last func() ([]any, error)
		want func(error) bool
	}{
		"an error": {func() ([]any, error) { return nil, broken }, func(err error) bool { return errors.Is(err, broken) }},
		"a panic": {func() ([]any, error) { panic(broken) }, func(err error) bool {
			p, ok := errors.AsType[*driver.PanicError](err)
			return ok && p.Value == broken && strings.Contains(string(p.Stack), "TestInsertFunc")
		}},
		"a row refused": {func() ([]any, error) { return []any{-1}, nil }, func(err error) bool {
			r, ok := errors.AsType[*pgstore.RowError](err)
			return ok && r.Row == 2999
		}},
	} {
		err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
			return pgstore.InsertFunc(ctx, tx, "numbers", []string{"n"}, 3000, func(i int) ([]any, error) {
				if i == 2999 {
					return c.last()
				}
				return []any{i}, nil
			})
		})
		if !blames(err) || !c.want(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	row := make([]any, 1)
	err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
		return pgstore.InsertFunc(ctx, tx, "numbers", []string{"n"}, 3000, func(i int) ([]any, error) {
			row[0] = i
			return row, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	var count, sum int
	if err := s.Pool().QueryRow(t.Context(), `SELECT count(DISTINCT n), sum(n) FROM numbers`).Scan(&count, &sum); err != nil || count != 3000 || sum != 3000*2999/2 {
		t.Errorf("%d numbers, sum %d: %v", count, sum, err)
	}
}

// A row that a trigger leaves out is an error that says so: its event would be lost without a
// trace. A handler may leave it to the trigger by an INSERT.
func TestInsertLeftOutByTrigger(t *testing.T) {
	s, l := begun(t)
	if _, err := s.Pool().Exec(t.Context(), `
		CREATE TABLE numbers (n int);
		CREATE FUNCTION even() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.n % 2 = 0 THEN RETURN NEW; END IF; RETURN NULL; END';
		CREATE TRIGGER even BEFORE INSERT ON numbers FOR EACH ROW EXECUTE FUNCTION even()`); err != nil {
		t.Fatal(err)
	}
	err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
		return pgstore.Insert(ctx, tx, "numbers", []string{"n"}, [][]any{{2}, {3}, {4}})
	})
	if !blames(err) || !strings.Contains(err.Error(), "2 of 3 rows were written: a trigger or a rule of the table leaves out or moves the others: use INSERT statements") {
		t.Errorf("error is %v, want a HandlerError that names the trigger and says what to do", err)
	}
	err = s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO numbers VALUES (2), (3), (4)`)
		return err
	})
	if err != nil {
		t.Errorf("by an INSERT: %v", err)
	}
	var n int
	if err := s.Pool().QueryRow(t.Context(), `SELECT count(*) FROM numbers`).Scan(&n); err != nil || n != 2 {
		t.Errorf("%d rows, %v; want 2", n, err)
	}
}
