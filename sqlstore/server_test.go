package sqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
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

func execute(ctx context.Context, q querier, statement string, args ...any) error {
	_, err := q.ExecContext(ctx, statement, args...)
	return err
}

// written returns the effects that are in the database.
func written(ctx context.Context, s *Store) ([]string, error) {
	return collect(ctx, s.reader, func(key *string) []any { return []any{key, new(any)} }, "SELECT * FROM effects ORDER BY 1", nil)
}

// inNextEpoch is a step of a handler on a partition that is claimed in the next epoch, at its
// start.
func inNextEpoch(t *testing.T, s *Store, fn func(ctx context.Context, tx *Tx) error) error {
	t.Helper()
	return s.Commit(t.Context(), driver.Step{Lease: nextEpoch(t, s), From: driver.Unset, To: positionAt(9)}, fn)
}

// nextEpoch claims partition 0 in a new epoch, with nothing done.
func nextEpoch(t *testing.T, s *Store) driver.Lease {
	t.Helper()
	epoch, err := s.Reset(t.Context(), group, "0", "1", driver.Unset, "set")
	suite.NoError(t, "reset", err)
	lease := leaseOf("0", "a", epoch+1)
	_, err = s.Claim(t.Context(), lease, "1")
	suite.NoError(t, "claim", err)
	return lease
}

// mustWriteNothing fails the test if a step inNextEpoch has written something.
func mustWriteNothing(t *testing.T, what string, s *Store) {
	t.Helper()
	if keys, err := written(t.Context(), s); err != nil || len(keys) > 0 {
		t.Errorf("%s: effects %q, %v: written although the step failed", what, keys, err)
	}
	if list, err := s.Read(t.Context(), group); err != nil || len(list) != 1 || list[0].Position != driver.Unset {
		t.Errorf("%s: checkpoints %v, %v: moved although the step failed", what, list, err)
	}
}

// cannotStart fails the test unless what opens a database fails in one line with the words, without
// a password.
func cannotStart(t *testing.T, address, password string, words []string, check func(context.Context, string, *ServerConfig) error,
	open func(context.Context, string, *ServerConfig) (*Store, error), connectorOf func(string) (sqldriver.Connector, error)) {
	t.Helper()
	_, openErr := open(t.Context(), address, nil)
	connector, err := connectorOf(address)
	suite.NoError(t, "make a connector", err)
	db := sql.OpenDB(connector)
	defer db.Close()
	for _, err := range []error{check(t.Context(), address, nil), openErr, db.PingContext(t.Context())} {
		saysAll(t, "start", err, words...)
		if err != nil && (!strings.HasPrefix(err.Error(), "connect: database ") || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), password)) {
			t.Errorf("got %v, want that it begins with \"connect: database\" and shows no password", err)
		}
	}
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

func breaksCheck(ctx context.Context, tx *Tx) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO children (small) VALUES (10)")
	return err
}

func namesMissing(ctx context.Context, tx *Tx) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)")
	return err
}

// patient leaves a claim the time that it takes on a busy machine to end what holds a checkpoint.
var patient = &ServerConfig{LockTimeout: 20 * time.Second}

// endingSoon has a store's claims end what holds a checkpoint soon, whatever the lock time-out is.
func endingSoon(s *Store) *Store {
	s.busy = time.Second
	return s
}

// holdStep has the owner of a lease paused in a step until the test ends. Then the step must fail.
func holdStep(t *testing.T, s *Store, lease driver.Lease) {
	t.Helper()
	held, release, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		defer close(over)
		done <- s.Commit(context.WithoutCancel(t.Context()), driver.Step{Lease: lease, From: driver.Unset, To: positionAt(1)}, func(context.Context, *Tx) error {
			close(held)
			<-release
			return nil
		})
	}()
	t.Cleanup(func() {
		close(release)
		<-over
		if err := <-done; err == nil {
			t.Error("the step of a paused owner was committed")
		}
	})
	<-held
}

// silentSteps has the server fall silent at moments of a step, and checks what the step returned,
// within a time, and whether its handler ran.
func silentSteps(t *testing.T, link *tcplink.Link, s *Store, within time.Duration, check func(when string, ran bool, err error)) {
	lease := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: 1}
	step := driver.Step{Lease: lease, From: driver.Unset, To: driver.Unset}
	for _, when := range []string{"while it connects", "before the step", "in the handler", "in the handler, and ctx ends"} {
		suite.Eventually(t, "a connection that works", func() bool {
			_, err := s.Claim(t.Context(), lease, "1")
			return err == nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		switch when {
		case "while it connects":
			link.Reset()
			link.Swallow()
		case "before the step":
			link.SwallowNewest(100)
		}
		done, ran := make(chan error, 1), false
		go func() {
			done <- s.Commit(ctx, step, func(context.Context, *Tx) error {
				ran = true
				if strings.HasPrefix(when, "in the handler") {
					link.SwallowNewest(100)
				}
				if strings.HasSuffix(when, "ends") {
					cancel()
				}
				return nil
			})
		}()
		select {
		case err := <-done:
			t.Logf("silence %s: %v", when, err)
			check(when, ran, err)
		case <-time.After(within):
			t.Errorf("silence %s: Commit has not returned after %v", when, within)
			link.Recover()
			<-done
		}
		link.Recover()
	}
}

// silentEnds has the server fall silent before COMMIT and before ROLLBACK, which must be given up
// within a time, and does not blame the handler.
func silentEnds(t *testing.T, link *tcplink.Link, s *Store, within time.Duration) {
	lease := leaseOf("0", "a", 1)
	claim := func() error { _, err := s.Claim(t.Context(), lease, "1"); return err }
	suite.NoError(t, "claim", claim())
	for _, returned := range []error{nil, errors.New("the handler's own error")} {
		began := time.Now()
		err := s.Commit(t.Context(), driver.Step{Lease: lease, From: driver.Unset, To: positionAt(9)}, func(context.Context, *Tx) error {
			link.Swallow()
			return returned
		})
		if took := time.Since(began); took > within {
			t.Errorf("the handler returned %v: given up after %v", returned, took)
		}
		mustNotBlame(t, "silent end", err)
		link.Recover()
		suite.Eventually(t, "the connections are new", func() bool { return claim() == nil })
	}
}
