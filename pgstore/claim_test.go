package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	neturl "net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
)

// A claim gets past an owner that the network has cut off in the middle of a
// COPY: the server waits for more rows and does not see it as idle.
func TestClaimEndsCopy(t *testing.T) {
	proxy, s, direct := proxied(t)
	a := lease("a", 1)
	claim(t, s, a)
	copying, goOn := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- s.Commit(t.Context(), driver.Step{Lease: a, From: driver.Unset, To: positionAt(1)}, func(ctx context.Context, tx pgx.Tx) error {
			n := 0
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"key"}, pgx.CopyFromFunc(func() ([]any, error) {
				if n++; n == 10_000 {
					close(copying)
					<-goOn
				}
				if n > 10_000 {
					return nil, nil
				}
				return []any{fmt.Sprint("a row of some length, so that it is sent: ", n)}, nil
			}))
			return err
		})
	}()
	<-copying
	proxy.Stall()
	b := lease("b", 2)
	if p := claim(t, direct, b); p.Position != driver.Unset || p.Owner != "b" {
		t.Errorf("claimed %+v, want it unset", p)
	}
	if err := commit(t.Context(), direct, b, driver.Unset, positionAt(1), "b"); err != nil {
		t.Error(err)
	}
	close(goOn)
	proxy.Resume()
	outage(t, <-done)
	expect(t, direct, positionAt(1), "b")
}

// hold keeps a transaction open on the checkpoint until the test ends, or the
// server ends it. It returns the session's end.
func hold(t *testing.T, s *pgstore.Store, l driver.Lease) <-chan error {
	t.Helper()
	held, release := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		done <- s.Commit(context.Background(), driver.Step{Lease: l, From: driver.Unset, To: positionAt(1)}, func(context.Context, pgx.Tx) error {
			close(held)
			<-release
			return errors.New("not this time")
		})
	}()
	t.Cleanup(func() { close(release); <-over })
	<-held
	return done
}

// A claim ends the session that holds the checkpoint within the claim's own time, whatever the lock
// timeout is.
func TestClaimWithinItsTime(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, &pgstore.Config{LockTimeout: time.Hour})
	a := lease("a", 1)
	claim(t, s, a)
	hold(t, s, a)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if p, err := s.Claim(ctx, lease("b", 2), "1"); err != nil || p.Owner != "b" {
		t.Errorf("claimed %+v, %v", p, err)
	}
}

// One that has lost its lease does not end the transaction of the one that has
// it now.
func TestClaimSparesTheBetter(t *testing.T) {
	url := pgtest.Database(t)
	s, rival := open(t, url, quick), open(t, url, quick)
	createEffects(t, s)
	claim(t, s, lease("a", 1))
	b := lease("b", 2)
	claim(t, s, b)
	err := s.Commit(t.Context(), driver.Step{Lease: b, From: driver.Unset, To: positionAt(1)}, func(ctx context.Context, tx pgx.Tx) error {
		for _, l := range []driver.Lease{lease("a", 1), lease("a", 2)} {
			_, err := rival.Claim(ctx, l, "1")
			if f, found := errors.AsType[*driver.FencedError](err); !found || f.Owner != "b" || f.Epoch != 2 {
				t.Errorf("claim for %s in epoch %d: %v, want a FencedError that names b", l.Owner, l.Epoch, err)
			}
		}
		return put(ctx, tx, "1")
	})
	if err != nil {
		t.Error(err)
	}
	expect(t, s, positionAt(1), "1")
}

// Claims that wait behind the same transaction do not end each other.
func TestClaimsTogether(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, quick)
	createEffects(t, s)
	a := lease("a", 1)
	claim(t, s, a)
	hold(t, s, a)
	const n = 6
	errs := make(chan error)
	for i := range n {
		other := open(t, url, quick)
		go func() {
			_, err := other.Claim(t.Context(), lease(fmt.Sprint("b", i), int64(2+i)), "1")
			errs <- err
		}()
	}
	wins := 0
	for range n {
		switch err := <-errs; {
		case err == nil:
			wins++
		case !errors.Is(err, driver.ErrFenced):
			t.Errorf("claim: %v, want that it succeeds or is fenced", err)
		}
	}
	if list, err := s.Read(t.Context(), group); err != nil || len(list) != 1 || list[0].Epoch != 1+n {
		t.Errorf("checkpoints are %+v, %v; want the highest epoch, %d", list, err, 1+n)
	}
	if wins == 0 {
		t.Error("no claim succeeded")
	}
}

