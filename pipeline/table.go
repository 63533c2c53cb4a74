package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// dialect is how the SQL of a database differs, as far as pipelines use it.
type dialect struct {
	engine    engine
	parameter string // the prefix of a parameter's number
	quotes    string // what is before and after a quoted name
	options   string // the end of CREATE TABLE
	// unnumbered: the parameter is its prefix alone, and each use of a name is a parameter of its own.
	unnumbered bool
	// declare has the type of a new table's column for each type.
	declare map[columnType]string
	// accepts lists the kinds of existing columns that store a type's values
	// unchanged. Kinds that are in none of the lists are not checked.
	accepts map[columnType][]string
	// argument converts a value for the driver; nil: it takes them as they are.
	argument func(t columnType, value any) any
}

// engine is a database's own notation of texts, names and comments.
type engine string

const (
	sqlite   engine = "SQLite"
	postgres engine = "PostgreSQL" // dollar quotes, E'' texts and nested comments, no backticks
	mysql    engine = "MySQL"      // backslashes in texts, comments after #
	// SQL Server has nested comments, names in brackets, variables that begin with @, and batches of
	// several statements.
	sqlServer engine = "SQL Server"
)

// catalog answers what a target must know of a database before it writes to it.
type catalog interface {
	// columns lists a table's columns, none if there is no such table.
	columns(ctx context.Context, table string) ([]existingColumn, error)
	// create runs a CREATE TABLE. Another process may do the same at the same time.
	create(ctx context.Context, sql string) error
	// parameters prepares a statement with count parameters, and returns their
	// kinds, nil if the database does not know them.
	parameters(ctx context.Context, sql string, count int) ([]string, error)
}

// existingColumn is a column of an existing table.
type existingColumn struct {
	name      string
	kind      string // as dialect.accepts calls it
	required  bool   // it is NOT NULL and has no default
	generated bool   // it takes no values
}

// prepare checks that the target can store the mapping's values, and creates a
// missing table if it may.
func (t *target) prepare(ctx context.Context, c catalog, mayCreate bool) error {
	if t.statement.text != "" {
		return t.checkStatement(ctx, c)
	}
	columns, err := c.columns(ctx, t.table)
	if err != nil {
		return fmt.Errorf("inspect table %s: %w", t.table, err)
	}
	if len(columns) == 0 {
		switch {
		case !t.create:
			return fmt.Errorf("table %s does not exist: create it, or set create: true", t.table)
		case !mayCreate:
			return nil
		}
		// Another process may be faster, perhaps with another mapping.
		failed := c.create(ctx, t.definition())
		if columns, err = c.columns(ctx, t.table); err != nil || len(columns) == 0 {
			return fmt.Errorf("create table %s: %w", t.table, cmp.Or(failed, err, errors.New("it does not exist afterwards")))
		}
	}
	return t.checkTable(columns)
}

// definition is the CREATE TABLE of the mapping: columns and types, no
// constraints.
func (t *target) definition() string {
	lines := make([]string, len(t.mapping.columns))
	for i, c := range t.mapping.columns {
		lines[i] = t.dialect.quote(c.name) + " " + t.dialect.declare[c.typ]
	}
	table := t.dialect.quoteTable(t.table)
	rest := table + " (" + strings.Join(lines, ", ") + ")" + t.dialect.options
	if t.dialect.engine == sqlServer {
		return "IF OBJECT_ID(N'" + strings.ReplaceAll(table, "'", "''") + "', N'U') IS NULL CREATE TABLE " + rest
	}
	return "CREATE TABLE IF NOT EXISTS " + rest
}

func (t *target) checkTable(columns []existingColumn) error {
	for _, c := range t.mapping.columns {
		i := slices.IndexFunc(columns, func(e existingColumn) bool { return t.sameName(e.name, c.name) })
		if i < 0 {
			return fmt.Errorf("table %s has no column %s: it has %s", t.table, c.name, listed(columns))
		}
		e := columns[i]
		if e.generated {
			return fmt.Errorf("table %s: column %s is generated and takes no values: remove it from the mapping", t.table, e.name)
		}
		if !t.dialect.fits(c.typ, e.kind) {
			return fmt.Errorf("table %s: column %s is %s, which can't hold the mapping's %s: change one of them", t.table, e.name, e.kind, c.typ)
		}
	}
	for _, e := range columns {
		mapped := slices.ContainsFunc(t.mapping.columns, func(c column) bool { return t.sameName(e.name, c.name) })
		if e.required && !mapped {
			return fmt.Errorf("table %s: column %s must have a value and has no default: add it to the mapping", t.table, e.name)
		}
	}
	return nil
}

// sameName compares names of columns, of which only PostgreSQL respects the case.
func (t *target) sameName(a, b string) bool {
	return a == b || t.dialect.engine != postgres && strings.EqualFold(a, b)
}

func listed(columns []existingColumn) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return strings.Join(names, ", ")
}

func (t *target) checkStatement(ctx context.Context, c catalog) error {
	kinds, err := c.parameters(ctx, t.statement.text, len(t.statement.names))
	if err != nil {
		return fmt.Errorf("prepare the statement: %w", err)
	}
	for i, kind := range kinds {
		if p := t.mapping.columns[i]; !t.dialect.fits(p.typ, kind) {
			return fmt.Errorf("parameter %s is %s in the statement, which can't hold the mapping's %s: change the type, or write a cast such as :%s::%s",
				p.name, kind, p.typ, p.name, t.dialect.declare[p.typ])
		}
	}
	return nil
}

// fits reports whether columns of a kind store values of a type unchanged.
func (d *dialect) fits(t columnType, kind string) bool {
	if slices.Contains(d.accepts[t], kind) {
		return true
	}
	for _, kinds := range d.accepts {
		if slices.Contains(kinds, kind) {
			return false
		}
	}
	return true
}

// quoteTable quotes a table's name, with or without a schema.
func (d *dialect) quoteTable(table string) string {
	if schema, name, ok := strings.Cut(table, "."); ok {
		return d.quote(schema) + "." + d.quote(name)
	}
	return d.quote(table)
}

// quote quotes the name of a table or column.
func (d *dialect) quote(name string) string {
	before, after := d.quotes[:1], d.quotes[1:]
	return before + strings.ReplaceAll(name, after, after+after) + after
}

// emptyCatalog is the catalog of a database that does not exist yet.
type emptyCatalog struct{}

func (emptyCatalog) columns(context.Context, string) ([]existingColumn, error) { return nil, nil }
func (emptyCatalog) create(context.Context, string) error                      { return nil }

func (emptyCatalog) parameters(context.Context, string, int) ([]string, error) {
	return nil, errors.New("the database does not exist yet: create it, and the tables that the statement needs")
}
