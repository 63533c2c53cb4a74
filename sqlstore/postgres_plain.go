package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-go/sluice/internal/keyed"
	"github.com/sluice-go/sluice/internal/postgres"
	"github.com/sluice-go/sluice/internal/tables"
)

// What a store over a handle does where it cannot reach pgx: an error aborts a transaction of
// PostgreSQL, so that savepoints are around what may be refused.

const postgresPoint = "sluice_rows"

// pointed runs do, which is undone if it fails.
func pointed(ctx context.Context, q querier, do func() error) error {
	if _, err := q.ExecContext(ctx, "SAVEPOINT "+postgresPoint); err != nil {
		return err
	}
	err := do()
	if err == nil {
		_, err = q.ExecContext(ctx, "RELEASE "+postgresPoint)
		return err
	}
	if ctx.Err() == nil {
		for _, undo := range standardSavepoint(postgresPoint).undo {
			if _, back := q.ExecContext(ctx, undo); back != nil {
				return errors.Join(err, back)
			}
		}
	}
	return err
}

// insertRows writes rows by INSERT statements, and finds the one that is refused. If they are
// counted, all must have been taken.
func (d *postgresDialect) insertRows(ctx context.Context, q querier, table string, columns []string, rows [][]any, counted bool) error {
	text := insertText(d, "INSERT", table, columns)
	write := func(rows [][]any) error {
		result, err := q.ExecContext(ctx, text(len(rows)), slices.Concat(rows...)...)
		if err == nil && counted {
			err = allTaken(result, len(rows))
		}
		return err
	}
	most := min(d.chunk(), d.variables()/len(columns))
	for first := 0; first < len(rows); {
		chunk := firstChunk(rows[first:], most)
		err := pointed(ctx, q, func() error { return write(chunk) })
		if d.fault(err) == faultConstraint {
			for i := range chunk {
				if err := pointed(ctx, q, func() error { return write(chunk[i : i+1]) }); d.fault(err) == faultConstraint {
					return &RowError{Row: first + i, Err: err}
				} else if err != nil {
					break
				}
			}
		}
		if err != nil {
			return err
		}
		first += len(chunk)
	}
	return nil
}

// postgresUnique has the columns of the unique indexes of a table.
const postgresUnique = `
	SELECT c.relname, coalesce(a.attname, '(an expression)'),
		CASE WHEN i.indpred IS NOT NULL THEN 'partial' WHEN k.attnum = 0 THEN 'on an expression' WHEN NOT i.indimmediate THEN 'deferrable'
			WHEN NOT i.indisvalid OR NOT i.indisready THEN 'not valid' ELSE '' END,
		coalesce(NOT a.attnotnull, true)
	FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
		CROSS JOIN pg_catalog.unnest(CAST(i.indkey AS int2[])) WITH ORDINALITY AS k (attnum, n)
		LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum > 0
	WHERE i.indrelid = pg_catalog.to_regclass($1) AND i.indisunique AND k.n <= i.indnkeyatts
	ORDER BY c.relname, k.n`

var postgresStaging = stagingWords{
	keys: "sluice_keys", changes: "sluice_changes", pointed: true,
	drop: func(table string) string { return "DROP TABLE IF EXISTS pg_temp." + table },
	create: func(table, columns, from string) string {
		return "CREATE TEMPORARY TABLE " + table + " ON COMMIT DROP AS SELECT " + columns + " FROM (SELECT 1 AS one) AS x LEFT JOIN " + from + " AS t ON FALSE LIMIT 0"
	},
	remove: func(table, staged, match, where string) string {
		return "DELETE FROM " + table + " AS t USING " + staged + " AS g WHERE " + match + " AND " + where
	},
	update: func(table, staged, match string, columns []string) string {
		return "UPDATE " + table + " AS t SET " + setFrom("", columns) + " FROM " + staged + " AS g WHERE " + match
	},
}

// upsert sends the rows as arrays, or stages them.
func (d *postgresDialect) upsert(ctx context.Context, t *Tx, w *keyed.Write) error {
	if d.plain {
		return newStaged(t, w, postgresStaging).run(ctx)
	}
	_, err := t.tx.ExecContext(ctx, "UPSERT", postgresUpsert{w})
	return err
}

// keyFits: the connection checks it, if it is pgx's.
func (d *postgresDialect) keyFits(ctx context.Context, q querier, w *keyed.Write) error {
	if !d.plain {
		return nil
	}
	return fits(ctx, d, q, w, postgresUnique, quoteTable(d, w.Table))
}

// safe: COPY, with which [Tx.Insert] begins, checks it, if there is one.
func (d *postgresDialect) safe(ctx context.Context, q querier, table string) error {
	if !d.plain {
		return nil
	}
	return postgres.CheckTableOver(ctx, q.QueryContext, quoteTable(d, table))
}

// duplicate: each INSERT of the store's own says ON CONFLICT. A staged one meets rows that another
// transaction has just inserted.
func (d *postgresDialect) duplicate(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return d.plain && ok && e.Code == "23505"
}

// bulk copies rows, or inserts them.
func (d *postgresDialect) bulk(ctx context.Context, q querier, table string, _ []tables.Column, columns []string, rows [][]any) (done bool, err error) {
	switch {
	case len(rows) == 0:
		return false, nil
	case d.plain:
		return true, d.insertRows(ctx, q, table, columns, rows, true)
	}
	_, err = q.ExecContext(ctx, "COPY", postgresCopy{table, columns, rows})
	return true, err
}

// park stores dead letters in one round trip, unless their bodies are large.
func (d *postgresDialect) park(ctx context.Context, tx querier, rows [][]any) (done bool, err error) {
	if d.plain {
		return false, nil
	}
	for len(rows) > 0 {
		chunk := firstChunk(rows, len(rows))
		if _, err := tx.ExecContext(ctx, "batch", postgresBatch{d.sql.Park, chunk}); err != nil {
			return true, fmt.Errorf("dead letters: %w", err)
		}
		rows = rows[len(chunk):]
	}
	return true, nil
}
