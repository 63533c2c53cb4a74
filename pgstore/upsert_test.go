package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/keyedtest"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/pgstore"
)

func TestUpsert(t *testing.T) {
	keyedtest.Run(t, func(t testing.TB) keyedtest.Harness {
		url := pgtest.Database(t)
		db := keyedtest.SetUpPostgres(t, url)
		s := open(t, url, nil)
		for partition := range 2 {
			_, err := s.Claim(t.Context(), partitionLease(partition), "1")
			suite.NoError(t, "claim", err)
		}
		return keyedtest.Harness{
			DB: db,
			Step: func(ctx context.Context, partition int, handle func(ctx context.Context, upsert keyedtest.Upsert) error) error {
				step := driver.Step{Lease: partitionLease(partition), From: driver.Unset, To: driver.Unset}
				return s.Commit(ctx, step, func(ctx context.Context, tx pgx.Tx) error {
					return handle(ctx, func(table string, columns []string, rows [][]any, k driver.Keyed) error {
						return pgstore.Upsert(ctx, tx, table, columns, rows, k)
					})
				})
			},
			Row: func(err error) int {
				if refused, ok := errors.AsType[*pgstore.RowError](err); ok {
					return refused.Row
				}
				return -1
			},
			Outage: func(err error) bool { return err != nil && !blames(err) },
			Words:  keyedtest.Postgres,
		}
	})
}

func partitionLease(partition int) driver.Lease {
	return driver.Lease{Group: group, Partition: fmt.Sprint(partition), Owner: "a", Epoch: 1}
}

// upserted runs a step of one Upsert.
func upserted(t *testing.T, s *pgstore.Store, l driver.Lease, table string, columns []string, rows [][]any, k driver.Keyed) error {
	t.Helper()
	return s.Commit(t.Context(), driver.Step{Lease: l, From: driver.Unset, To: driver.Unset}, func(ctx context.Context, tx pgx.Tx) error {
		return pgstore.Upsert(ctx, tx, table, columns, rows, k)
	})
}

// TestUpsertTypes: the key is what the column makes of a value, and other columns take what an
// INSERT takes.
func TestUpsertTypes(t *testing.T) {
	s, l := begun(t)
	_, err := s.Pool().Exec(t.Context(), `
		CREATE SCHEMA app;
		CREATE TYPE app.mood AS ENUM ('sad', 'ok');
		CREATE DOMAIN app.code AS varchar(3) CHECK (VALUE <> 'bad');
		CREATE TABLE app.typed (a numeric(4,1), b varchar(3), c char(3), d timestamp(0), e app.mood, f uuid, PRIMARY KEY (a, b, c, d, e, f),
			number bigint GENERATED ALWAYS AS IDENTITY, code app.code, list int[], doc jsonb, bits bit(2), word varchar(2), codes char(3)[], masks bit(2)[]);
		CREATE TABLE app.lists (a numeric(3,1)[] PRIMARY KEY, v text);
		CREATE TABLE app.parts (id int, region text, v int, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
		CREATE TABLE app.parts_a PARTITION OF app.parts FOR VALUES IN ('a');
		CREATE TABLE app.parts_b PARTITION OF app.parts FOR VALUES IN ('b')`)
	suite.NoError(t, "set up", err)
	key := []string{"a", "b", "c", "d", "e", "f"}
	columns := append(key, "code", "list", "doc", "bits", "word", "codes", "masks")
	first := []any{"1.04", "x     ", "yy", "2026-07-01 01:02:03.4", "ok", "0196f1aa-0000-7000-8000-000000000001", "abc", []int{1, 2}, map[string]any{"a": "\\"}, "10", "z ", "{abc}", "{10}"}
	again := []any{"1.0", "x  ", "yy ", "2026-07-01 01:02:03", "ok", "0196F1AA-0000-7000-8000-000000000001", nil, nil, nil, nil, nil, nil, nil}
	for what, rows := range map[string][][]any{"at once": {again, first}, "later": {first}} {
		suite.NoError(t, what, upserted(t, s, l, "app.typed", columns, rows, driver.Keyed{Key: key}))
		var n int
		var row string
		err := s.Pool().QueryRow(t.Context(), `SELECT count(*), max(concat_ws('|', a, b, c, d, e, code, list, doc, bits, word, codes, masks)) FROM app.typed`).Scan(&n, &row)
		suite.NoError(t, "read", err)
		if want := `1.0|x  |yy |2026-07-01 01:02:03|ok|abc|{1,2}|{"a": "\\"}|10|z |{abc}|{10}`; n != 1 || row != want {
			t.Errorf("%s: %d rows, %s; want one, %s", what, n, row, want)
		}
	}
	for i, value := range map[int]any{1: "abcd", 4: "mad", 6: "bad", 9: "1", 10: "abc", 11: "{abcd}", 12: "{101}"} {
		bad := slices.Clone(first)
		bad[i] = value
		err := upserted(t, s, l, "app.typed", columns, [][]any{first, bad}, driver.Keyed{Key: key})
		if refused, ok := errors.AsType[*pgstore.RowError](err); !ok || refused.Row != 1 {
			t.Errorf("%s %v: error %v, want one of row 1", columns[i], value, err)
		}
	}
	suite.NoError(t, "an identity", upserted(t, s, l, "app.typed", append(columns, "number"), [][]any{append(slices.Clone(first), 77)}, driver.Keyed{Key: key}))
	for _, value := range []string{"{1.04}", "{1.0}"} {
		suite.NoError(t, "an array as key", upserted(t, s, l, "app.lists", []string{"a", "v"}, [][]any{{value, value}}, driver.Keyed{Key: []string{"a"}}))
	}
	k := driver.Keyed{Key: []string{"id", "region"}, Delete: func(row int) bool { return row == 2 }}
	suite.NoError(t, "partitions", upserted(t, s, l, "app.parts", []string{"id", "region", "v"}, [][]any{{1, "a", 1}, {1, "b", 1}, {1, "a", 0}}, k))
	var rows string
	suite.NoError(t, "read", s.Pool().QueryRow(t.Context(), `SELECT string_agg(region || v, ',') FROM app.parts`).Scan(&rows))
	if rows != "b1" {
		t.Errorf("partitions have %s, want b1", rows)
	}
}