func TestResetEndsTransaction(t *testing.T) {
	s := open(t, pgtest.Database(t), quick)
	a := lease("a", 1)
	claim(t, s, a)
	hold(t, s, a)
	epoch, err := s.Reset(t.Context(), group, "0", "1", positionAt(7), "set")
	if err != nil || epoch != 2 {
		t.Errorf("reset: epoch %d, %v", epoch, err)
	}
}

// A step of the same owner that finds the row taken, by a transaction of its
// own that it has lost sight of, gives up soon; the claim that follows clears
// the way.
func TestStepDoesNotWaitForever(t *testing.T) {
	url := pgtest.Database(t)
	s, again := open(t, url, quick), open(t, url, quick)
	createEffects(t, s)
	a := lease("a", 1)
	claim(t, s, a)
	hold(t, s, a)
	outage(t, commit(t.Context(), again, a, driver.Unset, positionAt(1), "1"))
	claim(t, again, a)
	if err := commit(t.Context(), again, a, driver.Unset, positionAt(1), "1"); err != nil {
		t.Error(err)
	}
	expect(t, again, positionAt(1), "1")
}

// weakRole makes a role without rights of its own on other sessions, and returns a URL that
// connects as it.
func weakRole(t *testing.T, s *pgstore.Store, url string) string {
	t.Helper()
	if _, err := s.Pool().Exec(t.Context(), `
		DROP ROLE IF EXISTS weak;
		CREATE ROLE weak LOGIN PASSWORD 'weak';
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO weak`); err != nil {
		t.Fatal(err)
	}
	u, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	u.User = neturl.UserPassword("weak", "weak")
	return u.String()
}

// Claims name the session of another user that is in the way. Those that wait together do not end
// each other instead.
func TestClaimMayNot(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, nil)
	asWeak := weakRole(t, s, url)
	a := lease("a", 1)
	claim(t, s, a)
	hold(t, s, a)
	const n = 4
	errs := make(chan error)
	for i := range n {
		weak := open(t, asWeak, nil) // needs no right to create anything
		go func() {
			_, err := weak.Claim(t.Context(), lease("b", int64(2+i)), "1")
			errs <- err
		}()
	}
	named := false
	for range n {
		err := <-errs
		outage(t, err)
		if e, found := errors.AsType[*pgconn.PgError](err); !found || e.Code != "55P03" {
			t.Errorf("error is %v, want that of a lock", err)
		}
		if err != nil && strings.Contains(err.Error(), `of user sluice (application "sluice") holds the checkpoint`) {
			named = true
		}
	}
	if !named {
		t.Error("no error names the user in the way")
	}
}

// A claim does not end the session of another user, although it may. It waits for a bounded time,
// and says who is in the way and what to do.
func TestClaimSparesOtherUsers(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, nil)
	claim(t, s, lease("a", 1))
	conn, err := pgx.Connect(t.Context(), weakRole(t, s, url)+"&application_name=report")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM sluice_checkpoints FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	for bound, s := range map[time.Duration]*pgstore.Store{time.Hour: s, 8 * time.Second: open(t, url, patient)} { // the lock's time ends it, or the claim's
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		_, err = s.Claim(ctx, lease("b", 2), "1")
		cancel()
		outage(t, err)
		for _, part := range []string{
			fmt.Sprintf(`session %d of user weak (application "report") holds the checkpoint`, conn.PgConn().PID()),
			fmt.Sprintf("SELECT pg_terminate_backend(%d)", conn.PgConn().PID()),
		} {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("within %v: error is %q, want it to say %q", bound, err, part)
			}
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Errorf("the other user's transaction: %v", err)
	}
	claim(t, s, lease("b", 2))
}

// The epoch asked for counts as well for a partition that was leased before.
func TestLeaseAbove(t *testing.T) {
	leases := open(t, pgtest.Database(t), nil).Leases()
	for _, above := range []int64{0, 99, 5} {
		l, err := leases.Acquire(t.Context(), group, "0", "a", time.Minute, above)
		if err != nil || l.Epoch <= above {
			t.Errorf("epoch %d above %d, %v", l.Epoch, above, err)
		}
	}
}

