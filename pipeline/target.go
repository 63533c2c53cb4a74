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
