package sqlquery_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sluice-go/sluice/autoscale/source/sqlquery"
)

type query struct{ text, want string }

// check asks a database with a table jobs of the rows open, open, done.
func check(t *testing.T, db *sql.DB, queries []query) {
	t.Helper()
	for _, statement := range []string{"CREATE TABLE jobs (state varchar(9), size numeric(9,1))", "INSERT INTO jobs VALUES ('open', 2.5), ('open', 7), ('done', 1)"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	queries = append(queries,
		query{"SELECT count(*) FROM jobs WHERE state = 'open'", "2"},
		query{"SELECT count(*) FROM jobs WHERE state = 'none'", "0"},
		query{"SELECT sum(size) FROM jobs", "10.5"},
		query{"SELECT sum(size) FROM jobs WHERE state = 'none'", "it returned NULL"},
		query{"SELECT size FROM jobs WHERE state = 'none'", "it returned no row"},
		query{"SELECT size FROM jobs", "more than one row"},
		query{"SELECT count(*), 1 FROM jobs", "more than one column"},
		query{"SELECT 'secret'", "not a number"},
		query{"SELECT count(*) FROM no_such_table", "no_such_table"},
	)
	for _, q := range queries {
		r, err := sqlquery.New(db, q.text, &sqlquery.Config{Name: "waiting jobs"}).Read(t.Context())
		got := fmt.Sprint(r.Value)
		if err != nil {
			if got = err.Error(); !strings.HasPrefix(got, "waiting jobs: ") || strings.Contains(got, "secret") {
				t.Errorf("%s: %s", q.text, got)
			}
		}
		if !strings.Contains(got, q.want) {
			t.Errorf("%s: %s, want %s", q.text, got, q.want)
		}
	}
}

func TestSQLite(t *testing.T) {
	db, err := sql.Open("sqlite", t.TempDir()+"/jobs.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	check(t, db, nil)
	endless(t, db, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")
}

// endless sees that a query ends with its context.
func endless(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := sqlquery.New(db, query, nil).Read(ctx)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("a query without end gave %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("a query without end goes on after its time")
	}
}
