package pipeline

import (
	"testing"

	"github.com/sluice-go/sluice/internal/proof/sqlgrammar"
)

// TestGrammar: every statement for SQL Server and for MySQL and MariaDB is one by the grammar of
// sqlfluff, so that none depends on what Babelfish or MariaDB accepts beside it.
func TestGrammar(t *testing.T) {
	texts := sqlServerSent(t)
	sqlgrammar.MustParse(t, "tsql", texts)
	sqlgrammar.MustNotParse(t, "tsql", texts[0]+" LIMIT 1")
	texts = texts[:0]
	for _, text := range mysqlSent(t) {
		texts = append(texts, sqlgrammar.MySQL(text))
	}
	sqlgrammar.MustParse(t, "mysql", texts)
	sqlgrammar.MustNotParse(t, "mysql", texts[0]+" RETURNING name")
}
