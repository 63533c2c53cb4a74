package sqlquery_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
)

func TestMariaDB(t *testing.T) {
	u, err := url.Parse(mariadbtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", fmt.Sprintf("%s@tcp(%s)%s", u.User, u.Host, u.Path))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE numbers (tiny tinyint, small float, large bigint unsigned, exact decimal(30,1))"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("INSERT INTO numbers VALUES (-1, 1.5, 18446744073709551615, 12345678901234567890.5)"); err != nil {
		t.Fatal(err)
	}
	check(t, db, []query{
		{"SELECT tiny FROM numbers", "-1"},
		{"SELECT small FROM numbers", "1.5"},
		{"SELECT large FROM numbers", "1.8446744073709552e+19"},
		{"SELECT exact FROM numbers", "1.2345678901234567e+19"},
		{"SELECT sum(small) FROM numbers", "1.5"},
		{"SELECT now()", "not a number"},
	})
	endless(t, db, "SELECT count(*) FROM information_schema.columns a, information_schema.columns b, information_schema.columns c, information_schema.columns d")
}
