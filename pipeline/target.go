package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/internal/strictyaml"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// target is a target in a database: a table or a statement.
type target struct {
	dialect   *dialect
	mapping   *mapping
	table     string // as the file names it, perhaps with a schema
	create    bool
	statement statement // empty if there is a table

	identities *identityQuery // nil: none

	guards guards // of the columns, as they were at the start
}

// maxColumns is PostgreSQL's limit, below SQLite's.
const maxColumns = 1600

func (p *Pipeline) readTarget(n strictyaml.Node) {
	p.places.target = n.Place()
	p.target.dialect = &postgresDialect // if the database is invalid, so that the rest is checked too
	if p.database != nil {
		p.target.dialect = p.database.dialect()
	}
	ok := n.Object(strictyaml.Keys{
		"insert":     p.target.readInsert,
		"statement":  p.target.readStatement,
		"cosmos":     p.readCosmos,
		"eventhub":   p.readEventHubTarget,
		"servicebus": p.readServiceBusTarget,
		"kafka":      p.readKafkaTarget,
		"http":       p.readHTTPTarget,
	})
	if ok {
		n.ExactlyOne("insert", "statement", "cosmos", "eventhub", "servicebus", "kafka", "http")
	}
	p.Table = p.target.table
}

func (t *target) readInsert(n strictyaml.Node) {
	var columns []column
	ok := n.Object(strictyaml.Keys{
		"table":   t.readTable,
		"create":  func(n strictyaml.Node) { n.Bool(&t.create) },
		"columns": func(n strictyaml.Node) { columns = readColumns(n) },
	}, "table", "columns")
	if ok && len(columns) == 0 {
		n.Fail("has no columns: write them as NAME: {from: …, type: …}")
	}
	t.mapping = newMapping("column", columns)
}

func (t *target) readTable(n strictyaml.Node) {
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

// readColumns reads the mapping of columns or parameters.
func readColumns(n strictyaml.Node) []column {
	var columns []column
	n.Each(func(name string, n strictyaml.Node) {
		c := column{name: name, at: n}
		if err := checkName(name); err != nil {
			n.Fail("%w", err)
		}
		if c.read(n) {
			columns = append(columns, c)
		}
	})
	return atMost(n, columns)
}

// atMost refuses more columns than there may be, and returns the first ones: what is done
// with columns may take the square of their number.
func atMost(n strictyaml.Node, columns []column) []column {
	if len(columns) > maxColumns {
		n.Fail("has %d entries: at most %d", len(columns), maxColumns)
		return columns[:maxColumns]
	}
	return columns
}

// read reads `name: body.path`, or the long form with type, required and default.
func (c *column) read(n strictyaml.Node) bool {
	if !n.IsMapping() {
		if !c.readFrom(n) {
			return false
		}
		c.typ, c.required = columnTypes[c.from.field][0], !c.from.optional()
		return true
	}
	var typ string
	var required, hasRequired bool
	var fallback *strictyaml.Node
	ok := n.Object(strictyaml.Keys{
		"from":     func(n strictyaml.Node) { c.readFrom(n) },
		"type":     func(n strictyaml.Node) { n.OneOf(&typ, typeNames...) },
		"required": func(n strictyaml.Node) { hasRequired = n.Bool(&required) },
		"default":  func(n strictyaml.Node) { fallback = &n },
	}, "from")
	if !ok {
		return false
	}
	types := columnTypes[c.from.field]
	c.typ = cmp.Or(columnType(typ), types[0])
	if !slices.Contains(types, c.typ) {
		return n.Fail("%s can't become %s: write one of %s", c.from, c.typ, joined(types))
	}
	if c.from.field == fieldBody && c.typ == typeJSON { // the empty path, which is checked to be JSON
		c.from = origin{field: fieldPath}
	}
	c.required = !c.from.optional() && fallback == nil
	if hasRequired {
		c.required = required
	}
	if fallback == nil {
		return true
	}
	if c.required {
		return n.Fail("is required and has a default: remove one of them")
	}
	return c.readDefault(*fallback)
}

func (c *column) readFrom(n strictyaml.Node) bool {
	var text string
	if !n.Text(&text) {
		return false
	}
	from, err := parseOrigin(text)
	if err != nil {
		return n.Fail("%w", err)
	}
	c.from = from
	return true
}

// readDefault reads a default, which is converted like a string in an event.
func (c *column) readDefault(n strictyaml.Node) bool {
	var literal string
	if !n.Text(&literal) {
		return false
	}
	if c.typ == typeJSON {
		if err := jsonpick.New().Pick([]byte(literal), nil); err != nil {
			return n.Fail("%w", err)
		}
	}
	v, err := c.typ.convert(scalar{kind: text, text: []byte(literal)})
	if err != nil {
		return n.Fail("%w", err)
	}
	c.fallback = v.value()
	return true
}

func (t *target) readStatement(n strictyaml.Node) {
	var sql string
	var sqlNode strictyaml.Node
	var declared []column
	ok := n.Object(strictyaml.Keys{
		"sql": func(n strictyaml.Node) {
			sqlNode = n
			n.Verbatim(&sql)
		},
		"parameters": func(n strictyaml.Node) { declared = readColumns(n) },
		"audit":      func(n strictyaml.Node) { t.identities = readIdentityQuery(n, t.dialect) },
	}, "sql")
	if !ok {
		return
	}
	s, err := parseStatement(sql, t.dialect)
	if err != nil {
		sqlNode.Fail("%w", err)
		return
	}
	columns := make([]column, 0, len(s.names))
	for at, name := range s.names {
		i := slices.IndexFunc(declared, func(c column) bool { return c.name == name })
		if i < 0 {
			if slices.Index(s.names, name) == at {
				sqlNode.Fail(":%s is not among the parameters%s", name, nearestOf(name, declared))
			}
			continue
		}
		columns = append(columns, declared[i])
	}
	for _, c := range declared {
		if !slices.Contains(s.names, c.name) {
			c.at.Fail("the statement does not use :%s", c.name)
		}
	}
	t.statement, t.mapping = s, newMapping("parameter", columns)
}

// nearestOf returns the end of a message that suggests the parameter most similar
// to name.
func nearestOf(name string, declared []column) string {
	names := make([]string, len(declared))
	for i, c := range declared {
		names[i] = c.name
	}
	if near := humanize.Nearest(name, names); near != "" {
		return fmt.Sprintf(", did you mean :%s?", near)
	}
	return ""
}

func joined(types []columnType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}
