package pgstore_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/internal/proof/blame"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

// refusals are statements that PostgreSQL refuses because of one event's values, with codes that it
// also has for statements that are wrong for every event.
var refusals = []blame.Case{
	{Name: "search term", Statement: `SELECT to_tsquery('simple', $1)`, Good: "a & b", Bad: "a b"},                 // 42601
	{Name: "jsonpath", Statement: `SELECT CAST($1 AS text)::jsonpath`, Good: "$.a", Bad: "$["},                     // 42601
	{Name: "regclass", Statement: `SELECT CAST(CAST($1 AS text) AS regclass)`, Good: "pg_class", Bad: "not_there"}, // 42P01
	{Name: "partition", Setup: `CREATE TABLE parted (d date) PARTITION BY RANGE (d); CREATE TABLE parted_now PARTITION OF parted FOR VALUES FROM ('2020-01-01') TO ('2040-01-01')`,
		Statement: `INSERT INTO parted VALUES (CAST($1 AS date))`, Good: "2026-01-01", Bad: "1970-01-01"}, // 23514
	{Name: "composite", Setup: `CREATE TYPE pair AS (a int, b int)`, Statement: `SELECT CAST(CAST($1 AS text) AS pair)`, Good: "(1,2)", Bad: "(1,2,3)"},
	{Name: "money", Statement: `SELECT CAST(CAST($1 AS text) AS money)`, Good: "12.30", Bad: "12,3x"},
	{Name: "trigger", Setup: `CREATE TABLE tenants (tenant text); CREATE TABLE of_a (n int);
		CREATE FUNCTION to_tenant() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('INSERT INTO of_%s VALUES (1)', NEW.tenant); RETURN NEW; END $$;
		CREATE TRIGGER each AFTER INSERT ON tenants FOR EACH ROW EXECUTE FUNCTION to_tenant()`,
		Statement: `INSERT INTO tenants VALUES ($1)`, Good: "a", Bad: "unknown"}, // 42P01
	{Name: "deferred trigger", Setup: `CREATE TABLE later (tenant text); CREATE TABLE IF NOT EXISTS of_a (n int);
		CREATE FUNCTION to_tenant_later() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('INSERT INTO of_%s VALUES (1)', NEW.tenant); RETURN NEW; END $$;
		CREATE CONSTRAINT TRIGGER each AFTER INSERT ON later DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION to_tenant_later()`,
		Statement: `INSERT INTO later VALUES ($1)`, Good: "a", Bad: "unknown"}, // 42P01, at the commit
	{Name: "name", Statement: `SELECT set_config('role', $1, true)`, Good: "none", Bad: "no such role"},
	{Name: "internal error", Statement: `SELECT lo_get(CAST($1 AS oid)) WHERE $1 <> '0'`, Good: "0", Bad: "4294967295"}, // 42704
	{Name: "recursion", Setup: `CREATE FUNCTION deep(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN IF n = 0 THEN RETURN 0; END IF; RETURN deep(n); END $$`,
		Statement: `SELECT deep(CAST($1 AS int))`, Good: "0", Bad: "1"}, // 54001
}

func TestBlame(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, nil)
	do := func(ctx context.Context, statements string) error {
		_, err := s.Pool().Exec(ctx, statements)
		return err
	}
	store := blame.Store[pgx.Tx]{
		Leases: s.Leases(), Store: s, Do: do,
		Exec: func(ctx context.Context, tx pgx.Tx, statement, value string) error {
			_, err := tx.Exec(ctx, statement, value)
			return err
		},
	}
	blame.OneBadEvent(t, store, refusals)
	blame.Alone(t, store, refusals[0])
	blame.Rejected(t, store, refusals[0])
	if err := do(t.Context(), `CREATE TABLE effects (n int)`); err != nil {
		t.Fatal(err)
	}
	const insert = `INSERT INTO effects (n) VALUES (CAST($1 AS int))`
	blame.Undone(t, store, "drop", insert, `DROP TABLE effects`, `CREATE TABLE effects (n int)`)
	blame.Undone(t, store, "rename", insert, `ALTER TABLE effects RENAME n TO m`, `ALTER TABLE effects RENAME m TO n`)
	blame.Undone(t, store, "type", insert, `ALTER TABLE effects ALTER n TYPE date USING NULL`, `ALTER TABLE effects ALTER n TYPE int USING NULL`)

	// As a user whom rights and policies bind.
	// A handler that uses savepoints, and one that gets over an error of its own.
	inSavepoint := store
	inSavepoint.Exec = func(ctx context.Context, tx pgx.Tx, statement, value string) error {
		_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT 1 FROM not_there_yet`)
			return err
		})
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, statement, value)
			return err
		})
	}
	blame.OneBadEvent(t, inSavepoint, []blame.Case{{Name: "savepoint", Statement: refusals[0].Statement, Good: "a", Bad: "a b"}, {Name: "value in a savepoint", Statement: `SELECT CAST(CAST($1 AS text) AS int)`, Good: "1", Bad: "x"}})

	role := "plain_" + strings.ToLower(rand.Text()) // roles belong to the server, not to the database
	if err := do(t.Context(), `CREATE ROLE `+role+`; GRANT ALL ON effects TO `+role); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = do(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role) })
	store.Exec = func(ctx context.Context, tx pgx.Tx, statement, value string) error {
		if _, err := tx.Exec(ctx, `SET LOCAL ROLE `+role); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, statement, value); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `RESET ROLE`)
		return err
	}
	policy := blame.Case{
		Name: "policy", Setup: `CREATE TABLE guarded (tenant text); GRANT ALL ON guarded TO ` + role + `; ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
			CREATE POLICY own ON guarded USING (true) WITH CHECK (tenant <> 'other')`,
		Statement: `INSERT INTO guarded VALUES ($1)`, Good: "own", Bad: "other", // 42501
	}
	blame.OneBadEvent(t, store, []blame.Case{policy})
	blame.Undone(t, store, "revoke", insert, `REVOKE INSERT ON effects FROM `+role, `GRANT INSERT ON effects TO `+role)
}
