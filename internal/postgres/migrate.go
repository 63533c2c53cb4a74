package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	//go:embed migrations/1.sql
	migration1 string
	//go:embed migrations/2.sql
	migration2 string
	//go:embed migrations/3.sql
	migration3 string
	//go:embed migrations/4.sql
	migration4 string
	//go:embed migrations/5.sql
	migration5 string
)

// Migration makes one version of the tables out of the one before.
//
// During a rolling upgrade binaries of the old and the new version work on the
// same tables. So a migration only adds: tables, indexes, and columns that may
// be left out of an INSERT. What an old binary would get wrong is left to a
// later version, whose field Oldest says which binaries it excludes.
type Migration struct {
	SQL    string
	Oldest int // version that a binary must know at least to use the tables after this
}

// Migrations are all versions, the first is 1.
var Migrations = []Migration{
	{SQL: migration1, Oldest: 1},
	{SQL: migration2, Oldest: 1},
	{SQL: migration3, Oldest: 1},
	{SQL: migration4, Oldest: 1},
	{SQL: migration5, Oldest: 1},
}

// Stores is the component of [Migrations], by which sluice_schema names their tables.
const Stores = "store"

// migrationLock bounds the wait for a table's lock during a migration, because
// every user of the table waits behind it.
const migrationLock = "10s"

// Migrate brings a component's tables in schema (the role's default if empty) to the
// newest version, and returns the schema's name. Tables of a version still
// newer are left alone, if they can be used. Several may start at the same
// time.
func Migrate(ctx context.Context, conn *pgx.Conn, schema, component string, all []Migration) (string, error) {
	if schema == "" {
		var first *string
		if err := conn.QueryRow(ctx, `SELECT current_schema()`).Scan(&first); err != nil {
			return "", fmt.Errorf("find schema: %w", err)
		}
		if first == nil {
			return "", errors.New("no schema in the role's search_path exists: name one")
		}
		schema = *first
	}
	have, err := readVersion(ctx, conn, schema, component)
	if err == nil && have.version < len(all) {
		err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
			have, err = upgrade(ctx, tx, schema, component, all)
			return err
		})
	}
	var denied *pgconn.PgError
	switch {
	case errors.As(err, &denied) && denied.Code == "42501":
		return "", fmt.Errorf("%s: grant the role CREATE on schema %s, or name a schema of its own: %w", denied.Message, schema, err)
	case err != nil:
		return "", err
	case have.oldest > len(all):
		return "", fmt.Errorf("schema %s is at version %d, which this binary (version %d) is too old for: run one that knows version %d", schema, have.version, len(all), have.oldest)
	}
	return schema, nil
}

// version is a row of sluice_schema; zero if there is none.
type version struct{ version, oldest int }

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// readVersion looks the table up in the catalogue, not by to_regclass, which
// within a transaction may not notice that another one has created it.
func readVersion(ctx context.Context, q querier, schema, component string) (version, error) {
	const lookup = `
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'sluice_schema')`
	var v version
	var there bool
	if err := q.QueryRow(ctx, lookup, schema).Scan(&there); err != nil || !there {
		return v, err
	}
	err := q.QueryRow(ctx, `SELECT version, oldest_compatible FROM `+pgx.Identifier{schema, "sluice_schema"}.Sanitize()+` WHERE component = $1`, component).Scan(&v.version, &v.oldest)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return v, err
}

// upgrade applies what is missing, one process at a time.
func upgrade(ctx context.Context, tx pgx.Tx, schema, component string, all []Migration) (version, error) {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('sluice ' || $1, 0))`, schema); err != nil {
		return version{}, fmt.Errorf("wait for other migrations: %w", err)
	}
	have, err := readVersion(ctx, tx, schema, component)
	if err != nil || have.version >= len(all) {
		return have, err
	}
	if _, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', $1, true), set_config('search_path', $2, true)`,
		migrationLock, pgx.Identifier{schema}.Sanitize()); err != nil {
		return have, err
	}
	if err := create(ctx, tx, schema); err != nil {
		return have, err
	}
	for i, m := range all[have.version:] {
		if _, err := tx.Exec(ctx, m.SQL); err != nil {
			return have, fmt.Errorf("migrate to version %d: %w", have.version+i+1, err)
		}
	}
	have = version{version: len(all), oldest: all[len(all)-1].Oldest}
	_, err = tx.Exec(ctx, `
INSERT INTO sluice_schema (component, version, oldest_compatible, applied_at) VALUES ($1, $2, $3, clock_timestamp())
ON CONFLICT (component) DO UPDATE SET version = excluded.version, oldest_compatible = excluded.oldest_compatible, applied_at = excluded.applied_at`,
		component, have.version, have.oldest)
	return have, err
}

// create makes the schema and the table of versions, where they are missing.
func create(ctx context.Context, tx pgx.Tx, schema string) error {
	var there bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, schema).Scan(&there); err != nil {
		return err
	}
	if !there {
		if _, err := tx.Exec(ctx, `CREATE SCHEMA `+pgx.Identifier{schema}.Sanitize()); err != nil {
			return fmt.Errorf("create schema: %w", err)
		}
	}
	_, err := tx.Exec(ctx, `
CREATE TABLE IF NOT EXISTS sluice_schema (
    component         text        PRIMARY KEY,
    version           integer     NOT NULL,
    oldest_compatible integer     NOT NULL,
    applied_at        timestamptz NOT NULL
)`)
	return err
}
