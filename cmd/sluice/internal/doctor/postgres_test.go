package doctor

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

func TestPostgres(t *testing.T) {
	url := pgtest.Database(t)
	variables := map[string]string{"HUB": hub(t), "DB": url}
	list := examine(t, patient, file, variables)
	want(t, list, "tables", OK, "the first start creates them")
	want(t, list, "rights", OK, "CREATE tables, if they are missing")
	want(t, list, "clock", OK, "differs by")
	want(t, examine(t, Examiner{Within: patient.Within, Now: func() time.Time { return time.Now().Add(time.Hour) }}, file, variables), "clock", Failed, "PostgreSQL")

	if err := open(t, variables).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{
		"DROP ROLE IF EXISTS doctor_reader", "CREATE ROLE doctor_reader LOGIN PASSWORD '" + secret + "'",
		"GRANT SELECT ON ALL TABLES IN SCHEMA public TO doctor_reader",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	scheme, rest, _ := strings.Cut(url, "://")
	_, host, _ := strings.Cut(rest, "@")
	reader := map[string]string{"HUB": variables["HUB"], "DB": scheme + "://doctor_reader:" + secret + "@" + host}
	want(t, examine(t, patient, file, reader), "rights", Failed, "may not SELECT, INSERT, UPDATE on sluice_leases", "GRANT")
	if _, err := db.Exec("DROP OWNED BY doctor_reader; DROP ROLE doctor_reader"); err != nil {
		t.Fatal(err)
	}
	want(t, examine(t, patient, file, reader), "database", Failed, "doctor_reader")

	if _, err := db.Exec("UPDATE sluice_schema SET version = 99, oldest_compatible = 98"); err != nil {
		t.Fatal(err)
	}
	want(t, examine(t, patient, file, variables), "database", Failed, "version 99", "knows version 98")
}
