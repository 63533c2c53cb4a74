package pipeline

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sqlstore"
)

// useSQLStore takes a store and its catalog for the parts that depend on the database.
func (parts *Parts) useSQLStore(p *Pipeline, store *sqlstore.Store, c catalog) {
	parts.Leases, parts.DeadLetters, parts.Checkpoints = store.Leases(), store, store
	parts.store, _ = any(store).(driver.AtLeastOnceStore)
	parts.catalog = c
	parts.delivery = func(traces trace.TracerProvider) sluice.Delivery {
		return sluice.Transactional(store, traced(p, traces, decoded(p, routed(p, transactionalTarget.sqlHandler))))
	}
	parts.close = append(parts.close, func(context.Context) error { return store.Close() })
}

// sqlHandler inserts batches into the table, in a database of sqlstore.
func (t *tableTarget) sqlHandler() sluice.Handler[*sqlstore.Tx] {
	names := columnNames(t.mapping.columns)
	return func(ctx context.Context, tx *sqlstore.Tx, b sluice.Batch) error {
		if !t.writesRows() {
			return t.change(b.Events, t.guards, func(r *run) error { return t.writeSQL(ctx, tx, r) })
		}
		rows, err := t.rows(b.Events)
		if err != nil {
			return err
		}
		err = tx.Insert(ctx, t.table, names, rows)
		if refused, ok := errors.AsType[*sqlstore.RowError](err); ok {
			return &driver.EventError{Index: refused.Row, Err: fmt.Errorf("insert into %s: %w", t.table, refused.Err)}
		}
		return err
	}
}

// writeSQL writes a run.
func (t *tableTarget) writeSQL(ctx context.Context, tx *sqlstore.Tx, r *run) (err error) {
	switch {
	case r.clears():
		var left int
		if _, err = tx.ExecContext(ctx, t.deleteAll()); err == nil {
			err = tx.QueryRowContext(ctx, t.anyLeft()).Scan(&left)
		}
		if err == nil && left > 0 {
			return r.refused(0, t.keptRows())
		}
	case t.key != nil:
		err = tx.Upsert(ctx, t.table, r.names(t.mapping), r.rows(t), r.keyed(t.key))
	default:
		err = tx.Insert(ctx, t.table, r.names(t.mapping), r.rows(t))
	}
	if refused, ok := errors.AsType[*sqlstore.RowError](err); ok {
		return r.refused(refused.Row, fmt.Errorf("write to %s: %w", t.table, refused.Err))
	}
	return err
}

// sqlHandler executes the statement for each event of a batch.
func (t *statementTarget) sqlHandler() sluice.Handler[*sqlstore.Tx] {
	return func(ctx context.Context, tx *sqlstore.Tx, b sluice.Batch) error {
		rows, err := t.rows(b.Events)
		if err != nil {
			return err
		}
		stmt, err := tx.PrepareContext(ctx, t.statement.text)
		if err != nil {
			return fmt.Errorf("prepare the statement: %w", err)
		}
		defer stmt.Close()
		for i, row := range rows {
			if _, err := stmt.ExecContext(ctx, row...); err != nil {
				return &driver.EventError{Index: i, Err: err}
			}
		}
		return nil
	}
}

// scanColumns reads the columns of a table: name, kind, required, generated, defaulted.
func scanColumns(rows *sql.Rows) (list []existingColumn, err error) {
	defer rows.Close()
	for rows.Next() {
		var e existingColumn
		if err := rows.Scan(&e.name, &e.kind, &e.required, &e.generated, &e.defaulted); err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, rows.Err()
}
