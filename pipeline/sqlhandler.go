package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/tables"
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
	names, checked := columnNames(t.mapping.columns), new(checkedColumns)
	return func(ctx context.Context, tx *sqlstore.Tx, b sluice.Batch) error {
		g, err := checked.current(ctx, t, tx)
		if err != nil {
			return err
		}
		if !t.writesRows() {
			return t.change(b.Events, g, func(r *run) error { return t.writeSQL(ctx, tx, r) })
		}
		rows, err := t.rows(b.Events, g)
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

// checkedColumns are the columns of a table as they were checked last, and what guards them.
type checkedColumns struct {
	mu      sync.Mutex
	columns []tables.Column // nil: not checked
	guards  guards
}

// current returns what guards the columns that the transaction writes to. If they do not fit any
// more, events wait until they do.
func (k *checkedColumns) current(ctx context.Context, t *tableTarget, tx *sqlstore.Tx) (guards, error) {
	now, err := tx.Columns(ctx, t.table)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.columns != nil && slices.Equal(k.columns, now) {
		return k.guards, nil
	}
	if len(now) == 0 {
		return nil, driver.Outage(fmt.Errorf("table %s does not exist", t.table))
	}
	g, err := t.checkTable(ctx, nil, existingColumns(t.dialect, now))
	if err != nil {
		return nil, driver.Outage(errors.New(strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	k.columns, k.guards = now, g
	return g, nil
}

// existingColumns returns columns as a dialect sees them.
func existingColumns(d *dialect, columns []tables.Column) []existingColumn {
	list := make([]existingColumn, len(columns))
	for i, c := range columns {
		list[i] = existingColumn{name: c.Name, kind: c.Kind, required: c.Required, generated: c.Generated, defaulted: c.Defaulted}
		if d.engine == sqlite {
			list[i].kind = affinity(c.Kind)
		}
	}
	return list
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
		rows, err := t.rows(b.Events, t.guards)
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
