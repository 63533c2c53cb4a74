package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// dialect is how the SQL of a database differs, as far as pipelines use it.
type dialect struct {
	engine    engine
	parameter string // the prefix of a parameter's number
	quotes    string // what is before and after a quoted name
	options   string // the end of CREATE TABLE
	// unnumbered: the parameter is its prefix alone, and each use of a name is a parameter of its
	// own.
	unnumbered bool
	// declare has the type of a new table's column for each type.
	declare map[columnType]string
	// declareKey has it for the columns of a key, where that is another one.
	declareKey map[columnType]string
	// accepts lists the kinds of existing columns that store a type's values unchanged, or refuse
	// them. A kind that is in none of the lists is up to the catalog.
	accepts map[columnType][]string
	// guards lists, for types and kinds, what refuses the values that such a column would change.
	guards map[columnType]map[string]func(kind string) guard
	// argument converts a value for the driver; nil: it takes them as they are.
	argument func(t columnType, value any) any
}

// engine is a database's own notation of texts, names and comments.
type engine string

const (
	sqlite   engine = "SQLite"
	postgres engine = "PostgreSQL" // dollar quotes, E'' texts and nested comments, no backticks
	mysql    engine = "MySQL"      // backslashes in texts, comments after #
	// SQL Server has nested comments, names in brackets, variables that begin with @, and batches
	// of several statements.
	sqlServer engine = "SQL Server"
)

// catalog answers what a target must know of a database before it writes to it.
type catalog interface {
	// safe returns a [driver.UnsafeTableError] for a table whose rows do not come and go with their
	// transaction.
	safe(ctx context.Context, table string) error
	// columns lists a table's columns, none if there is no such table.
	columns(ctx context.Context, table string) ([]existingColumn, error)
	// hasKey returns a [driver.NoKeyError] for a table without the key of a keyed write.
	hasKey(ctx context.Context, table string, columns []string, k driver.Keyed) error
	// create runs a CREATE TABLE. Another process may do the same at the same time.
	create(ctx context.Context, sql string) error
	// parameters prepares a statement with count parameters, and returns their
	// kinds, nil if the database does not know them.
	parameters(ctx context.Context, sql string, count int) ([]existingColumn, error)
}

// castingCatalog is the catalog of a database whose types are not all in dialect.accepts.
type castingCatalog interface {
	// casts returns why the database does not make values of a kind of the texts, nil if it does.
	casts(ctx context.Context, kind existingColumn, texts []string) error
}

// existingColumn is a column of an existing table, or a parameter of a statement.
type existingColumn struct {
	name      string
	kind      string // as dialect.accepts calls it, perhaps with more in parentheses
	cast      string // the type as SQL writes it, of a castingCatalog
	required  bool   // it is NOT NULL and has no default
	generated bool   // it takes no values
	defaulted bool   // a row without a value gets another one than NULL
}

// isArray reports whether the column is an array of PostgreSQL.
func (e *existingColumn) isArray() bool {
	return strings.HasPrefix(e.kind, "_") && strings.HasSuffix(e.cast, "[]")
}

// tableTarget is a table into which each event, or each element of an array in it, inserts a row,
// or which it changes by key.
type tableTarget struct {
	rowTarget
	table  string // as the file names it, perhaps with a schema
	create bool
	evolve bool
	key    *tableKey // nil: rows are inserted

	defaulted []bool // columns, as they were at the start: a row without a value gets a default
}

// readTable reads target.insert.
func (r *reader) readTable(n strictyaml.Node, rows rowTarget) *tableTarget {
	t := &tableTarget{rowTarget: rows}
	var columns []column
	var array *elements
	var key keyNodes
	keep := func(to **strictyaml.Node) func(strictyaml.Node) { return func(n strictyaml.Node) { *to = &n } }
	ok := n.Object(strictyaml.Keys{
		"table":       t.readName,
		"create":      func(n strictyaml.Node) { n.Bool(&t.create) },
		"evolve":      func(n strictyaml.Node) { n.Bool(&t.evolve) },
		"each":        func(n strictyaml.Node) { array = readEach(n) },
		"key":         keep(&key.key),
		"on_conflict": keep(&key.onConflict),
		"version":     keep(&key.version),
		"delete_when": keep(&key.deleteWhen),
		"truncates":   keep(&key.truncates),
		"columns":     func(n strictyaml.Node) { columns = readElementColumns(n) },
	}, "table", "columns")
	if ok && len(columns) == 0 {
		n.Fail("has no columns: write them as NAME: {from: …, type: …}")
	}
	for _, c := range columns {
		if array == nil && c.origin.inElement() {
			c.node.Fail("%s goes with the key each, the array whose elements have rows of their own", c.origin)
		}
	}
	t.key = key.read(columns, r)
	t.mapping = newElementMapping("column", columns, array)
	return t
}

