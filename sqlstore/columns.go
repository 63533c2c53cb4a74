package sqlstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-go/sluice/internal/tables"
)

// Columns describes the columns of a table, none if there is no such table, as [Tx.Insert] and
// [Tx.Upsert] of this transaction take them to be. If a column that they write to is another one by
// the time of their write, the transaction does not commit. The error is no event's, and says what
// has changed; so is one for columns that are not those of the last transaction that committed. In
// PostgreSQL, whose COPY compares them itself, there are none.
func (t *Tx) Columns(ctx context.Context, table string) ([]tables.Column, error) {
	if err := t.enter(nil); err != nil {
		return nil, err
	}
	p, err := t.pin(ctx, table)
	if err != nil {
		t.fail(err)
		return nil, err
	}
	return p.columns, nil
}

// pin is a table whose columns a transaction relies on.
type pin struct {
	table     string
	columns   []tables.Column
	committed bool     // an earlier transaction has committed with these columns
	names     []string // of the columns that it writes to
}

// pin returns what the transaction takes the columns of a table to be.
func (t *Tx) pin(ctx context.Context, table string) (*pin, error) {
	c := t.dialect.catalog()
	if c == nil {
		return &pin{}, nil
	}
	if p := t.pinOf(table); p != nil {
		return p, nil
	}
	columns, before, err := t.known.read(table, func() ([]tables.Column, error) { return c.Columns(ctx, t.tx, table) })
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pins = append(t.pins, &pin{table: table, columns: columns, committed: before})
	return t.pins[len(t.pins)-1], nil
}

func (t *Tx) pinOf(table string) *pin {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.IndexFunc(t.pins, func(p *pin) bool { return p.table == table }); i >= 0 {
		return t.pins[i]
	}
	return nil
}

// pinned returns the columns of a table, none if the transaction does not rely on them.
func (t *Tx) pinned(table string) []tables.Column {
	if p := t.pinOf(table); p != nil {
		return p.columns
	}
	return nil
}

// writing runs a write to columns of a table. If it fails because they have changed, that is the
// error: then it is no event's.
func (t *Tx) writing(ctx context.Context, table string, columns []string, write func() error) error {
	p, err := t.pin(ctx, table)
	if err != nil {
		return err
	}
	t.mu.Lock()
	p.names = append(p.names, columns...)
	t.mu.Unlock()
	if err = write(); err == nil || len(p.columns) == 0 {
		return err
	}
	if changed := t.known.changed(ctx, t.dialect.catalog(), t.transaction, p); changed != nil {
		return changed
	}
	return err
}

// unchanged is the end of a condition, that the columns which the transaction has written to are
// what it took them to be. The server keeps a table from being altered from the first write to it
// until the transaction ends; so this is true of the write too.
func (t *transaction) unchanged(d dialect) string {
	var list strings.Builder
	for _, p := range t.pins {
		if len(p.columns) > 0 && len(p.names) > 0 {
			list.WriteString(" AND " + d.catalog().Same(p.table, p.columns, p.names))
		}
	}
	return list.String()
}

// changed returns the error if a column is not what the transaction took it to be.
func (s *Store) changed(ctx context.Context, t *transaction) error {
	for _, p := range t.pins {
		if len(p.columns) == 0 || len(p.names) == 0 {
			continue
		}
		if err := s.known.changed(ctx, s.dialect.catalog(), t, p); err != nil {
			return s.outage(ctx, "write to "+p.table, err)
		}
	}
	return nil
}

// knownColumns are the columns of tables as the last transaction that has committed found them.
type knownColumns struct {
	mu     sync.Mutex
	tables map[string]*knownTable
}

// knownTable is what is known of a table.
type knownTable struct {
	columns  []tables.Column
	doubtful bool            // a transaction has failed since
	reported []tables.Column // the error for these was returned
}

// read returns the columns of a table, which read reads if they are not known, and whether an
// earlier transaction has committed with them. It is an error, once, if they have changed.
func (k *knownColumns) read(table string, read func() ([]tables.Column, error)) (columns []tables.Column, before bool, err error) {
	k.mu.Lock()
	known := k.tables[table]
	if known != nil && !known.doubtful {
		defer k.mu.Unlock()
		return known.columns, true, nil
	}
	k.mu.Unlock()
	now, err := read()
	if err != nil || known == nil {
		return now, false, err
	}
	return now, true, k.report(table, known.columns, now)
}

// report returns a [tables.ChangedError], once for each change.
func (k *knownColumns) report(table string, was, is []tables.Column) error {
	err := tables.Changed(table, was, is)
	if err == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.tables[table]
	if known == nil {
		return err
	}
	if known.doubtful = true; known.reported != nil && slices.Equal(known.reported, is) {
		return nil
	}
	known.reported = append(make([]tables.Column, 0, len(is)), is...)
	return err
}

// changed returns the error if the columns are not those that a transaction relies on. If an error
// has ended that, another connection says so, unless the transaction itself may have made the
// table.
func (k *knownColumns) changed(ctx context.Context, c *tables.Catalog, t *transaction, p *pin) error {
	now, err := c.Columns(ctx, t, p.table)
	if err != nil && p.committed {
		now, err = c.Columns(ctx, t.reader, p.table)
	}
	if err != nil {
		return nil
	}
	if err := tables.Changed(p.table, p.columns, now); err != nil {
		_ = k.report(p.table, p.columns, now)
		return err
	}
	return nil
}

// learn notes what a transaction that has ended says about the tables that it wrote to.
func (k *knownColumns) learn(pins []*pin, committed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range pins {
		switch known := k.tables[p.table]; {
		case committed && len(p.columns) > 0:
			if k.tables == nil {
				k.tables = make(map[string]*knownTable)
			}
			k.tables[p.table] = &knownTable{columns: p.columns}
		case known != nil:
			known.doubtful = true
		}
	}
}

// columnsChanged reports whether an error says that columns have changed.
func columnsChanged(err error) bool {
	_, is := errors.AsType[*tables.ChangedError](err)
	return is
}
