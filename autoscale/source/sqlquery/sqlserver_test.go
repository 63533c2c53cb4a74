package sqlquery_test

import (
	"database/sql"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
)

func TestSQLServer(t *testing.T) {
	db, err := sql.Open("sqlserver", sqlservertest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{
		"CREATE TABLE numbers (tiny tinyint, small real, large bigint, exact decimal(30,1), price money)",
		"INSERT INTO numbers VALUES (1, 1.5, 9223372036854775807, 12345678901234567890.5, 2.25)",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	check(t, db, []query{
		{"SELECT tiny FROM numbers", "1"},
		{"SELECT small FROM numbers", "1.5"},
		{"SELECT large FROM numbers", "9.223372036854776e+18"},
		{"SELECT exact FROM numbers", "1.2345678901234567e+19"},
		{"SELECT price FROM numbers", "2.25"},
		{"SELECT SYSUTCDATETIME()", "not a number"},
	})
	endless(t, db, "SELECT count_big(*) FROM sys.all_columns a, sys.all_columns b, sys.all_columns c, sys.all_columns d")
}
