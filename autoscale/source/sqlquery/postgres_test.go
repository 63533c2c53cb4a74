package sqlquery_test

import (
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

func TestPostgres(t *testing.T) {
	db, err := sql.Open("pgx", pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	check(t, db, []query{
		{"SELECT 1::smallint", "1"},
		{"SELECT 1.5::real", "1.5"},
		{"SELECT 12345678901234567890.5::numeric", "1.2345678901234567e+19"},
		{"SELECT 'NaN'::numeric", "NaN"}, // which the collector refuses
		{"SELECT now()", "not a number"},
	})
	endless(t, db, "SELECT count(*) FROM pg_sleep(1000)")
}
