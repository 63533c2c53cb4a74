package audit_test

import (
	"testing"

	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/internal/proof/sqlgrammar"
)

// TestGrammar: every statement for SQL Server and for MySQL and MariaDB is one by the grammar of
// sqlfluff, so that none depends on what Babelfish or MariaDB accepts beside it.
func TestGrammar(t *testing.T) {
	sqlgrammar.MustParse(t, "tsql", sent(t, audit.SQLServer()))
	var texts []string
	for _, text := range sent(t, audit.MySQL()) {
		texts = append(texts, sqlgrammar.MySQL(text))
	}
	sqlgrammar.MustParse(t, "mysql", texts)
	sqlgrammar.MustNotParse(t, "mysql", texts[0]+" FETCH FIRST")
}
