package sqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// mssqlRights are the statements of docs/security.md that give a login its rights.
func mssqlRights(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/security.md")
	suite.NoError(t, "read the page", err)
	_, text, _ := strings.Cut(string(page), "\n## SQL Server and Azure SQL\n")
	_, text, found := strings.Cut(text, "```sql\n")
	text, _, _ = strings.Cut(text, "```")
	if !found {
		t.Fatal("docs/security.md has no rights for SQL Server")
	}
	return strings.Split(strings.TrimSpace(text), "\n")
}

// TestSQLServerRights: a consumer needs no other rights than those of docs/security.md, and has no
// others.
func TestSQLServerRights(t *testing.T) {
	const password = "Canary-4711-canary"
	address := sqlservertest.Database(t)
	owner := openMSSQL(t, address, nil)
	mssqlExec(t, owner.DB(), "CREATE TABLE flights (hub_partition nvarchar(9), delay int CHECK (delay < 1000))")
	// The login is the server's, and may be there from an earlier run.
	mssqlExec(t, owner.DB(), "IF SUSER_ID(N'sluice_app') IS NOT NULL DROP LOGIN sluice_app")
	mssqlExec(t, owner.DB(), "CREATE LOGIN sluice_app WITH PASSWORD = '"+password+"'")
	for _, statement := range mssqlRights(t) {
		mssqlExec(t, owner.DB(), statement)
	}
	t.Cleanup(func() {
		// Its user goes with the database. The server may take a moment to end its sessions.
		suite.Eventually(t, "the login is dropped", func() bool {
			_, err := owner.DB().Exec("DROP LOGIN sluice_app")
			return err == nil
		})
	})
	u, err := url.Parse(address)
	suite.NoError(t, "read the URL", err)
	u.User = url.UserPassword("sluice_app", password)
	suite.NoError(t, "check", CheckSQLServer(t.Context(), u.String(), nil))
	s, err := OpenSQLServer(t.Context(), u.String(), nil)
	suite.NoError(t, "open", err)
	defer func() { suite.NoError(t, "close", s.Close()) }()

	for _, rows := range []int{1, 150} {
		suite.NoError(t, "insert", inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
			list := make([][]any, rows)
			for i := range list {
				list[i] = []any{"0", i}
			}
			return tx.Insert(ctx, "flights", []string{"hub_partition", "delay"}, list)
		}))
	}
	err = inNextEpoch(t, s, func(context.Context, *Tx) error { return errors.New("the handler's own") })
	if failed := (*driver.HandlerError)(nil); !errors.As(err, &failed) {
		t.Errorf("a handler's error: %v", err)
	}
	list, err := s.Read(t.Context(), group)
	suite.NoError(t, "read", err)
	lease := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: list[0].Epoch}
	suite.NoError(t, "step with dead letters and causation IDs", s.Commit(t.Context(), driver.Step{
		Lease: lease, From: driver.Unset, To: positionAt(99), SettleIncarnation: "1", DeadLetters: mssqlLetters(parkRows),
	}, nil))
	one := mssqlLetters(1)
	one[0].Event.Sequence = 1000
	suite.NoError(t, "park", s.Park(t.Context(), one))
	n, err := s.Redrive(t.Context(), group, driver.DeadLetterFilter{Key: "k"}, time.Time{})
	if n != parkRows+1 || err != nil {
		t.Errorf("redriven %d, %v", n, err)
	}
	due, err := s.Due(t.Context(), group, "0", 100)
	if len(due) != parkRows+1 || err != nil {
		t.Errorf("%d dead letters are due, %v", len(due), err)
	}
	suite.NoError(t, "settle", s.Settle(t.Context(), group, []int64{due[0].ID}, due[1:2]))
	_, err = s.Leases().Acquire(t.Context(), group, "0", "a", time.Minute, 0)
	suite.NoError(t, "acquire", err)
	_, err = s.Leases().List(t.Context(), group)
	suite.NoError(t, "list", err)

	for _, statement := range []string{
		"CREATE TABLE t (n int)", "DROP TABLE sluice_seen", "DELETE FROM sluice_checkpoints", "DELETE FROM sluice_leases",
		"UPDATE sluice_schema SET version = 1", "TRUNCATE TABLE sluice_dead_letters", "DELETE FROM flights", "SELECT * FROM effects",
	} {
		if err := execute(t.Context(), s.DB(), statement); err == nil {
			t.Errorf("%s: allowed", statement)
		}
	}
}

// mssqlLetters are n dead letters.
func mssqlLetters(n int) []driver.DeadLetter {
	list := make([]driver.DeadLetter, n)
	for i := range list {
		list[i] = driver.DeadLetter{
			Group: group, Incarnation: "1", Event: driver.Event{Partition: "0", Sequence: int64(i), Key: "k", Body: []byte("x")},
			HasBody: true, Error: "wrong", Status: driver.StatusDead,
		}
	}
	return list
}

// TestSQLServerCheck: what prevents a start is found without changing anything, in one line that
// says what to do, without the password.
func TestSQLServerCheck(t *testing.T) {
	address := sqlservertest.Database(t)
	suite.NoError(t, "check an empty database", CheckSQLServer(t.Context(), address, nil))
	connector, err := SQLServerConnector(address, nil)
	suite.NoError(t, "make a connector", err)
	db := sql.OpenDB(connector)
	defer db.Close()
	var tables int
	suite.NoError(t, "count the tables", db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM INFORMATION_SCHEMA.TABLES").Scan(&tables))
	if tables != 0 {
		t.Errorf("the check has made %d tables", tables)
	}
	u, err := url.Parse(address)
	suite.NoError(t, "read the URL", err)
	password, _ := u.User.Password()
	edited := func(edit func(u *url.URL, q url.Values)) string {
		c, q := *u, u.Query()
		edit(&c, q)
		c.RawQuery = q.Encode()
		return c.String()
	}
	for name, c := range map[string]struct {
		address string
		words   []string
	}{
		"password": {edited(func(u *url.URL, _ url.Values) { u.User = url.UserPassword("sa", "canary") }), []string{"18456): check user and password"}},
		"database": {edited(func(_ *url.URL, q url.Values) { q.Set("database", "nowhere") }), []string{"create the database", "or correct its name"}},
		"port":     {edited(func(u *url.URL, _ url.Values) { u.Host = "127.0.0.1:1" }), []string{"connection refused: check host and port, and whether the server runs"}},
		"TLS":      {edited(func(_ *url.URL, q url.Values) { q.Del("TrustServerCertificate") }), []string{"add certificate=FILE to the URL"}},
	} {
		t.Run(name, func(t *testing.T) {
			cannotStart(t, c.address, password, c.words, CheckSQLServer, OpenSQLServer, func(address string) (sqldriver.Connector, error) { return SQLServerConnector(address, nil) })
		})
	}
}
