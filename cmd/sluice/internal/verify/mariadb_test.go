//go:build mariadb

package verify

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/sqlstore"
)

func init() { servers = append(servers, mariadbtest.Around) }

func openMariaDB(t *testing.T, address, id string) *databaseSystem {
	t.Helper()
	s, err := OpenMySQL(address, Options{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s.(*databaseSystem)
}

func connectMariaDB(t *testing.T, address string) *sql.DB {
	t.Helper()
	connector, err := sqlstore.MySQLConnector(address)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// mariaRemains counts databases of a run, and tables in the user's database.
func mariaRemains(t *testing.T, address, id string) (n int) {
	t.Helper()
	err := connectMariaDB(t, address).QueryRow("SELECT (SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?) + "+
		"(SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE())", "sluice_verify_"+id).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMariaDBHolds(t *testing.T) {
	t.Parallel()
	address, err := mariadbtest.New(t, &mariadbtest.Config{Durable: true}).CreateDatabase(t.Context(), "verify")
	if err != nil {
		t.Fatal(err)
	}
	allHold(t, openMariaDB(t, address, "holds"), nil)
	if n := mariaRemains(t, address, "holds"); n > 0 {
		t.Errorf("%d databases and tables are left behind", n)
	}
}

func TestBrokenMariaDBSessions(t *testing.T) {
	t.Parallel()
	testBrokenSessions(t, openMariaDB(t, mariadbtest.Database(t), "broken"))
}

// Settings of the server and of the session that lose data are named.
func TestMariaDBSettings(t *testing.T) {
	t.Parallel()
	s := prepared(t, openMariaDB(t, mariadbtest.Database(t)+"?sql_mode=''", "settings"))
	expect(t, s, "db.durable", Differed) // the server of the tests does not wait for the disk
	expect(t, s, "db.strict", Differed)
}

// Each interruption leaves nothing.
func TestInterruptedMariaDB(t *testing.T) {
	t.Parallel()
	address := mariadbtest.Database(t)
	for at := range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		s := openMariaDB(t, address, "interrupted")
		inner := s.prepare
		s.prepare = func(ctx context.Context, made *Ledger) (database, error) {
			if at == 0 {
				cancel()
			}
			return inner(ctx, made)
		}
		report, err := (&Runner{Systems: []System{s}, Progress: func(_, _ string, number, _ int) {
			if number == at {
				cancel()
			}
		}}).Run(ctx)
		cancel()
		if n := mariaRemains(t, address, "interrupted"); err != nil || n > 0 || len(report.Left) > 0 {
			t.Errorf("interrupted at check %d: error %v, %d databases and tables remain, left %v", at, err, n, report.Left)
		}
	}
}

// Each right that is missing is named, with what to do, and nothing is created.
func TestMariaDBRights(t *testing.T) {
	t.Parallel()
	address := mariadbtest.Database(t)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	db := connectMariaDB(t, address)
	name := "poor_" + strings.Trim(u.Path, "/")
	for _, statement := range []string{
		"CREATE USER " + name + "@'%' IDENTIFIED BY 'secret'",
		"CREATE TABLE sluice_leases (topic VARCHAR(10) NOT NULL)", "CREATE TABLE sluice_checkpoints (topic VARCHAR(10) NOT NULL)",
		"GRANT SELECT ON sluice_leases TO " + name + "@'%'",
		"GRANT SELECT, INSERT, UPDATE ON sluice_checkpoints TO " + name + "@'%'",
		"GRANT ALL ON sluice_dead_letters TO " + name + "@'%'", "GRANT ALL ON sluice_seen TO " + name + "@'%'", // which are missing
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	t.Cleanup(func() { _, _ = connectMariaDB(t, address).Exec("DROP USER " + name + "@'%'") })
	poor := *u
	poor.User = url.UserPassword(name, "secret")
	missing := map[string]string{}
	for _, r := range openMariaDB(t, poor.String(), "rights").Rights(t.Context()) {
		if !r.Granted {
			missing[r.Name] = r.Next
		}
	}
	if len(missing) != 2 || !strings.Contains(missing["CREATE and DROP a database"], "GRANT ALL ON `sluice\\_verify\\_%`.* TO '"+name+"'@'%'") ||
		!strings.Contains(missing["SELECT, INSERT, UPDATE on sluice_leases"], "GRANT SELECT, INSERT, UPDATE ON") {
		t.Errorf("missing %v", missing)
	}
	poor.User = url.UserPassword(name, "wrong")
	for _, r := range openMariaDB(t, poor.String(), "rights").Rights(t.Context()) {
		if r.Granted || strings.Contains(r.Found, "wrong") || r.Next == "" {
			t.Errorf("with a wrong password: %+v", r)
		}
	}
}
