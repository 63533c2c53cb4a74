package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/keyed"
	internalpostgres "github.com/sluice-go/sluice/internal/postgres"
)

// postgresHandler inserts batches into the table.
func (t *tableTarget) postgresHandler() sluice.Handler[pgx.Tx] {
	names, known := columnNames(t.mapping.columns), new(knownTable)
	return func(ctx context.Context, tx pgx.Tx, b sluice.Batch) error {
		if t.writesRows() {
			return known.copyRows(ctx, tx, t, names, b.Events)
		}
		was, g, err := known.current(ctx, t, tx)
		if err != nil {
			return err
		}
		return t.change(b.Events, g, func(r *run) error {
			err := t.writePostgres(ctx, tx, r, was)
			if _, changed := errors.AsType[*internalpostgres.ColumnsError](err); changed {
				known.forget()
			}
			return err
		})
	}
}

// writePostgres writes a run whose rows were made for columns as they were.
func (t *tableTarget) writePostgres(ctx context.Context, tx pgx.Tx, r *run, was internalpostgres.Columns) error {
	same := func(now internalpostgres.Columns) error {
		if changes := was.Changes(now); len(changes) > 0 {
			return internalpostgres.Changed(changes)
		}
		return nil
	}
	name := strings.Split(t.table, ".")
	var err error
	switch {
	case r.clears():
		var left int
		if _, err = tx.Exec(ctx, t.deleteAll()); err == nil {
			err = tx.QueryRow(ctx, t.anyLeft()).Scan(&left)
		}
		if err == nil && left > 0 {
			return r.refused(0, t.keptRows())
		}
	case t.key != nil:
		var w *keyed.Write
		if w, err = keyed.New(t.table, r.names(t.mapping), r.rows(t), r.keyed(t.key)); err == nil {
			err = (&internalpostgres.Upsert{Table: name, Write: w, Check: same}).RunTx(ctx, tx)
		}
	default:
		rows := r.rows(t)
		var taken int64
		taken, err = (&internalpostgres.Copy{
			Table: name, Columns: r.names(t.mapping),
			Check: func(now internalpostgres.Columns) (bool, error) { return false, same(now) },
			Row: func(i int) ([]any, error) {
				if i == len(rows) {
					return nil, io.EOF
				}
				return rows[i], nil
			},
		}).RunTx(ctx, tx)
		if err == nil && taken != int64(len(rows)) {
			err = internalpostgres.RowsLeftOut(taken, len(rows))
		}
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("write to %s: %w", t.table, err)
	if refused, ok := errors.AsType[*keyed.RowError](err); ok {
		return r.refused(refused.Row, fmt.Errorf("write to %s: %w", t.table, refused.Err))
	}
	if refused, ok := errors.AsType[*internalpostgres.CopyError](err); ok {
		return r.refused(refused.Row, fmt.Errorf("write to %s: %w", t.table, refused.Err))
	}
	return err
}

// postgresHandler executes the statement for each event of a batch.
func (t *statementTarget) postgresHandler() sluice.Handler[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx, b sluice.Batch) error {
		rows, err := t.mapping.rows(b.Events, t.guards)
		if err != nil {
			return err
		}
		var batch pgx.Batch
		for _, row := range rows {
			if err := asTexts(row); err != nil {
				return err
			}
			batch.Queue(t.statement.text, row...)
		}
		results := tx.SendBatch(ctx, &batch)
		for i := range rows {
			if _, err := results.Exec(); err != nil {
				results.Close()
				return &driver.EventError{Index: i, Err: err}
			}
		}
		return results.Close()
	}
}

// asTexts makes texts of values, which pgx sends as they are: the server parses them for the types
// of the parameters.
func asTexts(row []any) error {
	for i, value := range row {
		if _, is := value.(string); is || value == nil {
			continue
		}
		text, err := internalpostgres.TextOf(value)
		if err != nil {
			return err
		}
		row[i] = text
	}
	return nil
}

