//go:build unix

package mariadbtest

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// TestProvideExisting: the databases of the tests are made on the server of SLUICE_MYSQL_URL and
// removed from it, and it goes on.
func TestProvideExisting(t *testing.T) {
	own := New(t, nil)
	t.Setenv("SLUICE_MYSQL_URL", own.URL(""))
	s, err := Provide()
	if err != nil {
		t.Fatal(err)
	}
	if version, err := s.Version(t.Context()); err != nil || !strings.Contains(version, "MariaDB") {
		t.Errorf("version %q, %v", version, err)
	}
	address, err := s.CreateDatabase(t.Context(), "test_1")
	if err != nil {
		t.Fatal(err)
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = user, own.password, "tcp", own.Addr()
	db, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	databases := func() (n int) {
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE 'sluice\\_%\\_test\\_1'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := databases(); n != 1 || !strings.HasPrefix(address, "mariadb://") || !strings.Contains(address, "/sluice_") {
		t.Errorf("%d databases, URL %s", n, address)
	}
	if err := s.DropDatabase(t.Context(), "test_1"); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := databases(); n != 0 {
		t.Errorf("%d databases are left", n)
	}
	// A server that starts removes the temporary tables in its directory, so no two may share one.
	var temporary string
	if err := db.QueryRowContext(t.Context(), "SELECT @@tmpdir").Scan(&temporary); err != nil || temporary != own.Dir() {
		t.Errorf("temporary tables are in %s, %v; want %s", temporary, err, own.Dir())
	}
}

func TestProvideReadsItsURL(t *testing.T) {
	t.Setenv("SLUICE_MYSQL_URL", "mysql:canary@host")
	if _, err := Provide(); err == nil || !strings.Contains(err.Error(), "mysql://user:password@host:3306") || strings.Contains(err.Error(), "canary") {
		t.Errorf("%v; want the form of the URL, and no password", err)
	}
}
