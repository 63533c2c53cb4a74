//go:build mariadb || sqlserver

package sqlstore

import (
	"context"
	"net/url"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
	"github.com/sluice-go/sluice/storetest"
)

// withTables creates the tables of the tests in the database of a store that was opened.
func withTables(t testing.TB, s *Store, err error, setUp []string) *Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	for _, statement := range setUp {
		if _, err := s.DB().ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// linkTo makes the URL of a database lead through a link.
func linkTo(t testing.TB, address string) (link *tcplink.Link, through string) {
	u, err := url.Parse(address)
	suite.NoError(t, "read the URL", err)
	link = tcplink.NewTest(t, u.Host)
	u.Host = link.Addr()
	return link, u.String()
}

// lockedBy locks every checkpoint by a statement, as another program does.
func lockedBy(s *Store, statement string) storetest.Silence {
	return func(t testing.TB) (end func()) {
		tx, err := s.DB().BeginTx(context.WithoutCancel(t.Context()), nil)
		suite.NoError(t, "begin", err)
		_, err = tx.Exec(statement)
		suite.NoError(t, "lock the checkpoints", err)
		return func() { suite.NoError(t, "unlock the checkpoints", tx.Rollback()) }
	}
}
