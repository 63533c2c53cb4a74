//go:build sqlserver

package verify

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/sqlstore"
)

func init() { servers = append(servers, sqlservertest.Around) }

func openSQLServer(t *testing.T, address, id string) *databaseSystem {
	t.Helper()
	s, err := OpenSQLServer(address, Options{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s.(*databaseSystem)
}

func connectSQLServer(t *testing.T, address string) *sql.DB {
	t.Helper()
	connector, err := sqlstore.SQLServerConnector(address, nil)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// sqlServerTables lists the tables of a database.
func sqlServerTables(t *testing.T, db *sql.DB) (names []string) {
	t.Helper()
	rows, err := db.Query("SELECT TABLE_NAME FROM INFORMATION_SCHEMA.TABLES ORDER BY TABLE_NAME")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// On Babelfish, which ignores table hints and does not know who blocks whom, the checks say so.
func TestSQLServerHolds(t *testing.T) {
	t.Parallel()
	address := sqlservertest.Database(t)
	db := connectSQLServer(t, address)
	var version string
	if err := db.QueryRow("SELECT @@VERSION").Scan(&version); err != nil {
		t.Fatal(err)
	}
	var except map[string]Verdict
	if strings.HasPrefix(version, "Babelfish") {
		except = map[string]Verdict{"db.hints": Differed, "db.paused": Tolerated} // it has no sys.dm_exec_requests
	}
	allHold(t, openSQLServer(t, address, "holds"), except)
	if names := sqlServerTables(t, db); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestBrokenSQLServerSessions(t *testing.T) {
	t.Parallel()
	testBrokenSessions(t, openSQLServer(t, sqlservertest.Database(t), "broken"))
}

// Tables and rows that the checks did not make stay.
func TestSQLServerOthersStay(t *testing.T) {
	t.Parallel()
	address := sqlservertest.Database(t)
	db := connectSQLServer(t, address)
	run := func() {
		t.Helper()
		s := openSQLServer(t, address, "others")
		granted(t, s)
		made := &Ledger{}
		if err := s.Prepare(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		expect(t, s, "db.keys", Held)
		lease := s.owner("0", "other", 1)
		lease.Group.Namespace = "another"
		if _, err := s.claim(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		if err := made.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"sluice_checkpoints", "sluice_dead_letters", "sluice_leases", "sluice_schema", "sluice_seen"}
	for range 2 { // the first run makes the tables, which another uses at its end
		run()
		var rows int
		if err := db.QueryRow("SELECT COUNT(*) FROM sluice_checkpoints").Scan(&rows); err != nil || rows != 1 {
			t.Errorf("%d checkpoints, error %v", rows, err)
		}
		if names := sqlServerTables(t, db); !slices.Equal(names, want) {
			t.Errorf("tables %v", names)
		}
	}
}

// An interruption leaves nothing.
func TestInterruptedSQLServer(t *testing.T) {
	t.Parallel()
	address := sqlservertest.Database(t)
	db := connectSQLServer(t, address)
	for at := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		s := openSQLServer(t, address, "interrupted")
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
		if names := sqlServerTables(t, db); err != nil || len(names) > 0 || len(report.Left) > 0 {
			t.Errorf("interrupted at check %d: error %v, tables %v, left %v", at, err, names, report.Left)
		}
	}
}

// A wrong password, and a right that is missing, are named.
func TestSQLServerRights(t *testing.T) {
	t.Parallel()
	address := sqlservertest.Database(t)
	wrong := strings.Replace(address, "sa:", "sa:wrong", 1)
	for _, r := range openSQLServer(t, wrong, "rights").Rights(t.Context()) {
		if r.Granted || r.Next == "" || strings.Contains(r.Found, ":wrong") {
			t.Errorf("with a wrong password: %+v", r)
		}
	}
}
