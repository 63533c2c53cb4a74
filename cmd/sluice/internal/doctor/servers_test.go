package doctor

import (
	"database/sql"
	"net/url"
	"testing"

	"github.com/sluice-go/sluice/pipeline"
)

const withoutTable = `source: {eventhub: {connection: "${HUB}", hub: flights}}
partitions: all
database: ${DB}
target: {insert: {table: arrivals, columns: {n: sequence}}}
`

// connect opens connections of a test's own to a database.
func connect(t *testing.T, address string) *sql.DB {
	t.Helper()
	db, err := pipeline.OpenReader(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execute(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// examineServer examines a pipeline in an empty database, with its tables, with a password that is
// wrong, at a wrong address, without its table, and as a user with the right to read only.
func examineServer(t *testing.T, address string, reader func(password string) (name string)) {
	variables := map[string]string{"HUB": hub(t), "DB": address}
	list := examine(t, patient, file, variables)
	want(t, list, "database", OK)
	want(t, list, "tables", OK, "the first start creates them")
	want(t, list, "rights", OK, "connect to the database")
	want(t, list, "clock", OK, "differs by")

	if err := open(t, variables).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	list = examine(t, patient, file, variables)
	want(t, list, "tables", OK, "as this program makes them")
	want(t, list, "owners", OK, "no consumer has started yet")
	want(t, list, "rights", OK, "SELECT, INSERT, UPDATE on sluice_leases")

	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*url.URL)) map[string]string {
		changed := *u
		change(&changed)
		return map[string]string{"HUB": variables["HUB"], "DB": changed.String()}
	}
	want(t, examine(t, patient, file, with(func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), secret) })), "database", Failed, "p.yaml:3:", u.User.Username())
	want(t, examine(t, patient, file, with(func(u *url.URL) { u.Host = absent })), "database", Failed, "p.yaml:3:", absent)

	name := reader(secret)
	list = examine(t, patient, file, with(func(u *url.URL) { u.User = url.UserPassword(name, secret) }))
	want(t, list, "rights", Failed, "may not SELECT, INSERT, UPDATE on sluice_leases", "GRANT", name)

	missing := examine(t, patient, withoutTable, variables)
	want(t, missing, "database", Failed, "p.yaml:4:", "arrivals")
	if _, err := connect(t, address).Exec("UPDATE sluice_schema SET version = 99, oldest_compatible = 98"); err != nil {
		t.Fatal(err)
	}
	want(t, examine(t, patient, file, variables), "database", Failed, "version 99", "know version 98")
}