// Handlers that use up the connections of the steps don't keep leases from
// being renewed, nor a step that is fenced from saying so.
func TestConnectionsUsedUp(t *testing.T) {
	s := open(t, pgtest.Database(t), &pgstore.Config{MaxConns: 1})
	l, err := s.Leases().Acquire(t.Context(), group, "0", "a", time.Minute, 0)
	if err != nil {
		t.Fatal(err)
	}
	claim(t, s, l)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = s.Commit(ctx, driver.Step{Lease: l, From: driver.Unset, To: positionAt(1)}, func(ctx context.Context, tx pgx.Tx) error {
		return s.Leases().Renew(ctx, l, time.Minute)
	})
	if err != nil {
		t.Error(err)
	}
	if err := s.Commit(ctx, driver.Step{Lease: l, From: driver.Unset, To: positionAt(1)}, nil); !errors.Is(err, driver.ErrFenced) {
		t.Errorf("error is %v, want ErrFenced", err)
	}
}

// New leaves the caller's pool open.
func TestNew(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s, err := pgstore.New(t.Context(), pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Pool() != pool {
		t.Error("the store works on another pool")
	}
	s.Close()
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("the pool after the store's end: %v", err)
	}
}

// Connect looks and creates nothing.
func TestConnect(t *testing.T) {
	pool, err := pgstore.Connect(t.Context(), pgtest.Database(t), &pgstore.Config{MaxConns: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var n int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE tablename LIKE 'sluice%'`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d tables, %v", n, err)
	}
	if c := pool.Config(); c.MaxConns != 3 {
		t.Errorf("at most %d connections, want 3", c.MaxConns)
	}
}

// What prevents a start is one line that names server, database, cause and the next step.
func TestStartErrors(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, nil)
	name := s.Pool().Config().ConnConfig.Database
	if _, err := s.Pool().Exec(t.Context(), fmt.Sprintf(`
		DROP ROLE IF EXISTS stranger, crowd;
		CREATE ROLE stranger LOGIN PASSWORD 'secret';
		CREATE ROLE crowd LOGIN PASSWORD 'secret' CONNECTION LIMIT 0;
		REVOKE CONNECT ON DATABASE %s FROM PUBLIC;
		GRANT CONNECT ON DATABASE %[1]s TO crowd`, name)); err != nil {
		t.Fatal(err)
	}
	u, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	as := func(user string) string {
		c := *u
		c.User = neturl.UserPassword(user, "secret")
		return c.String()
	}
	for address, want := range map[string]string{
		as("stranger"): "(SQLSTATE 42501): grant the user CONNECT on the database",
		as("crowd"):    "(SQLSTATE 53300): raise max_connections or the role's limit, or lower pool_max_conns",
		strings.Replace(url, "/"+name, "/nowhere", 1):                      "(SQLSTATE 3D000): create the database, or correct its name",
		strings.Replace(url, "sslmode=disable", "sslmode=require", 1):      "enable TLS in the server (ssl = on), or correct sslmode",
		url + "&target_session_attrs=read-only":                            "check which server is the primary",
		url + "&search_path=nowhere":                                       "name one",
		strings.Replace(url, "/"+name, "/"+name, 1) + "&no_such_setting=1": "(SQLSTATE 42704): correct the parameter in the URL",
	} {
		_, err := pgstore.Open(t.Context(), address, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), u.Host) || !strings.Contains(err.Error(), "database ") ||
			strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
			t.Errorf("error is %v, want one line that names server and database, with %q", err, want)
		}
	}
}

func TestWrongPassword(t *testing.T) {
	u, err := neturl.Parse(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	u.User = neturl.UserPassword("sluice", "n0t-the-password")
	_, err = pgstore.Open(t.Context(), u.String(), nil)
	if err == nil {
		t.Fatal("opened with a wrong password")
	}
	for _, part := range []string{u.Host, "database test_", "as sluice", "password authentication failed", "28P01): check user and password"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error is %q, want it to name %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "n0t-the") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error is %q, want one line without the password", err)
	}
}
