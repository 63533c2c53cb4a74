package postgres

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-go/sluice/internal/migrations"
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
	//go:embed migrations/6.sql
	migration6 string
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
	{SQL: migration6, Oldest: 1},
}

// Stores is the component of [Migrations], by which sluice_schema names their tables.
const Stores = "store"

// schemaTable creates the table of versions.
const schemaTable = `
CREATE TABLE IF NOT EXISTS sluice_schema (
    component         text        PRIMARY KEY,
    version           integer     NOT NULL,
    oldest_compatible integer     NOT NULL,
    applied_at        timestamptz NOT NULL
)`

// statements returns what makes version number of a component's tables, and records it.
func (m Migration) statements(component string, number int) []string {
	return []string{schemaTable, m.SQL, fmt.Sprintf(`
INSERT INTO sluice_schema (component, version, oldest_compatible, applied_at) VALUES ('%s', %d, %d, clock_timestamp())
ON CONFLICT (component) DO UPDATE SET version = excluded.version, oldest_compatible = excluded.oldest_compatible, applied_at = excluded.applied_at`,
		component, number, m.Oldest)}
}

// MigrationFiles returns [Migrations] as files. They make the tables in the first schema of the
// search_path, and do not create that schema.
func MigrationFiles() fs.FS {
	all := make([]migrations.Migration, len(Migrations))
	for i, m := range Migrations {
		all[i] = migrations.Migration{Component: Stores, Statements: m.statements(Stores, i+1)}
	}
	files := fstest.MapFS{}
	migrations.Write(files, ".", all)
	return files
}

// migrationLock bounds the wait for a table's lock during a migration, because
// every user of the table waits behind it.
const migrationLock = "10s"

// Statements runs statements over pgx, or over database/sql.
type Statements interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Session is a connection. Its errors are pgx's, or contain those.
type Session interface {
	Statements
	// InTransaction runs fn in a transaction that is READ COMMITTED and may write.
	InTransaction(ctx context.Context, fn func(tx Statements) error) error
}

// pgxSession is a connection of pgx.
type pgxSession struct{ *pgx.Conn }

// InTransaction implements [Session].
func (s pgxSession) InTransaction(ctx context.Context, fn func(tx Statements) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	return pgx.BeginTxFunc(ctx, s.Conn, options, func(tx pgx.Tx) error { return fn(tx) })
}

// Migrate brings a component's tables in schema (the role's default if empty) to the
// newest version, and returns the schema's name. Tables of a version still
// newer are left alone, if they can be used. Several may start at the same
// time.
func Migrate(ctx context.Context, conn *pgx.Conn, schema, component string, all []Migration) (string, error) {
	return migrate(ctx, pgxSession{conn}, schema, component, all)
}

func migrate(ctx context.Context, conn Session, schema, component string, all []Migration) (string, error) {
	schema, have, err := find(ctx, conn, schema, component)
	if err != nil {
		return "", err
	}
	if have.version < len(all) {
		err = conn.InTransaction(ctx, func(tx Statements) error {
			have, err = upgrade(ctx, tx, schema, component, all)
			return err
		})
	}
	if denied, ok := errors.AsType[*pgconn.PgError](err); ok && denied.Code == insufficientPrivilege {
		return "", fmt.Errorf("%s: grant the role CREATE on schema %s, or name a schema of its own: %w", denied.Message, schema, err)
	}
	if err != nil {
		return "", err
	}
	return schema, have.usable(schema, all)
}

// require returns the name of a schema (the role's default if empty), and an error unless the
// stores' tables in it are at a version that this binary can work with.
func require(ctx context.Context, conn Statements, schema string) (string, error) {
	schema, have, err := find(ctx, conn, schema, Stores)
	if err == nil {
		err = have.usable(schema, Migrations)
	}
	if err == nil && have.version < len(Migrations) {
		err = fmt.Errorf("schema %s is at version %d, and this binary needs %d: apply the migrations from %04d on (`sluice migrate`, or the files of pgstore.Migrations), or leave NoMigrate out",
			schema, have.version, len(Migrations), have.version+1)
	}
	return schema, err
}

// insufficientPrivilege is the SQLSTATE of a request for which the role lacks a right.
const insufficientPrivilege = "42501"