func (t *tableTarget) mappings() []*mapping {
	return append(t.key.mappings(), t.mapping)
}

func (t *tableTarget) readName(n strictyaml.Node) {
	var table string
	if !n.Text(&table) {
		return
	}
	parts := strings.Split(table, ".")
	for _, part := range parts {
		if err := checkName(part); err != nil || len(parts) > 2 {
			n.Fail("%s: %w", n.Shown(), cmp.Or(err, errors.New("write table or schema.table")))
			return
		}
	}
	if strings.HasPrefix(strings.ToLower(parts[len(parts)-1]), "sluice_") {
		n.Fail("%s: names that begin with sluice_ are reserved for Sluice's own tables", n.Shown())
		return
	}
	t.table = table
}

// checkName checks that a name fits both databases: PostgreSQL truncates longer ones.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > 63:
		return errors.New("the name has more than 63 bytes")
	case strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("the name has a control character")
	}
	return nil
}

func (*tableTarget) kind() string { return "insert" }

func (t *tableTarget) check(ctx context.Context, c catalog) error { return t.prepare(ctx, c, false) }

func (t *tableTarget) outlet(ctx context.Context, parts *Parts, _ telemetry) (outlet, error) {
	return nil, t.prepare(ctx, parts.catalog, true)
}

// prepare checks that the table can store the mapping's values, and creates a missing one if it
// may.
func (t *tableTarget) prepare(ctx context.Context, c catalog, mayCreate bool) error {
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
	if err := c.safe(ctx, t.table); err != nil {
		return err
	}
	if t.evolve {
		if columns, err = t.addColumns(ctx, c, columns, mayCreate); err != nil {
			return err
		}
	}
	t.defaulted = t.defaults(columns)
	if t.guards, err = t.checkTable(ctx, c, columns); err != nil || t.key == nil {
		return err
	}
	return c.hasKey(ctx, t.table, columnNames(t.mapping.columns), t.key.keyed())
}

// addColumns adds the mapping's columns that the table does not have, if it may, and returns all.
// None is ever removed.
func (t *tableTarget) addColumns(ctx context.Context, catalog catalog, columns []existingColumn, may bool) ([]existingColumn, error) {
	verb := " ADD COLUMN "
	if t.dialect.engine == sqlServer {
		verb = " ADD "
	}
	for _, c := range t.mapping.columns {
		if t.existing(columns, c.name) != nil {
			continue
		}
		if !may { // as it will be
			kind := t.dialect.accepts[c.typ][0]
			columns = append(columns, existingColumn{name: c.name, kind: kind})
			continue
		}
		// Another process may be faster.
		failed := catalog.create(ctx, "ALTER TABLE "+t.dialect.quoteTable(t.table)+verb+t.dialect.quote(c.name)+" "+t.dialect.declare[c.typ])
		now, err := catalog.columns(ctx, t.table)
		if err == nil && t.existing(now, c.name) == nil {
			err = cmp.Or(failed, errors.New("it does not exist afterwards"))
		}
		if err != nil {
			return nil, fmt.Errorf("add column %s to table %s: %w", c.name, t.table, err)
		}
		columns = now
	}
	return columns, nil
}

// existing returns the column with a name, nil if there is none.
func (t *tableTarget) existing(columns []existingColumn, name string) *existingColumn {
	for i := range columns {
		if t.sameName(columns[i].name, name) {
			return &columns[i]
		}
	}
	return nil
}

// defaults says of the mapping's columns which get a default in a row without a value, where the
// mapping allows that.
func (t *tableTarget) defaults(columns []existingColumn) []bool {
	list := make([]bool, len(t.mapping.columns))
	for i, c := range t.mapping.columns {
		e := t.existing(columns, c.name)
		list[i] = e != nil && e.defaulted && !c.required && c.fallback == nil
	}
	return list
}

// definition is the CREATE TABLE of the mapping: columns, types and the key.
func (t *tableTarget) definition() string {
	lines := make([]string, len(t.mapping.columns))
	for i, c := range t.mapping.columns {
		kind := t.dialect.declare[c.typ]
		if t.key != nil && slices.Contains(t.key.columns, c.name) {
			kind = cmp.Or(t.dialect.declareKey[c.typ], kind) + " NOT NULL"
		}
		lines[i] = t.dialect.quote(c.name) + " " + kind
	}
	if t.key != nil {
		key := make([]string, len(t.key.columns))
		for i, name := range t.key.columns {
			key[i] = t.dialect.quote(name)
		}
		lines = append(lines, "PRIMARY KEY ("+strings.Join(key, ", ")+")")
	}
	table := t.dialect.quoteTable(t.table)
	rest := table + " (" + strings.Join(lines, ", ") + ")" + t.dialect.options
	if t.dialect.engine == sqlServer {
		return "IF OBJECT_ID(N'" + strings.ReplaceAll(table, "'", "''") + "', N'U') IS NULL CREATE TABLE " + rest
	}
	return "CREATE TABLE IF NOT EXISTS " + rest
}

