package check

import (
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
)

// mariaRemains finds databases of a run, and tables in the user's database.
const mariaRemains = "SELECT schema_name FROM information_schema.schemata WHERE schema_name IN ('sluice_check_holds', 'sluice_check_interrupted') " +
	"UNION ALL SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"

func TestMariaDBHolds(t *testing.T) {
	t.Parallel()
	address, err := mariadbtest.New(t, &mariadbtest.Config{Durable: true}).CreateDatabase(t.Context(), "checked")
	if err != nil {
		t.Fatal(err)
	}
	allHold(t, openDatabase(t, OpenMySQL, address, "holds"), nil)
	if names := remains(t, connect(t, address), mariaRemains); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestBrokenMariaDBSessions(t *testing.T) {
	t.Parallel()
	testBrokenSessions(t, openDatabase(t, OpenMySQL, mariadbtest.Database(t), "broken"))
}

// Settings of the server and of the session that lose data are named.
func TestMariaDBSettings(t *testing.T) {
	t.Parallel()
	s := prepared(t, openDatabase(t, OpenMySQL, mariadbtest.Database(t)+"?sql_mode=''", "settings"))
	expect(t, s, "db.durable", Failed) // the server of the tests does not wait for the disk
	expect(t, s, "db.strict", Failed)
}

// Each interruption leaves nothing.
func TestInterruptedMariaDB(t *testing.T) {
	t.Parallel()
	testInterrupted(t, OpenMySQL, mariadbtest.Database(t), mariaRemains, 4)
}

// Each right that is missing is named, with what to do, and nothing is created.
func TestMariaDBRights(t *testing.T) {
	t.Parallel()
	address := mariadbtest.Database(t)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	db := connect(t, address)
	name := "poor_" + strings.Trim(u.Path, "/")
	execute(t, db,
		"CREATE USER "+name+"@'%' IDENTIFIED BY 'secret'",
		"CREATE TABLE sluice_leases (topic VARCHAR(10) NOT NULL)", "CREATE TABLE sluice_checkpoints (topic VARCHAR(10) NOT NULL)",
		"GRANT SELECT ON sluice_leases TO "+name+"@'%'",
		"GRANT SELECT, INSERT, UPDATE ON sluice_checkpoints TO "+name+"@'%'",
		"GRANT ALL ON sluice_dead_letters TO "+name+"@'%'", "GRANT ALL ON sluice_seen TO "+name+"@'%'", // which are missing
	)
	t.Cleanup(func() { execute(t, db, "DROP USER "+name+"@'%'") })
	poor := *u
	poor.User = url.UserPassword(name, "secret")
	missing := missingRights(t, openDatabase(t, OpenMySQL, poor.String(), "rights"))
	if len(missing) != 2 || !strings.Contains(missing["CREATE and DROP a database"], "GRANT ALL ON `sluice\\_check\\_%`.* TO '"+name+"'@'%'") ||
		!strings.Contains(missing["SELECT, INSERT, UPDATE on sluice_leases"], "GRANT SELECT, INSERT, UPDATE ON") {
		t.Errorf("missing %v", missing)
	}
	poor.User = url.UserPassword(name, "wrong")
	refusesPassword(t, openDatabase(t, OpenMySQL, poor.String(), "rights"), "wrong")
}