// TestUpsertChangedTable: a write notices that the table has changed since the one before it.
func TestUpsertChangedTable(t *testing.T) {
	s, l := begun(t)
	do := func(what string, statements ...string) {
		t.Helper()
		for _, text := range statements {
			_, err := s.Pool().Exec(t.Context(), text)
			suite.NoError(t, what+": "+text, err)
		}
	}
	write := func(value any) error {
		return upserted(t, s, l, "changing", []string{"id", "v"}, [][]any{{1, value}, {2, value}}, driver.Keyed{Key: []string{"id"}})
	}
	do("table", `CREATE TABLE changing (id int PRIMARY KEY, v int)`)
	suite.NoError(t, "an integer", write(1))
	do("other type", `ALTER TABLE changing ALTER v TYPE text USING v::text`)
	outage(t, write("x"))
	suite.NoError(t, "a text", write("x"))
	do("no key", `ALTER TABLE changing DROP CONSTRAINT changing_pkey`)
	if err := write("y"); err == nil {
		t.Error("no error without the key")
	}
	do("deferrable", `ALTER TABLE changing ADD PRIMARY KEY (id) DEFERRABLE`, `ALTER TABLE changing ALTER v TYPE varchar(9)`)
	for range 2 {
		err := write("y")
		if err == nil {
			t.Error("no error with a deferrable key")
		}
		outage(t, err)
	}
	do("secured", `ALTER TABLE changing DROP CONSTRAINT changing_pkey`, `ALTER TABLE changing ADD PRIMARY KEY (id)`, `ALTER TABLE changing ALTER v TYPE varchar(8)`)
	outage(t, write("z"))
	suite.NoError(t, "with a key again", write("z"))
}

// TestUpsertInSavepoint: a write that fails inside a savepoint of the handler leaves the rest
// alone.
func TestUpsertInSavepoint(t *testing.T) {
	s, l := begun(t)
	_, err := s.Pool().Exec(t.Context(), `CREATE TABLE small (id int PRIMARY KEY, v int CHECK (v < 10))`)
	suite.NoError(t, "set up", err)
	write := func(ctx context.Context, tx pgx.Tx, values ...int) error {
		rows := make([][]any, len(values))
		for i, v := range values {
			rows[i] = []any{v, v}
		}
		return pgstore.Upsert(ctx, tx, "small", []string{"id", "v"}, rows, driver.Keyed{Key: []string{"id"}})
	}
	step := driver.Step{Lease: l, From: driver.Unset, To: driver.Unset}
	suite.NoError(t, "step", s.Commit(t.Context(), step, func(ctx context.Context, tx pgx.Tx) error {
		suite.NoError(t, "outside", write(ctx, tx, 1, 2))
		inner, err := tx.Begin(ctx)
		suite.NoError(t, "begin", err)
		if err := write(ctx, inner, 3, 4, 10, 5); err == nil {
			t.Error("no error of a value that is too large")
		}
		suite.NoError(t, "roll back", inner.Rollback(ctx))
		return write(ctx, tx, 6)
	}))
	var rows string
	suite.NoError(t, "read", s.Pool().QueryRow(t.Context(), `SELECT string_agg(id::text, ',' ORDER BY id) FROM small`).Scan(&rows))
	if rows != "1,2,6" {
		t.Errorf("rows are %s, want 1,2,6", rows)
	}
	if err := s.Commit(t.Context(), step, func(ctx context.Context, tx pgx.Tx) error {
		if err := write(ctx, tx, 7, 8, 10); err == nil {
			t.Error("no error of a value that is too large")
		}
		return nil
	}); !blames(err) {
		t.Errorf("an error that the handler drops: %v", err)
	}
}

