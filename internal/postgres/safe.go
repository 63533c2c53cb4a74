package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
)

// unsafeSQL finds what is wrong with a table, or with a partition of it: the first row has the kind
// of the table or partition. Row security and rules are those of the named table alone, which COPY
// names. Of the triggers of a view only those that stand for the INSERT matter. It locks nothing
// but catalogs: pg_partition_tree would lock each partition.
const unsafeSQL = `
WITH RECURSIVE tree AS (
	SELECT pg_catalog.to_regclass($1)::oid AS oid
	UNION
	SELECT inhrelid FROM tree JOIN pg_catalog.pg_class p ON p.oid = tree.oid AND p.relkind = 'p' JOIN pg_catalog.pg_inherits ON inhparent = p.oid)
SELECT c.oid::pg_catalog.regclass::text, c.relkind::text, c.relpersistence::text,
	c.oid = named AND pg_catalog.row_security_active(c.oid),
	c.oid = named AND EXISTS (SELECT FROM pg_catalog.pg_rewrite WHERE ev_class = c.oid AND ev_type = '3'),
	EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = c.oid AND tgtype & 68 = 68)
FROM tree JOIN pg_catalog.pg_class c USING (oid), pg_catalog.to_regclass($1) AS named
ORDER BY c.oid`

// CheckTable returns a [driver.UnsafeTableError] for a table, whose name is quoted, that COPY must
// not write to: its rows would not survive a crash, another server would commit them, or COPY would
// pass over rules that an INSERT follows. It is nil for a table that is not there.
func CheckTable(ctx context.Context, q Querier, table string) error {
	rows, err := q.Query(ctx, unsafeSQL, pgx.QueryExecModeExec, table)
	if err != nil {
		return err
	}
	defer rows.Close()
	return safeRows(rows, table)
}

// CheckTableOver is [CheckTable] over database/sql.
func CheckTableOver(ctx context.Context, query func(context.Context, string, ...any) (*sql.Rows, error), table string) error {
	rows, err := query(ctx, unsafeSQL, table)
	if err != nil {
		return err
	}
	defer rows.Close()
	return safeRows(rows, table)
}

// safeRows reads the result of unsafeSQL.
func safeRows(rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
}, table string) error {
	for rows.Next() {
		var name, kind, persistence string
		var secured, ruled, instead bool
		if err := rows.Scan(&name, &kind, &persistence, &secured, &ruled, &instead); err != nil {
			return err
		}
		if why := unsafe(name, kind, persistence, secured, ruled, instead); why != "" {
			return &driver.UnsafeTableError{Table: name, Why: why}
		}
	}
	return rows.Err()
}

// checkOwn returns an error if a table of Sluice's own, in a schema, does not survive a crash.
func checkOwn(ctx context.Context, conn Statements, at, schema string) error {
	var table, kind, persistence string
	err := conn.QueryRow(ctx, `
		SELECT c.oid::pg_catalog.regclass::text, c.relkind::text, c.relpersistence::text
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname IN ('sluice_checkpoints', 'sluice_seen', 'sluice_dead_letters', 'sluice_leases') AND (c.relkind = 'f' OR c.relkind IN ('r', 'p') AND c.relpersistence <> 'p')
		LIMIT 1`, schema).Scan(&table, &kind, &persistence)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("check Sluice's tables in %s: %w", at, err)
	}
	return fmt.Errorf("%s: %w", at, &driver.UnsafeTableError{Table: table, Why: unsafe(table, kind, persistence, false, false, false)})
}

// unsafe returns why a table is not safe, or an empty text.
func unsafe(name, kind, persistence string, secured, ruled, instead bool) string {
	const statement = "write to the table below it, or by a statement of your own"
	switch {
	case kind == "f":
		return "it is a foreign table, whose rows another server commits by itself: write to a table of this database"
	case persistence == "u":
		return fmt.Sprintf("it is UNLOGGED, so a crash of the server empties it while the checkpoint stays: ALTER TABLE %s SET LOGGED", name)
	case kind == "v" && !instead:
		return "it is a view without an INSTEAD OF INSERT trigger: " + statement
	case kind == "v", kind == "r" && !secured && !ruled, kind == "p" && !secured && !ruled:
		return ""
	case secured:
		return "COPY is refused where row-level security applies: let a role with BYPASSRLS, or the table's owner, write, or write by a statement of your own"
	case ruled:
		return "COPY passes over its rule ON INSERT: replace the rule by a trigger, or write by a statement of your own"
	}
	return fmt.Sprintf("it is no table (relkind %s)", kind)
}
