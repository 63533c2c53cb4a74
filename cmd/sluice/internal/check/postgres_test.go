package check

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

// postgresRemains finds what is in a database besides the system's own.
const postgresRemains = `
	SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname LIKE 'sluice%'
	UNION ALL SELECT 'table ' || relname FROM pg_class WHERE relname LIKE '%sluice%' OR relname IN ('check_effects', 'check_rows')`

func TestPostgresHolds(t *testing.T) {
	t.Parallel()
	db, err := pgtest.New(t, &pgtest.Config{Durable: true}).CreateDatabase(t.Context(), "checked")
	if err != nil {
		t.Fatal(err)
	}
	allHold(t, openDatabase(t, OpenPostgres, db, "test"), nil)
	if names := remains(t, connect(t, db), postgresRemains); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestBrokenPostgresSessions(t *testing.T) {
	t.Parallel()
	testBrokenSessions(t, openDatabase(t, OpenPostgres, pgtest.Database(t), "test"))
}

// The number of the session that is ended is read within its transaction: a pooler may run what
// comes before in a session that is another program's afterwards.
func TestPostgresEndsItsOwnSession(t *testing.T) {
	t.Parallel()
	s := prepared(t, openDatabase(t, OpenPostgres, pgtest.Database(t), "test"))
	own := *s.words
	// It divides by zero outside of a transaction that has written.
	own.session = "SELECT pg_backend_pid() / (pg_current_xact_id_if_assigned() IS NOT NULL)::int"
	expect(t, &databaseSystem{database: s.database, opts: s.opts, words: &own}, "db.killed", OK)
}

// A setting of a check does not stay with a pooler's session, which other programs use after it.
func TestPostgresPoolerKeepsNoSetting(t *testing.T) {
	t.Parallel()
	through := pgtest.PgBouncer(t, "transaction")(pgtest.Database(t))
	s := prepared(t, openDatabase(t, OpenPostgres, through, "test"))
	for _, check := range []string{"db.timeout", "db.killed"} {
		expect(t, s, check, OK)
	}
	db := connect(t, through)
	for range 5 { // each in a session of its own
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		var limit string
		if err := tx.QueryRowContext(t.Context(), "SELECT current_setting('lock_timeout')").Scan(&limit); err != nil || limit != "0" {
			t.Errorf("lock_timeout of a pooled session is %s, %v; want that of the server, 0", limit, err)
		}
	}
}

// Each interruption leaves nothing.
func TestInterruptedPostgres(t *testing.T) {
	t.Parallel()
	testInterrupted(t, OpenPostgres, pgtest.Database(t), postgresRemains, 8)
}

// The server's settings are looked at.
func TestPostgresNotDurable(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, connect(t, db), fmt.Sprintf("ALTER DATABASE %s SET synchronous_commit = off", pgx.Identifier{strings.Trim(u.Path, "/")}.Sanitize()))
	expect(t, prepared(t, openDatabase(t, OpenPostgres, db, "test")), "db.durable", Failed)
}

// Each right that is missing is named, with what to do, and nothing is created.
func TestPostgresRights(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	role := "poor_" + strings.Trim(u.Path, "/")
	name := pgx.Identifier{role}.Sanitize()
	admin := connect(t, db)
	execute(t, admin,
		"CREATE ROLE "+name+" LOGIN PASSWORD 'secret'",
		"CREATE TABLE public.sluice_leases (id int)",
		"GRANT SELECT ON public.sluice_leases TO "+name,
		"ALTER ROLE "+name+" SET default_transaction_read_only = on")
	t.Cleanup(func() {
		execute(t, admin, "DROP OWNED BY "+name, "DROP ROLE "+name)
	})
	poor := *u
	poor.User = url.UserPassword(role, "secret")
	missing := missingRights(t, openDatabase(t, OpenPostgres, poor.String(), "test"))
	for _, want := range []string{"write to the database", "CREATE a schema and tables", "SELECT, INSERT, UPDATE on sluice_leases"} {
		if missing[want] == "" {
			t.Errorf("%s is not named, or without what to do: %v", want, missing)
		}
	}
	if len(missing) != 3 {
		t.Errorf("missing %v", missing)
	}
	poor.User = url.UserPassword(role, "wrong")
	refusesPassword(t, openDatabase(t, OpenPostgres, poor.String(), "test"), "wrong")
}
