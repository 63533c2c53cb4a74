package check

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

func TestConnectPostgres(t *testing.T) {
	url := pgtest.Database(t)
	variables := map[string]string{"HUB": flightsHub(t), "DB": url}
	list := examined(t, patient, file, variables)
	want(t, list, "tables", OK, "the first start creates them")
	want(t, list, "rights", OK, "CREATE tables, if they are missing")
	want(t, list, "clock", OK, "differs by")
	want(t, examined(t, Examiner{Limit: patient.Limit, Now: func() time.Time { return time.Now().Add(time.Hour) }}, file, variables), "clock", Failed, "PostgreSQL")

	if err := openPipeline(t, variables).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{
		"DROP ROLE IF EXISTS check_reader", "CREATE ROLE check_reader LOGIN PASSWORD '" + secret + "'",
		"GRANT SELECT ON ALL TABLES IN SCHEMA public TO check_reader",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	scheme, rest, _ := strings.Cut(url, "://")
	_, host, _ := strings.Cut(rest, "@")
	reader := map[string]string{"HUB": variables["HUB"], "DB": scheme + "://check_reader:" + secret + "@" + host}
	want(t, examined(t, patient, file, reader), "rights", Failed, "may not SELECT, INSERT, UPDATE on sluice_leases", "GRANT")
	if _, err := db.Exec("DROP OWNED BY check_reader; DROP ROLE check_reader"); err != nil {
		t.Fatal(err)
	}
	want(t, examined(t, patient, file, reader), "database", Failed, "check_reader")

	if _, err := db.Exec("UPDATE sluice_schema SET version = 99, oldest_compatible = 98"); err != nil {
		t.Fatal(err)
	}
	want(t, examined(t, patient, file, variables), "database", Failed, "version 99", "knows version 98")
}
