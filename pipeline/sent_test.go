package pipeline

import (
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/sqlgrammar"
)

// sentBy are the statements of pipelines in a database server: the look for a table's columns,
// CREATE TABLE with every type, and the statements that the server's page recommends.
func sentBy(t *testing.T, kind *serverKind, page string) []string {
	t.Helper()
	r := &sqlgrammar.Recorder{}
	db := sql.OpenDB(r)
	defer db.Close()
	c := serverCatalog{kind, db}
	for _, table := range []string{"flights", "dbo.it's"} {
		if _, err := c.columns(t.Context(), table); err != nil {
			t.Fatal(err)
		}
		into := &tableTarget{rowTarget: rowTarget{dialect: kind.dialect, mapping: &mapping{}}, table: table}
		for typ := range kind.dialect.declare {
			into.mapping.columns = append(into.mapping.columns, column{name: "a " + string(typ), typ: typ})
		}
		if err := c.create(t.Context(), into.definition()); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	texts := r.Texts()
	for _, block := range strings.Split(string(text), "```sql\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(block, " :") && !strings.Contains(block, "(:") { // it is for an administrator
			continue
		}
		s, err := parseStatement(block, kind.dialect)
		if err != nil {
			t.Errorf("docs/%s: %v: %s", page, err, block)
		}
		texts = append(texts, s.text)
	}
	return texts
}

func mysqlSent(t *testing.T) []string     { return sentBy(t, &mysqlKind, "mysql.md") }
func sqlServerSent(t *testing.T) []string { return sentBy(t, &sqlServerKind, "sqlserver.md") }

// TestSentStatements: every statement in the source is among those that TestGrammar checks.
func TestSentStatements(t *testing.T) {
	mysql, sqlServer := mysqlSent(t), sqlServerSent(t)
	// The look for the columns of each of two tables, CREATE TABLE for each, and those of the
	// pages.
	if len(mysql) != 5 || len(sqlServer) != 5 {
		t.Errorf("%d statements for MySQL, %d for SQL Server; want 5 and 5, with those of the pages", len(mysql), len(sqlServer))
	}
	sqlgrammar.MustHaveAll(t, "table.go", append(mysql, sqlServer...))
}
