package check

import (
	"net/url"
	"testing"
)

const withoutTable = `source: {eventhub: {connection: "${HUB}", hub: flights}}
partitions: all
database: ${DB}
target: {insert: {table: arrivals, columns: {n: sequence}}}
`

// examineServer examines a pipeline in an empty database, with its tables, with a password that is
// wrong, at a wrong address, without its table, and as a user with the right to read only.
func examineServer(t *testing.T, address string, reader func(password string) (name string)) {
	variables := map[string]string{"HUB": flightsHub(t), "DB": address}
	list := examined(t, patient, file, variables)
	want(t, list, "database", OK)
	want(t, list, "tables", OK, "the first start creates them")
	want(t, list, "rights", OK, "connect to the database")
	want(t, list, "clock", OK, "differs by")

	if err := openPipeline(t, variables).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	list = examined(t, patient, file, variables)
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
	want(t, examined(t, patient, file, with(func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), secret) })), "database", Failed, "p.yaml:3:", u.User.Username())
	want(t, examined(t, patient, file, with(func(u *url.URL) { u.Host = absent })), "database", Failed, "p.yaml:3:", absent)

	name := reader(secret)
	list = examined(t, patient, file, with(func(u *url.URL) { u.User = url.UserPassword(name, secret) }))
	want(t, list, "rights", Failed, "may not SELECT, INSERT, UPDATE on sluice_leases", "GRANT", name)

	missing := examined(t, patient, withoutTable, variables)
	want(t, missing, "database", Failed, "p.yaml:4:", "arrivals")
	if _, err := connect(t, address).Exec("UPDATE sluice_schema SET version = 99, oldest_compatible = 98"); err != nil {
		t.Fatal(err)
	}
	want(t, examined(t, patient, file, variables), "database", Failed, "version 99", "know version 98")
}
