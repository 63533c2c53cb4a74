package sqlstore_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/autoscaletest"
	"github.com/sluice-go/sluice/autoscale/sqlstore"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

func openPostgres(t testing.TB, url string, cfg *sqlstore.PostgresConfig) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.OpenPostgres(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestPostgresStore(t *testing.T) {
	autoscaletest.TestStore(t, func(t testing.TB) autoscale.Store { return openPostgres(t, pgtest.Database(t), nil) })
}

func TestPostgresQueue(t *testing.T) {
	url := pgtest.Database(t)
	autoscaletest.TestQueue(t, func(t testing.TB, lock time.Duration) autoscaletest.Queue {
		s := openPostgres(t, url, nil)
		q := s.Queue(t.Name(), lock)
		return autoscaletest.Queue{Queue: q, DeadLetters: q.DeadLetters}
	})
}

// TestPostgresPooler: the store works through a PgBouncer that gives each transaction
// another connection.
func TestPostgresPooler(t *testing.T) {
	through := pgtest.PgBouncer(t, "transaction")
	autoscaletest.TestStore(t, func(t testing.TB) autoscale.Store { return openPostgres(t, through(pgtest.Database(t)), nil) })
}

// TestPostgresTogether: several processes that start at the same time on an empty database
// create its tables once, and of their leases one is taken.
func TestPostgresTogether(t *testing.T) {
	url := pgtest.Database(t)
	var starting sync.WaitGroup
	stores := make([]*sqlstore.Store, 5)
	for i := range stores {
		starting.Go(func() {
			var err error
			if stores[i], err = sqlstore.OpenPostgres(t.Context(), url, &sqlstore.PostgresConfig{Schema: "scaling"}); err != nil {
				t.Errorf("start %d: %v", i, err)
			}
		})
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	taken := 0
	for i, s := range stores {
		defer s.Close()
		held, err := s.TakeLease(t.Context(), "r", autoscale.Lease{Owner: string(rune('a' + i)), Duration: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if held == nil {
			taken++
		}
	}
	if taken != 1 {
		t.Errorf("%d of %d have the lease", taken, len(stores))
	}
}

// TestPostgresRefuses: errors are one line that names the server and what to do, without
// the password.
func TestPostgresRefuses(t *testing.T) {
	url := pgtest.Database(t)
	head, host, _ := strings.Cut(url, "@")
	for bad, want := range map[string]string{
		head + "-canary@" + host:                            "check user and password",
		"postgres://u:canary@127.0.0.1:1/d?sslmode=disable": "connect to PostgreSQL at 127.0.0.1:1, database d, as u",
		"canary": "PostgreSQL URL: ",
	} {
		_, err := sqlstore.OpenPostgres(t.Context(), bad, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want … %s", err, want)
		}
	}
	s := openPostgres(t, url, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Load(ctx, "r"); err == nil || !strings.Contains(err.Error(), "load state of r: state in PostgreSQL at ") || strings.Contains(err.Error(), "canary") {
		t.Errorf("a call that is cancelled: %v", err)
	}
}
