//go:build postgres

package verify

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

func init() { servers = append(servers, pgtest.Around) }

func openPostgres(t *testing.T, url string) *databaseSystem {
	t.Helper()
	s, err := OpenPostgres(url, Options{ID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s.(*databaseSystem)
}

// execute runs statements on a connection of its own.
func execute(t *testing.T, url string, statements ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // it also cleans up
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// remains lists what is in the database besides the system's own.
func remains(t *testing.T, url string) (names []string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), `
		SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname LIKE 'sluice%'
		UNION ALL SELECT 'table ' || relname FROM pg_class WHERE relname LIKE '%sluice%' OR relname LIKE '%verify%'`)
	if err != nil {
		t.Fatal(err)
	}
	names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestPostgresHolds(t *testing.T) {
	t.Parallel()
	db, err := pgtest.New(t, &pgtest.Config{Durable: true}).CreateDatabase(t.Context(), "verify")
	if err != nil {
		t.Fatal(err)
	}
	allHold(t, openPostgres(t, db), nil)
	if names := remains(t, db); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestBrokenPostgresSessions(t *testing.T) {
	t.Parallel()
	testBrokenSessions(t, openPostgres(t, pgtest.Database(t)))
}

// The number of the session that is ended is read within its transaction: a pooler may run what comes
// before in a session that is another program's afterwards.
func TestPostgresEndsItsOwnSession(t *testing.T) {
	t.Parallel()
	s := prepared(t, openPostgres(t, pgtest.Database(t)))
	own := *s.words
	// It divides by zero outside of a transaction that has written.
	own.session = "SELECT pg_backend_pid() / (pg_current_xact_id_if_assigned() IS NOT NULL)::int"
	expect(t, &databaseSystem{database: s.database, opts: s.opts, words: &own}, "db.killed", Held)
}

// Each interruption leaves nothing.
func TestInterruptedPostgres(t *testing.T) {
	t.Parallel()
	for at := range 8 {
		db := pgtest.Database(t)
		ctx, cancel := context.WithCancel(t.Context())
		s := openPostgres(t, db)
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
		if names := remains(t, db); err != nil || len(names) > 0 || len(report.Left) > 0 {
			t.Errorf("interrupted at check %d: error %v, remains %v, left %v", at, err, names, report.Left)
		}
	}
}

// The server's settings are looked at.
func TestPostgresNotDurable(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, db, fmt.Sprintf("ALTER DATABASE %s SET synchronous_commit = off", pgx.Identifier{strings.Trim(u.Path, "/")}.Sanitize()))
	s := openPostgres(t, db)
	granted(t, s)
	made := &Ledger{}
	if err := s.Prepare(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	defer made.Remove(t.Context())
	expect(t, s, "db.durable", Differed)
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
	execute(t, db,
		"CREATE ROLE "+name+" LOGIN PASSWORD 'secret'",
		"CREATE TABLE public.sluice_leases (id int)",
		"GRANT SELECT ON public.sluice_leases TO "+name,
		"ALTER ROLE "+name+" SET default_transaction_read_only = on")
	t.Cleanup(func() {
		execute(t, db, "DROP OWNED BY "+name, "DROP ROLE "+name)
	})
	poor := *u
	poor.User = url.UserPassword(role, "secret")
	missing := map[string]string{}
	s := openPostgres(t, poor.String())
	for _, r := range s.Rights(t.Context()) {
		if !r.Granted {
			missing[r.Name] = r.Next
		}
	}
	for _, want := range []string{"write to the database", "CREATE a schema and tables", "SELECT, INSERT, UPDATE on sluice_leases"} {
		if missing[want] == "" {
			t.Errorf("%s is not named, or without what to do: %v", want, missing)
		}
	}
	if len(missing) != 3 {
		t.Errorf("missing %v", missing)
	}
	poor.User = url.UserPassword(role, "wrong")
	for _, r := range openPostgres(t, poor.String()).Rights(t.Context()) {
		if r.Granted || strings.Contains(r.Found, "wrong") {
			t.Errorf("with a wrong password: %+v", r)
		}
	}
}
