// Package tables checks that rows of a table are there if, and only if, their transaction was
// committed: after a rollback, and after a crash of the server.
package tables

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/sluice-go/sluice/driver"
)

// Querier is a database, a connection or a transaction.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// CheckMySQL returns a [driver.UnsafeTableError] for a table of MySQL or MariaDB whose engine has
// no transactions by the server's own list, or whose engine is not known. It is nil for a table
// that information_schema does not have, which no statement can write to, or is temporary.
func CheckMySQL(ctx context.Context, q Querier, table string) error {
	schema, name, qualified := strings.Cut(table, ".")
	if !qualified {
		name = table
	}
	var kind, engine, transactions string
	found, err := row(ctx, q, `
		SELECT t.table_type, COALESCE(t.engine, ''), COALESCE(e.transactions, '')
		FROM information_schema.tables t LEFT JOIN information_schema.engines e ON e.engine = t.engine
		WHERE t.table_schema = CASE WHEN ? THEN ? ELSE DATABASE() END AND t.table_name = ?`,
		[]any{qualified, schema, name}, &kind, &engine, &transactions)
	switch {
	case err != nil:
		return fmt.Errorf("find out the engine of table %s: %w", table, err)
	case !found || transactions == "YES":
		return nil
	case kind == "VIEW":
		return unsafe(table, "it is a view, and whether its tables have transactions is not known: name its table")
	}
	return unsafe(table, fmt.Sprintf("its engine %s has no transactions, so a rollback keeps its rows and a repetition doubles them: ALTER TABLE %s ENGINE = InnoDB", engine, table))
}

// CheckSQLServer returns a [driver.UnsafeTableError] for a table of SQL Server whose rows do not
// survive a restart, or are elsewhere. It is nil for an object that is no table of the database.
func CheckSQLServer(ctx context.Context, q Querier, table string) error {
	quoted := make([]string, 0, 2)
	for part := range strings.SplitSeq(table, ".") {
		quoted = append(quoted, "["+strings.ReplaceAll(part, "]", "]]")+"]")
	}
	var durability string
	var external bool
	found, err := row(ctx, q, `
		SELECT COALESCE(durability_desc, ''), COALESCE(is_external, 0) FROM sys.tables WHERE object_id = OBJECT_ID(@p1)`,
		[]any{strings.Join(quoted, ".")}, &durability, &external)
	switch {
	case err != nil:
		return fmt.Errorf("find out the durability of table %s: %w", table, err)
	case found && external:
		return unsafe(table, "it is an external table, whose rows another server commits by itself: write to a table of this database")
	case found && durability == "SCHEMA_ONLY":
		return unsafe(table, "its durability is SCHEMA_ONLY, so a restart of the server empties it while the checkpoint stays: use DURABILITY = SCHEMA_AND_DATA")
	}
	return nil
}

func unsafe(table, why string) error { return &driver.UnsafeTableError{Table: table, Why: why} }

// row returns the only row of a query.
func row(ctx context.Context, q Querier, query string, args []any, dest ...any) (found bool, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	if rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return false, err
		}
		found = true
	}
	return found, rows.Err()
}