// TestUpsertNamesRow: the row that cannot be sent is named, however the rows are written.
func TestUpsertNamesRow(t *testing.T) {
	s, l := begun(t)
	_, err := s.Pool().Exec(t.Context(), `CREATE TABLE texts (id int PRIMARY KEY, word text)`)
	suite.NoError(t, "set up", err)
	for _, n := range []int{1, 20, 300} {
		rows := make([][]any, n)
		for i := range rows {
			rows[i] = []any{n - i, "x"}
		}
		bad := n / 3
		rows[bad][1] = "a\x00b"
		for range 2 { // new rows, and some that exist
			err := upserted(t, s, l, "texts", []string{"id", "word"}, rows, driver.Keyed{Key: []string{"id"}})
			if refused, ok := errors.AsType[*pgstore.RowError](err); !ok || refused.Row != bad || !blames(err) {
				t.Errorf("%d rows: error %v, want one of row %d", n, err, bad)
			}
			_, err = s.Pool().Exec(t.Context(), `INSERT INTO texts SELECT n, 'y' FROM generate_series(1, $1) AS n ON CONFLICT DO NOTHING`, n)
			suite.NoError(t, "rows", err)
		}
		var changed int
		suite.NoError(t, "read", s.Pool().QueryRow(t.Context(), `SELECT count(*) FROM texts WHERE word = 'x'`).Scan(&changed))
		if changed > 0 {
			t.Errorf("%d rows: %d were written", n, changed)
		}
		_, err := s.Pool().Exec(t.Context(), `DELETE FROM texts`)
		suite.NoError(t, "empty", err)
	}
}

// TestUpsertMovedRows: a row that a trigger has put under another key, or has deleted again, is
// noticed, also if the trigger is made between two writes.
func TestUpsertMovedRows(t *testing.T) {
	s, l := begun(t)
	const setUp = `
		CREATE OR REPLACE FUNCTION moves() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.v = 7 THEN NEW.id := -NEW.id; END IF; RETURN NEW; END $$;
		CREATE OR REPLACE FUNCTION deletes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM moved WHERE v = 7; RETURN NULL; END $$;
		DROP TABLE IF EXISTS moved;
		CREATE TABLE moved (id int PRIMARY KEY, v int)`
	for _, trigger := range []string{"BEFORE INSERT ON moved FOR EACH ROW EXECUTE FUNCTION moves()", "AFTER INSERT OR UPDATE ON moved FOR EACH STATEMENT EXECUTE FUNCTION deletes()"} {
		for _, n := range []int{4, 150} {
			for _, k := range []driver.Keyed{{Key: []string{"id"}}, {Key: []string{"id"}, OnConflict: driver.Skip}, {Key: []string{"id"}, OnConflict: driver.Newer, Version: "v"}} {
				_, err := s.Pool().Exec(t.Context(), setUp)
				suite.NoError(t, "set up", err)
				write := func(from int) error {
					rows := make([][]any, n)
					for i := range rows {
						rows[i] = []any{from + i, 1}
					}
					rows[2][1] = 7
					return upserted(t, s, l, "moved", []string{"id", "v"}, rows, k)
				}
				suite.NoError(t, "without a trigger", write(1))
				_, err = s.Pool().Exec(t.Context(), "CREATE TRIGGER own "+trigger)
				suite.NoError(t, "trigger", err)
				err = write(1001)
				if refused, ok := errors.AsType[*pgstore.RowError](err); !ok || refused.Row != 2 {
					t.Errorf("%v of %d rows, %s: error %v, want one of row 2", k.OnConflict, n, trigger, err)
				}
			}
		}
	}
}
