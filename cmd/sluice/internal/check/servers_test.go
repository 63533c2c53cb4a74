package check

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/pipeline"
)

// connect opens connections of a test's own to a server.
func connect(t *testing.T, address string) *sql.DB {
	t.Helper()
	db, err := pipeline.OpenReader(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// execute runs statements. Cleanups call it too, when the test's context has ended.
func execute(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// remains lists what a query finds besides the system's own.
func remains(t *testing.T, db *sql.DB, query string) (names []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
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
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

// testInterrupted interrupts the preparation and each check before the given one. query finds what
// is left behind.
func testInterrupted(t *testing.T, open func(string, Options) (System, error), address, query string, before int) {
	t.Helper()
	db := connect(t, address)
	for at := range before {
		ctx, cancel := context.WithCancel(t.Context())
		s := openDatabase(t, open, address, "interrupted")
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
		if names := remains(t, db, query); err != nil || len(names) > 0 || len(left(report)) > 0 {
			t.Errorf("interrupted at check %d: error %v, remains %v, left %v", at, err, names, left(report))
		}
	}
}

// missingRights returns what to do for each right that is missing.
func missingRights(t *testing.T, s System) map[string]string {
	t.Helper()
	next := map[string]string{}
	for _, r := range s.Rights(t.Context()) {
		if !r.Granted {
			next[r.Name] = r.Next
		}
	}
	return next
}

// refusesPassword checks the rights of a system whose password is wrong.
func refusesPassword(t *testing.T, s System, password string) {
	t.Helper()
	for _, r := range s.Rights(t.Context()) {
		if r.Granted || r.Next == "" || strings.Contains(r.Found, password) {
			t.Errorf("with a wrong password: %+v", r)
		}
	}
}
