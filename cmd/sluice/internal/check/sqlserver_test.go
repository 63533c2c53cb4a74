package check

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
)

// sqlServerRemains finds the tables of a database.
const sqlServerRemains = "SELECT TABLE_NAME FROM INFORMATION_SCHEMA.TABLES ORDER BY TABLE_NAME"

// On Babelfish, which ignores table hints and does not know who blocks whom, the checks say so.
func TestSQLServerHolds(t *testing.T) {
	t.Parallel()
	address := sqlservertest.Database(t)
	db := connect(t, address)
	var version string
	if err := db.QueryRow("SELECT @@VERSION").Scan(&version); err != nil {
		t.Fatal(err)
	}
	var except map[string]State
	if strings.HasPrefix(version, "Babelfish") {
		except = map[string]State{"db.hints": Failed, "db.paused": Warning} // it has no sys.dm_exec_requests
	}
	allHold(t, openDatabase(t, OpenSQLServer, address, "holds"), except)
	if names := remains(t, db, sqlServerRemains); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestBrokenSQLServerSessions(t *testing.T) {
	t.Parallel()
	testBrokenSessions(t, openDatabase(t, OpenSQLServer, sqlservertest.Database(t), "broken"))
}

// Tables and rows that the checks did not make stay.
func TestSQLServerOthersStay(t *testing.T) {
	t.Parallel()
	address := sqlservertest.Database(t)
	db := connect(t, address)
	run := func() {
		t.Helper()
		s := openDatabase(t, OpenSQLServer, address, "others")
		granted(t, s)
		made := &Ledger{}
		if err := s.Prepare(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		expect(t, s, "db.keys", OK)
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
		if names := remains(t, db, sqlServerRemains); !slices.Equal(names, want) {
			t.Errorf("tables %v", names)
		}
	}
}

// An interruption leaves nothing.
func TestInterruptedSQLServer(t *testing.T) {
	t.Parallel()
	testInterrupted(t, OpenSQLServer, sqlservertest.Database(t), sqlServerRemains, 3)
}

// A wrong password, and a right that is missing, are named.
func TestSQLServerRights(t *testing.T) {
	t.Parallel()
	address := sqlservertest.Database(t)
	wrong := strings.Replace(address, "sa:", "sa:wrong", 1)
	refusesPassword(t, openDatabase(t, OpenSQLServer, wrong, "rights"), ":wrong")
}