// copyRows writes a row for each event by COPY.
func (k *knownTable) copyRows(ctx context.Context, tx pgx.Tx, t *tableTarget, names []string, events []*sluice.Event) error {
	cells := make(copyCells, len(names))
	var row func(i int) ([]any, error)
	insert := internalpostgres.Copy{
		Table: strings.Split(t.table, "."), Columns: names,
		Check: func(now internalpostgres.Columns) (binary bool, err error) {
			g, binary, err := k.check(ctx, t, tx, now)
			row = t.mapping.each(events, cells.box, g)
			return binary, err
		},
		Row: func(i int) ([]any, error) {
			if i == len(events) {
				return nil, io.EOF
			}
			return row(i)
		},
	}
	taken, err := insert.RunTx(ctx, tx)
	failed, ofRow := errors.AsType[*internalpostgres.RowFailed](err)
	refused, named := errors.AsType[*internalpostgres.CopyError](err)
	switch _, changed := errors.AsType[*internalpostgres.ColumnsError](err); {
	case ofRow && failed.Err != nil:
		return failed.Err
	case ofRow:
		return &driver.PanicError{Value: failed.Panic, Stack: failed.Stack}
	case named:
		return &driver.EventError{Index: refused.Row, Err: fmt.Errorf("insert into %s: %w", t.table, refused.Err)}
	case changed:
		k.changed()
	case err == nil && taken != int64(len(events)):
		err = internalpostgres.RowsLeftOut(taken, len(events))
	case err == nil:
		return nil
	}
	return fmt.Errorf("insert into %s: %w", t.table, err)
}

// copyCells has a value for each column of a row on its way to COPY: a pointer to one takes no
// allocation, where an any of the value itself costs one or two.
type copyCells []cell

// box implements [boxing]. The value lasts until the next one of its column.
func (cells copyCells) box(column int, c cell) any {
	cells[column] = c
	return &cells[column]
}

// knownTable is what the columns of a table were when they were checked last.
type knownTable struct {
	mu       sync.Mutex
	columns  internalpostgres.Columns // nil: not checked
	guards   guards
	binary   bool // all are among binaryTypes
	reported bool // that they have changed since
}

// binaryTypes are the types of columns whose binary form a cell has. The text form costs PostgreSQL
// a third more for an event of 1 KB.
var binaryTypes = map[columnType][]string{
	typeText: {"text", "varchar"}, typeSmallint: {"int2", "int4", "int8"}, typeInteger: {"int4", "int8"}, typeBigint: {"int8"}, typeDouble: {"float8"}, typeBoolean: {"bool"},
	typeTimestamp: {"timestamptz", "timestamp"}, typeBytes: {"bytea"}, typeJSON: {"json", "jsonb", "text"},
}

// allBinary reports whether all columns of a mapping are of such types.
func (m *mapping) allBinary(columns internalpostgres.Columns) bool {
	for _, c := range m.columns {
		if !slices.ContainsFunc(columns, func(e internalpostgres.Column) bool {
			return e.Name == c.name && !e.IsDomain() && slices.Contains(binaryTypes[c.typ], e.Base)
		}) {
			return false
		}
	}
	return true
}

// check compares the columns with those that were checked, and checks them again if they have
// changed. It returns what guards them, and whether they take the binary form. A change is an error
// once, so that it is reported, and the batch is repeated; if the columns do not fit any more,
// until they do.
func (k *knownTable) check(ctx context.Context, t *tableTarget, tx pgx.Tx, now internalpostgres.Columns) (g guards, binary bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.columns != nil && k.columns.Same(now) {
		return k.guards, k.binary, nil
	}
	changes := k.columns.Changes(now)
	g, err = t.checkTable(ctx, postgresCatalog{tx}, existing(now))
	if err != nil {
		return nil, false, errors.New(strings.Join(append(changes, strings.Split(err.Error(), "\n")...), "; "))
	}
	report := len(changes) > 0 && !k.reported
	k.columns, k.guards, k.binary, k.reported = now, g, t.mapping.allBinary(now), false
	if report {
		return nil, false, internalpostgres.Changed(changes)
	}
	return g, k.binary, nil
}

