package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pgstore"
)

// unsafeTables are tables x to which COPY must not write, each with a part of the reason.
var unsafeTables = map[string]struct{ sql, why string }{
	"unlogged":              {`CREATE UNLOGGED TABLE app.x (n int)`, "ALTER TABLE app.x SET LOGGED"},
	"an unlogged partition": {`CREATE TABLE app.x (n int) PARTITION BY LIST (n); CREATE TABLE app.one PARTITION OF app.x FOR VALUES IN (1); CREATE UNLOGGED TABLE app.two PARTITION OF app.x FOR VALUES IN (2)`, "ALTER TABLE app.two SET LOGGED"},
	"foreign":               {`CREATE FOREIGN TABLE app.x (n int) SERVER elsewhere`, "is a foreign table"},
	"a view":                {`CREATE TABLE app.below (n int); CREATE VIEW app.x AS SELECT n FROM app.below`, "without an INSTEAD OF INSERT trigger"},
	"a materialized view":   {`CREATE MATERIALIZED VIEW app.x AS SELECT 1 AS n`, "is no table (relkind m)"},
	"row-level security":    {`CREATE TABLE app.x (n int); ALTER TABLE app.x ENABLE ROW LEVEL SECURITY; ALTER TABLE app.x FORCE ROW LEVEL SECURITY; ALTER TABLE app.x OWNER TO plain`, "row-level security"},
	"a rule":                {`CREATE TABLE app.x (n int); CREATE RULE elsewhere AS ON INSERT TO app.x DO INSTEAD NOTHING`, "its rule ON INSERT"},
}

// TestUnsafeTables: Insert writes to no table whose rows do not survive a crash, that another
// server commits, or where COPY does not do what an INSERT does. The error is an outage.
func TestUnsafeTables(t *testing.T) {
	s, l := begun(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := s.Pool().Exec(context.WithoutCancel(t.Context()), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER elsewhere FOREIGN DATA WRAPPER nothing`)
	exec(`DO $$ BEGIN CREATE ROLE plain; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`)
	for name, c := range unsafeTables {
		t.Run(name, func(t *testing.T) {
			exec(`CREATE SCHEMA app; ` + c.sql + `; GRANT ALL ON SCHEMA app TO plain; GRANT ALL ON app.x TO plain`)
			defer exec(`DROP SCHEMA app CASCADE`)
			err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, `SET LOCAL ROLE plain`); err != nil {
					return err
				}
				err := pgstore.Insert(ctx, tx, "app.x", []string{"n"}, [][]any{{1}})
				if _, reset := tx.Exec(ctx, `RESET ROLE`); reset != nil {
					return reset
				}
				return err
			})
			_, ofHandler := errors.AsType[*driver.HandlerError](err)
			if err == nil || ofHandler || !strings.Contains(err.Error(), c.why) {
				t.Errorf("got %v, want an outage that says %q", err, c.why)
			}
		})
	}
	exec(`CREATE SCHEMA app; CREATE TABLE app.below (n int); CREATE VIEW app.x AS SELECT n FROM app.below;
		CREATE FUNCTION app.pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO app.below VALUES (NEW.n); RETURN NEW; END $$;
		CREATE TRIGGER pass INSTEAD OF INSERT ON app.x FOR EACH ROW EXECUTE FUNCTION app.pass()`)
	if err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
		return pgstore.Insert(ctx, tx, "app.x", []string{"n"}, [][]any{{1}})
	}); err != nil {
		t.Errorf("a view with a trigger: %v", err)
	}
}

// TestCopyFromUnsafeTable: what a handler copies by pgx's own method is its own business, such as a
// table that it stages rows in.
func TestCopyFromUnsafeTable(t *testing.T) {
	s, l := begun(t)
	if _, err := s.Pool().Exec(t.Context(), `CREATE UNLOGGED TABLE staged (n int)`); err != nil {
		t.Fatal(err)
	}
	err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"staged"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}})); err != nil {
			return err
		}
		if err := pgstore.Insert(ctx, tx, "staged", []string{"n"}, [][]any{{2}}); !errors.Is(err, sluice.ErrUnsafeTable) {
			t.Errorf("insert: %v, want ErrUnsafeTable, also after CopyFrom", err)
		}
		return nil
	})
	if _, ofHandler := errors.AsType[*driver.HandlerError](err); err == nil || ofHandler {
		t.Errorf("the handler has dropped the error: got %v, want an outage", err)
	}
}

// TestOwnTables: a store does not open if a table of its own does not survive a crash any more.
func TestOwnTables(t *testing.T) {
	s, _ := begun(t)
	for _, table := range []string{"sluice_leases", "sluice_checkpoints", "sluice_dead_letters"} {
		if _, err := s.Pool().Exec(t.Context(), `ALTER TABLE `+table+` SET UNLOGGED`); err != nil {
			t.Fatal(err)
		}
		_, err := pgstore.New(t.Context(), s.Pool(), nil)
		if !errors.Is(err, driver.ErrUnsafeTable) || !strings.Contains(fmt.Sprint(err), "ALTER TABLE "+table+" SET LOGGED") {
			t.Errorf("%s: %v", table, err)
		}
		if _, err := s.Pool().Exec(t.Context(), `ALTER TABLE `+table+` SET LOGGED`); err != nil {
			t.Fatal(err)
		}
	}
}
