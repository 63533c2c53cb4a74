package sqlservertest

import (
	"database/sql"
	"testing"
)

// TestServer: every test has a database of its own, which is empty. It reports the server, so that
// scripts/test can show on which one the tests of SQL Server run.
func TestServer(t *testing.T) {
	version, err := shared.Get(t).version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(version)
	first, second := Database(t), Database(t)
	if first == second {
		t.Errorf("both are %s", first)
	}
	for _, address := range []string{first, second} {
		db, err := sql.Open("sqlserver", address)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), "CREATE TABLE first (n int)"); err != nil {
			t.Error(err)
		}
	}
}