// current returns the columns as they were checked last, and what guards them. It checks them if
// they were forgotten.
func (k *knownTable) current(ctx context.Context, t *tableTarget, tx pgx.Tx) (internalpostgres.Columns, guards, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.columns != nil {
		return k.columns, k.guards, nil
	}
	now, err := internalpostgres.ColumnsOf(ctx, tx, t.dialect.quoteTable(t.table))
	if err != nil {
		return nil, nil, fmt.Errorf("inspect table %s: %w", t.table, err)
	}
	g, err := t.checkTable(ctx, postgresCatalog{tx}, existing(now))
	if err != nil {
		return nil, nil, internalpostgres.Unfit(errors.New(strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	k.columns, k.guards = now, g
	return now, g, nil
}

// forget makes current check the columns again.
func (k *knownTable) forget() {
	k.mu.Lock()
	k.columns = nil
	k.mu.Unlock()
}

// changed notes that an error has reported a change.
func (k *knownTable) changed() {
	k.mu.Lock()
	k.reported = true
	k.mu.Unlock()
}

// existing returns columns as a dialect sees them. Of those that a copy writes to, none is
// generated, and whether others must have a value is up to the server.
func existing(columns internalpostgres.Columns) []existingColumn {
	list := make([]existingColumn, len(columns))
	for i, c := range columns {
		list[i] = existingColumn{name: c.Name, kind: c.Base, cast: c.Cast}
	}
	return list
}

// postgresQuerier is a pool, or a transaction.
type postgresQuerier interface {
	internalpostgres.Querier
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Begin(ctx context.Context) (pgx.Tx, error)
}

// postgresCatalog implements [castingCatalog].
type postgresCatalog struct{ db postgresQuerier }

func (c postgresCatalog) safe(ctx context.Context, table string) error {
	return internalpostgres.CheckTable(ctx, c.db, postgresDialect.quoteTable(table))
}

func (c postgresCatalog) columns(ctx context.Context, table string) ([]existingColumn, error) {
	rows, err := c.db.Query(ctx,
		`SELECT attname, attnotnull AND NOT atthasdef AND attidentity = '', attgenerated <> '' OR attidentity = 'a', atthasdef AND attgenerated = '' OR attidentity <> ''
		 FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum`, postgresDialect.quoteTable(table))
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e existingColumn, err error) {
		err = row.Scan(&e.name, &e.required, &e.generated, &e.defaulted)
		return e, err
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	types, err := internalpostgres.ColumnsOf(ctx, c.db, postgresDialect.quoteTable(table))
	if err != nil {
		return nil, err
	}
	for i, e := range list {
		for _, is := range existing(types) {
			if is.name == e.name {
				list[i].kind, list[i].cast = is.kind, is.cast
			}
		}
	}
	return list, nil
}

func (c postgresCatalog) create(ctx context.Context, sql string) error {
	_, err := c.db.Exec(ctx, sql)
	return err
}

func (c postgresCatalog) hasKey(ctx context.Context, table string, columns []string, k driver.Keyed) error {
	w, err := keyed.New(table, columns, nil, k)
	if err != nil {
		return err
	}
	return c.try(ctx, func(tx pgx.Tx) error {
		return (&internalpostgres.Upsert{Table: strings.Split(table, "."), Write: w}).CheckKey(ctx, tx.Conn())
	})
}

// try runs a function in a transaction, or in a savepoint of one, and rolls back.
func (c postgresCatalog) try(ctx context.Context, do func(pgx.Tx) error) error {
	tx, err := c.db.Begin(ctx)
	if err != nil {
		return err
	}
	err = do(tx)
	if back := tx.Rollback(ctx); err == nil {
		err = back
	}
	return err
}

// casts makes values of the texts, as COPY does. Of the empty text only a type that takes no text
// at all is an error. Money counts only if it is the number that the text is: its separators are
// the locale's.
func (c postgresCatalog) casts(ctx context.Context, of existingColumn, texts []string) error {
	for _, text := range texts {
		quoted := internalpostgres.Literal(text)
		query := "SELECT " + quoted + "::" + of.cast + " IS NULL"
		if of.kind == "money" && text != "" {
			query = "SELECT 1 / (" + quoted + "::money::numeric = " + quoted + "::numeric)::int"
		}
		err := c.try(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, query); return err })
		if err != nil && (text != "" || internalpostgres.NoInput(err)) {
			return err
		}
	}
	return nil
}

func (c postgresCatalog) parameters(ctx context.Context, sql string, _ int) (kinds []existingColumn, err error) {
	err = c.try(ctx, func(tx pgx.Tx) error {
		described, err := tx.Conn().Prepare(ctx, "", sql)
		if err != nil {
			return err
		}
		kinds, err = parameterKinds(ctx, tx, described.ParamOIDs)
		return err
	})
	return kinds, err
}

func parameterKinds(ctx context.Context, tx pgx.Tx, oids []uint32) ([]existingColumn, error) {
	kinds := make([]existingColumn, len(oids))
	for i, oid := range oids {
		is, err := internalpostgres.TypeOf(ctx, tx, oid)
		if err != nil {
			return nil, err
		}
		kinds[i] = existingColumn{kind: is.Base, cast: is.Cast}
	}
	return kinds, nil
}