// CheckTables reports what would prevent [Prepare] in the role's default schema, and changes
// nothing.
func CheckTables(ctx context.Context, conn *pgx.Conn) error {
	if err := takesWrites(ctx, conn); err != nil {
		return fmt.Errorf("check %s: %w", place(&conn.Config().Config), err)
	}
	schema, have, err := find(ctx, conn, "", Stores)
	if err == nil {
		err = have.usable(schema, Migrations)
	}
	if err == nil && have.version < len(Migrations) {
		err = mayMigrate(ctx, conn, schema)
	}
	if err != nil {
		return fmt.Errorf("check Sluice's tables in %s: %w", place(&conn.Config().Config), err)
	}
	return nil
}

// takesWrites returns the error that a write would have, if the server is a standby.
func takesWrites(ctx context.Context, conn *pgx.Conn) error {
	var standby bool
	if err := conn.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&standby); err != nil {
		return fmt.Errorf("look for a standby: %w", err)
	}
	if standby {
		return errors.New("25006 the server accepts no writes: it is a standby: connect to the primary, or name both hosts with target_session_attrs=read-write")
	}
	return nil
}

// mayMigrate refuses a role that cannot create the tables, or alter those that exist.
func mayMigrate(ctx context.Context, conn *pgx.Conn, schema string) error {
	const rights = `
SELECT has_schema_privilege($1, 'CREATE') AND NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = 'sluice_schema' AND NOT pg_has_role(c.relowner, 'USAGE'))`
	var may bool
	if err := conn.QueryRow(ctx, rights, schema).Scan(&may); err != nil {
		return fmt.Errorf("look up rights: %w", err)
	}
	if !may {
		return fmt.Errorf("the role may not create or migrate them: grant the role CREATE on schema %s, or run `sluice migrate` with the URL of their owner", schema)
	}
	return nil
}

// find returns the name of the schema (the role's default if empty), and the version of the tables
// there.
func find(ctx context.Context, conn Statements, schema, component string) (string, version, error) {
	if schema == "" {
		var first *string
		if err := conn.QueryRow(ctx, `SELECT current_schema()`).Scan(&first); err != nil {
			return "", version{}, fmt.Errorf("find schema: %w", err)
		}
		if first == nil {
			return "", version{}, errors.New("no schema in the role's search_path exists: name one")
		}
		schema = *first
	}
	have, err := readVersion(ctx, conn, schema, component)
	if denied, ok := errors.AsType[*pgconn.PgError](err); ok && denied.Code == insufficientPrivilege {
		err = fmt.Errorf("%s: the tables in schema %s are another role's: grant this one the rights in docs/security.md, or name a schema of its own: %w",
			denied.Message, schema, err)
	}
	return schema, have, err
}

// version is a row of sluice_schema; zero if there is none.
type version struct{ version, oldest int }

// usable refuses tables that are too new for all, the migrations that this binary knows.
func (v version) usable(schema string, all []Migration) error {
	if v.oldest > len(all) {
		return fmt.Errorf("schema %s is at version %d, which this binary (version %d) is too old for: run one that knows version %d", schema, v.version, len(all), v.oldest)
	}
	return nil
}

// readVersion looks the table up in the catalogue, not by to_regclass, which
// within a transaction may not notice that another one has created it.
func readVersion(ctx context.Context, q Statements, schema, component string) (version, error) {
	const lookup = `
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'sluice_schema')`
	var v version
	var there bool
	if err := q.QueryRow(ctx, lookup, schema).Scan(&there); err != nil || !there {
		return v, err
	}
	err := q.QueryRow(ctx, `SELECT version, oldest_compatible FROM `+pgx.Identifier{schema, "sluice_schema"}.Sanitize()+` WHERE component = $1`, component).Scan(&v.version, &v.oldest)
	if errors.Is(err, sql.ErrNoRows) { // also pgx's
		err = nil
	}
	return v, err
}

// upgrade applies what is missing, one process at a time.
func upgrade(ctx context.Context, tx Statements, schema, component string, all []Migration) (version, error) {
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
		for _, statement := range m.statements(component, have.version+i+1) {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return have, fmt.Errorf("migrate to version %d: %w", have.version+i+1, err)
			}
		}
	}
	return version{version: len(all), oldest: all[len(all)-1].Oldest}, nil
}

// create makes the schema, if it is missing.
func create(ctx context.Context, tx Statements, schema string) error {
	var there bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, schema).Scan(&there); err != nil || there {
		return err
	}
	if _, err := tx.Exec(ctx, `CREATE SCHEMA `+pgx.Identifier{schema}.Sanitize()); err != nil {
		return fmt.Errorf("create schema: %w", err)
	}
	return nil
}
