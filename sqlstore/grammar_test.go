package sqlstore

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/sqlgrammar"
)

// Statements that sqlfluff's grammars lack; the tests on Babelfish and MariaDB execute them.
var (
	mssqlUnparsed = regexp.MustCompile(`^KILL %d$`)
	mysqlUnparsed = regexp.MustCompile(`^(SAVEPOINT|RELEASE SAVEPOINT|ROLLBACK TO SAVEPOINT|LOAD DATA) `)
)

// TestTSQLGrammar: every statement for SQL Server is T-SQL by the grammar of sqlfluff, so that none
// depends on what Babelfish accepts beside it.
func TestTSQLGrammar(t *testing.T) {
	sqlgrammar.MustParse(t, "tsql", slices.DeleteFunc(mssqlSent(t), mssqlUnparsed.MatchString))
	sqlgrammar.MustNotParse(t, "tsql",
		mssqlStatements.Lock+" FOR UPDATE", mssqlStatements.Read+" LIMIT 1", mssqlStatements.Epoch+")",
		strings.Replace(mssqlStatements.Park, "END CATCH", "", 1), strings.Replace(mssqlStatements.Held, "GROUP BY", "GROUP", 1),
		"INSERT INTO t (a) VALUES (1) ON CONFLICT DO NOTHING", "SELECT a || b FROM t", "CREATE TABLE t (a bigint AUTO_INCREMENT)")
}

// TestMySQLGrammar: every statement for MySQL and MariaDB is MySQL's SQL, so that none depends on
// what MariaDB alone accepts.
func TestMySQLGrammar(t *testing.T) {
	var texts []string
	for _, text := range slices.DeleteFunc(mysqlSent(t), mysqlUnparsed.MatchString) {
		texts = append(texts, sqlgrammar.MySQL(text))
	}
	sqlgrammar.MustParse(t, "mysql", texts)
	sqlgrammar.MustNotParse(t, "mysql",
		sqlgrammar.MySQL(mysqlStatements.Epoch)+" RETURNING epoch", sqlgrammar.MySQL(mysqlStatements.Move)+")", "INSERT INTO t (a) VALUES (1) ON CONFLICT DO NOTHING",
		"SELECT a FROM t FOR JSON PATH")
}