// checkTable returns what guards the columns. The error has all that is wrong.
func (t *tableTarget) checkTable(ctx context.Context, catalog catalog, columns []existingColumn) (guards, error) {
	var wrong problems
	list := make(guards, len(t.mapping.columns))
	for n, c := range t.mapping.columns {
		found := t.existing(columns, c.name)
		if found == nil {
			wrong.addf("table %s has no column %s: it has %s", t.table, c.name, listed(columns))
			continue
		}
		e := *found
		switch why := t.dialect.fits(ctx, catalog, c.typ, e); {
		case e.generated:
			wrong.addf("table %s: column %s is generated and takes no values: remove it from the mapping", t.table, e.name)
		case why != nil:
			wrong.addf("table %s: column %s is %s, which can't hold the mapping's %s%s: change one of them", t.table, e.name, e.kind, c.typ, why)
		}
		list[n] = t.dialect.guard(c.typ, e)
	}
	for _, e := range columns {
		mapped := slices.ContainsFunc(t.mapping.columns, func(c column) bool { return t.sameName(e.name, c.name) })
		if e.required && !mapped {
			wrong.addf("table %s: column %s must have a value and has no default: add it to the mapping", t.table, e.name)
		}
	}
	return list, wrong.err()
}

// problems are errors of one place, each with a line of its own.
type problems []error

func (p *problems) addf(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

// err returns the only problem, or all of them.
func (p problems) err() error {
	switch len(p) {
	case 0:
		return nil
	case 1:
		return p[0]
	}
	return p
}

func (p problems) Error() string { return errors.Join(p...).Error() }

// Unwrap returns the problems.
func (p problems) Unwrap() []error { return p }

// sameName compares names of columns, of which only PostgreSQL respects the case.
func (t *tableTarget) sameName(a, b string) bool {
	return a == b || t.dialect.engine != postgres && strings.EqualFold(a, b)
}

func listed(columns []existingColumn) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return strings.Join(names, ", ")
}

// errNotListed is why a type does not fit a kind: the dialect knows both.
var errNotListed = errors.New("")

// fits returns why columns of a kind do not store the values of a type unchanged, nil if they do.
// Of a kind that the dialect does not know the database must make values of samples.
func (d *dialect) fits(ctx context.Context, c catalog, t columnType, of existingColumn) error {
	kind, _, _ := strings.Cut(of.kind, "(")
	if slices.Contains(d.accepts[t], kind) || t == typeJSON && of.isArray() {
		return nil
	}
	for _, kinds := range d.accepts {
		if slices.Contains(kinds, kind) {
			return errNotListed
		}
	}
	if asks, ok := c.(castingCatalog); ok {
		if err := asks.casts(ctx, of, samples[t]); err != nil {
			return fmt.Errorf(" (%w)", err)
		}
		return nil
	}
	return errNotListed
}

// samples are texts of each type that a column for it takes.
var samples = map[columnType][]string{
	typeText:     {""}, // of which the database says only whether the type takes any text
	typeSmallint: {"12", "-7"}, typeInteger: {"12", "-7"}, typeReal: {"1.5", "-2e+30"}, typeDate: {"2026-07-08"}, typeBigint: {"12", "-7"}, typeDouble: {"1.5", "-2e+30"}, typeNumeric: {"12345.67", "-12"},
	typeBoolean: {"true", "false"}, typeTimestamp: {"2026-07-08 21:04:05.678901+00"}, typeBytes: {`\x00ff`},
	typeJSON: {`{"a": [1]}`, `"a"`, `12`},
}

// guard returns what guards a column of a kind against values of a type; nil: nothing does.
func (d *dialect) guard(t columnType, of existingColumn) guard {
	kind, _, _ := strings.Cut(of.kind, "(")
	if guarding := d.guards[t][kind]; guarding != nil {
		return guarding(of.kind)
	}
	if t == typeJSON && of.isArray() {
		return toArray(of.kind == "_json" || of.kind == "_jsonb")
	}
	return nil
}

// fixed makes the same guard for each kind.
func fixed(g guard) func(string) guard { return func(string) guard { return g } }

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
func (emptyCatalog) safe(context.Context, string) error                        { return nil }
func (emptyCatalog) hasKey(context.Context, string, []string, driver.Keyed) error {
	return nil
}
func (emptyCatalog) create(context.Context, string) error { return nil }

func (emptyCatalog) parameters(context.Context, string, int) ([]existingColumn, error) {
	return nil, errors.New("the database does not exist yet: create it, and the tables that the statement needs")
}
