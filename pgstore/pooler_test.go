package pgstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
	"github.com/sluice-go/sluice/storetest"
)

// TestPgBouncer: the store works through a PgBouncer with its defaults, which refuses
// the startup parameters of the TCP settings (08P01), in both of its modes.
func TestPgBouncer(t *testing.T) {
	for _, mode := range []string{"session", "transaction"} {
		t.Run(mode, func(t *testing.T) {
			through := pgtest.PgBouncer(t, mode)
			cfg := &pgstore.Config{MaxConns: 4, LockTimeout: calm.LockTimeout}
			if mode == "transaction" {
				t.Run("TxStore", func(t *testing.T) {
					storetest.TestTxStore(t, func(t testing.TB) storetest.TxHarness[pgx.Tx] {
						url := through(pgtest.Database(t))
						return harness(t, open(t, url, cfg), open(t, url, cfg))
					})
				})
			}
			t.Run("Leases", func(t *testing.T) {
				storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore { return open(t, through(pgtest.Database(t)), cfg).Leases() }, nil)
			})
		})
	}
}

// TestPoolerRefuses: a parameter of the user's own that a pooler refuses is named, with
// what to do.
func TestPoolerRefuses(t *testing.T) {
	url := pgtest.PgBouncer(t, "session")(pgtest.Database(t))
	_, err := pgstore.Open(t.Context(), url+"&statement_timeout=5000", nil)
	if err == nil || !strings.Contains(err.Error(), "unsupported startup parameter: statement_timeout (SQLSTATE 08P01): a pooler such as PgBouncer refuses it: remove it from the URL, and set it for the role instead") {
		t.Errorf("got %v", err)
	}
}

// TestPasswordOfEachConnection: each new connection asks for the password, as a token of
// Entra ID is one that lasts an hour.
func TestPasswordOfEachConnection(t *testing.T) {
	url := pgtest.Database(t)
	admin, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	exec := func(format string, args ...any) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), fmt.Sprintf(format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	exec("DROP ROLE IF EXISTS entra")
	exec("CREATE ROLE entra LOGIN PASSWORD 'token-1'")
	exec("GRANT ALL ON SCHEMA public TO entra")
	t.Cleanup(func() { admin.Exec(context.Background(), "DROP OWNED BY entra; DROP ROLE entra") })

	var token atomic.Pointer[string]
	set := func(s string) { token.Store(&s) }
	set("token-1")
	cfg := &pgstore.Config{MaxConns: 2, Password: func(context.Context) (string, error) {
		if *token.Load() == "" {
			return "", fmt.Errorf("no identity here\nwith details")
		}
		return *token.Load(), nil
	}}
	s := open(t, withUser(t, url, "entra"), cfg)
	lost := func() {
		exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'entra'")
		s.Pool().Reset()
	}
	read := func() error { _, err := s.Read(t.Context(), group); return err }
	if err := read(); err != nil {
		t.Fatal(err)
	}

	exec("ALTER ROLE entra PASSWORD 'token-2'") // the first has expired
	if err := read(); err != nil {
		t.Errorf("a connection that is open: %v", err)
	}
	lost()
	set("token-2")
	if err := read(); err != nil {
		t.Errorf("with a fresh token: %v", err)
	}
	if _, err := s.Leases().List(t.Context(), group); err != nil {
		t.Errorf("leases: %v", err)
	}
	lost()
	set("")
	if err := read(); err == nil || !strings.Contains(err.Error(), "get the password: no identity here; with details") {
		t.Errorf("without a token: %v", err)
	}
}

// withUser replaces the user of a URL, without a password.
func withUser(t *testing.T, url, user string) string {
	t.Helper()
	_, rest, ok := strings.Cut(url, "@")
	if !ok {
		t.Fatal("the URL has no user")
	}
	return "postgres://" + user + "@" + rest
}
