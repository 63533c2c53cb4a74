package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

func mssqlExec(t *testing.T, q querier, statement string, args ...any) {
	t.Helper()
	suite.NoError(t, statement, execute(t.Context(), q, statement, args...))
}

// TestSQLServerNested: a transaction that the handler has begun inside its own and left open is
// rolled back with it, and a savepoint is no end.
func TestSQLServerNested(t *testing.T) {
	s := openMSSQL(t, sqlservertest.Database(t), nil)
	mssqlExec(t, s.DB(), "CREATE PROCEDURE hidden_begin AS BEGIN TRANSACTION")
	err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		_ = execute(ctx, tx, "EXEC hidden_begin")
		return mssqlPut(ctx, tx, "x")
	})
	if failed := (*driver.HandlerError)(nil); !errors.As(err, &failed) || !errors.Is(err, errNested) {
		t.Errorf("nested: %v", err)
	}
	mustWriteNothing(t, "nested", s)
	suite.NoError(t, "savepoint", inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		suite.NoError(t, "save", execute(ctx, tx, "SAVE TRAN a"))
		suite.NoError(t, "put", mssqlPut(ctx, tx, "x"))
		return execute(ctx, tx, "ROLLBACK TRAN a")
	}))
	if keys, err := written(t.Context(), s); err != nil || len(keys) > 0 {
		t.Errorf("savepoint: effects %q, %v", keys, err)
	}
}

// TestSQLServerUndoneOrCommitted: the driver takes a transaction that a procedure has committed for
// one that was rolled back. The store does not.
func TestSQLServerUndoneOrCommitted(t *testing.T) {
	s := openMSSQL(t, sqlservertest.Database(t), nil)
	lease := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: 1}
	_, err := s.Claim(t.Context(), lease, "1")
	suite.NoError(t, "claim", err)
	for _, c := range []struct {
		end  func(tx *sql.Tx) error
		want error
	}{{(*sql.Tx).Rollback, errUndone}, {(*sql.Tx).Commit, errEnded}} {
		tr, err := s.begin(t.Context())
		suite.NoError(t, "begin", err)
		suite.NoError(t, "fence", s.fence(t.Context(), tr, driver.Step{Lease: lease, From: driver.Unset, To: positionAt(9)}))
		suite.NoError(t, "end", c.end(tr.Tx))
		if got := tr.undone(t.Context()); got != c.want {
			t.Errorf("got %v, want %v", got, c.want)
		}
		tr.end()
	}
}

// TestSQLServerDoomed: a handler that ignores the error by which the server rolls its transaction
// back, or hides it in TRY and CATCH, writes nothing: neither what came before nor what comes
// after. Its error is kept if it returns one.
func TestSQLServerDoomed(t *testing.T) {
	s := openMSSQL(t, sqlservertest.Database(t), nil)
	mssqlExec(t, s.DB(), "INSERT INTO parents VALUES (1)")
	for _, statement := range []string{
		"SET XACT_ABORT ON; INSERT INTO parents VALUES (1)",
		"SET XACT_ABORT ON; BEGIN TRY INSERT INTO parents VALUES (1) END TRY BEGIN CATCH END CATCH",
		// In SQL Server the transaction takes no more writes there (3930), and ends with the batch
		// (3998).
		"SET XACT_ABORT ON; BEGIN TRY INSERT INTO parents VALUES (1) END TRY BEGIN CATCH INSERT INTO effects ([key]) VALUES (N'in the catch') END CATCH",
		"INSERT INTO parents SELECT CAST(N'x' AS bigint)",
	} {
		for _, returned := range []bool{false, true} {
			var of error
			err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
				suite.NoError(t, "put", mssqlPut(ctx, tx, "before"))
				if of = execute(ctx, tx, statement); of == nil {
					t.Errorf("%s: no error", statement)
				}
				if returned {
					return of
				}
				_ = mssqlPut(ctx, tx, "after")
				return nil
			})
			if failed := (*driver.HandlerError)(nil); !errors.As(err, &failed) || returned && !errors.Is(err, of) || !returned && !errors.Is(err, errUndone) {
				t.Errorf("%s, error returned %t: %v", statement, returned, err)
			}
			mustWriteNothing(t, statement, s)
		}
	}
	// The session of the next step is as that of the first.
	suite.NoError(t, "an error that undoes its statement alone", inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		if err := execute(ctx, tx, "INSERT INTO parents VALUES (1)"); err == nil {
			t.Error("no duplicate")
		}
		return mssqlPut(ctx, tx, "x")
	}))
}

// TestSQLServerLostSession: a session that is killed while the handler runs is an outage, also if
// the handler ignores it: nothing is written, and the event is not at fault.
func TestSQLServerLostSession(t *testing.T) {
	s := openMSSQL(t, sqlservertest.Database(t), nil)
	err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		suite.NoError(t, "put", mssqlPut(ctx, tx, "x"))
		var id int64
		suite.NoError(t, "session", tx.QueryRowContext(ctx, "SELECT @@SPID").Scan(&id))
		mssqlExec(t, s.DB(), fmt.Sprintf("KILL %d", id))
		_ = mssqlPut(ctx, tx, "y")
		return nil
	})
	mustNotBlame(t, "session that was killed", err)
	mustWriteNothing(t, "session that was killed", s)
}

// TestSQLServerDeadlockIsIgnored: a deadlock rolls the transaction back, and what the handler
// writes after it must not be committed by itself. SQL Server's victim is the handler's
// transaction, by its priority; Babelfish's is who has waited for longer, as a rule the same.
func TestSQLServerDeadlockIsIgnored(t *testing.T) {
	s := openMSSQL(t, sqlservertest.Database(t), nil)
	mssqlExec(t, s.DB(), "INSERT INTO effects VALUES (N'1', 0), (N'2', 0)")
	for range 10 {
		var victim error
		err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
			victim = mssqlDeadlock(ctx, t, s, tx)
			_ = mssqlPut(ctx, tx, "x")
			return nil
		})
		if victim == nil {
			suite.NoError(t, "step that won the deadlock", err)
			mssqlExec(t, s.DB(), "DELETE FROM effects WHERE [key] = N'x'")
			continue
		}
		if !strings.Contains(victim.Error(), "1205") {
			t.Errorf("deadlock: %v", victim)
		}
		mustNotBlame(t, "deadlock", err)
		if keys, err := written(t.Context(), s); err != nil || slices.Contains(keys, "x") {
			t.Errorf("effects %q, %v: written although the step failed", keys, err)
		}
		return
	}
	t.Error("the handler's transaction was never the victim")
}

// mssqlDeadlock has a handler's transaction and another lock what the other one has locked. It
// returns the error of the handler's; nil if the other one was the victim.
func mssqlDeadlock(ctx context.Context, t *testing.T, s *Store, tx *Tx) error {
	t.Helper()
	suite.NoError(t, "priority", execute(ctx, tx, "SET DEADLOCK_PRIORITY LOW"))
	suite.NoError(t, "lock 1", execute(ctx, tx, "UPDATE effects SET part = 1 WHERE [key] = N'1'"))
	other, err := s.DB().BeginTx(ctx, nil)
	suite.NoError(t, "begin", err)
	defer other.Rollback()
	suite.NoError(t, "lock 2", execute(ctx, other, "UPDATE effects SET part = 1 WHERE [key] = N'2'"))
	mine := suite.Spawn(t, func() error { return execute(ctx, tx, "UPDATE effects SET part = 2 WHERE [key] = N'2'") })
	suite.Settled(mine) // it waits
	others := execute(ctx, other, "UPDATE effects SET part = 2 WHERE [key] = N'1'")
	suite.NoError(t, "end", other.Rollback())
	err = <-mine
	if (err == nil) == (others == nil) {
		t.Errorf("of two transactions in a deadlock one must fail: %v, %v", err, others)
	}
	return err
}

// TestSQLServerLockTimeout: a row that another transaction holds is nobody's fault; the error names
// what to look for.
func TestSQLServerLockTimeout(t *testing.T) {
	address := sqlservertest.Database(t)
	s := openMSSQL(t, address, &ServerConfig{LockTimeout: time.Second})
	suite.NoError(t, "first step", inNextEpoch(t, s, func(context.Context, *Tx) error { return nil }))
	end := lockedBy(s, mssqlLock)(t)
	list, err := s.Read(t.Context(), group)
	suite.NoError(t, "read", err)
	lease := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: list[0].Epoch}
	err = s.Commit(t.Context(), driver.Step{Lease: lease, From: positionAt(9), To: positionAt(10)}, func(context.Context, *Tx) error {
		t.Error("the handler ran")
		return nil
	})
	mustNotBlame(t, "locked checkpoint", err)
	saysAll(t, "locked checkpoint", err, "lock checkpoint of partition 0", "1222", "blocking_session_id")
	end()
	suite.NoError(t, "after the lock", s.Commit(t.Context(), driver.Step{Lease: lease, From: positionAt(9), To: positionAt(10)}, nil))
}

// TestSQLServerFence: a step whose checkpoint moves while it waits for the row sees the row as it
// is then, whatever the database's row versioning.
func TestSQLServerFence(t *testing.T) {
	s := openMSSQL(t, sqlservertest.Database(t), nil)
	suite.NoError(t, "first step", inNextEpoch(t, s, func(context.Context, *Tx) error { return nil }))
	list, err := s.Read(t.Context(), group)
	suite.NoError(t, "read", err)
	lease := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: list[0].Epoch}
	rival, err := s.DB().BeginTx(t.Context(), nil)
	suite.NoError(t, "begin", err)
	defer rival.Rollback()
	mssqlExec(t, rival, "UPDATE sluice_checkpoints SET epoch = epoch + 1, owner = N'b'")
	var spid int64
	suite.NoError(t, "session", rival.QueryRowContext(t.Context(), "SELECT @@SPID").Scan(&spid))
	over := suite.Spawn(t, func() error {
		return s.Commit(t.Context(), driver.Step{Lease: lease, From: positionAt(9), To: positionAt(10)}, func(context.Context, *Tx) error {
			t.Error("the handler ran on a checkpoint that was claimed by another owner")
			return nil
		})
	})
	select {
	case err := <-over:
		t.Fatalf("the step did not wait: %v", err)
	case <-time.After(10 * suite.Moment):
	}
	suite.NoError(t, "commit", rival.Commit())
	if err := <-over; !errors.Is(err, driver.ErrFenced) {
		t.Errorf("step after another owner's claim: %v", err)
	}
}

// TestSQLServerKeys: names that differ in case or in trailing blanks are different groups, and keys
// of events that do so are different keys.
func TestSQLServerKeys(t *testing.T) {
	s := openMSSQL(t, sqlservertest.Database(t), nil)
	names := []string{"g", "G", "g ", "ğ", "g\u200b"}
	for i, name := range names {
		g := driver.Group{Namespace: "n", Topic: "t", Name: name}
		lease := driver.Lease{Group: g, Partition: "0", Owner: "a", Epoch: int64(i + 1)}
		if _, err := s.Claim(t.Context(), lease, "1"); err != nil {
			t.Fatalf("group %q: %v", name, err)
		}
		got, err := s.Leases().Acquire(t.Context(), g, "0", "a", time.Minute, int64(i))
		if err != nil || got.Epoch != int64(i+1) {
			t.Errorf("lease of group %q: %v, %v", name, got, err)
		}
	}
	for i, name := range names {
		list, err := s.Read(t.Context(), driver.Group{Namespace: "n", Topic: "t", Name: name})
		if err != nil || len(list) != 1 || list[0].Epoch != int64(i+1) {
			t.Errorf("checkpoints of group %q: %v, %v", name, list, err)
		}
	}
	var letters []driver.DeadLetter
	for i, key := range []string{"k", "K", "k ", " "} {
		e := driver.Event{Partition: "0", Sequence: int64(i), Key: key}
		letters = append(letters, driver.DeadLetter{Group: group, Incarnation: "1", Event: e, Status: driver.StatusDead})
	}
	suite.NoError(t, "park", s.Park(t.Context(), letters))
	held, err := s.Held(t.Context(), group, "0", nil)
	var keys []string
	for _, k := range held {
		keys = append(keys, k.Key)
	}
	slices.Sort(keys)
	want := []string{" ", "K", "k", "k "}
	if err != nil || !slices.Equal(keys, want) {
		t.Errorf("held keys %q, %v; want %q", keys, err, want)
	}
	for _, key := range want {
		list, err := s.List(t.Context(), group, driver.DeadLetterFilter{Key: key})
		if err != nil || len(list) != 1 || list[0].Event.Key != key {
			t.Errorf("dead letters of key %q: %v, %v", key, list, err)
		}
	}
	if n, err := s.Discard(t.Context(), group, driver.DeadLetterFilter{Key: "k "}); n != 1 || err != nil {
		t.Errorf("discarded %d dead letters of one key, %v", n, err)
	}
}

// TestSQLServerTimes: a time comes back to the microsecond, from wherever it is, and years that a
// column cannot hold become the nearest one that it can.
func TestSQLServerTimes(t *testing.T) {
	s := openMSSQL(t, sqlservertest.Database(t), nil)
	for i, c := range [][2]time.Time{
		{time.Date(2026, 7, 1, 23, 59, 59, 123456789, time.FixedZone("", 2*3600)), time.Date(2026, 7, 1, 21, 59, 59, 123456000, time.UTC)},
		{time.Date(-300, 1, 1, 0, 0, 0, 0, time.UTC), mssqlEarliest},
		{time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC), latestTime},
	} {
		d := driver.DeadLetter{Group: group, Incarnation: "1", Event: driver.Event{Partition: "0", Sequence: int64(i), Enqueued: c[0]}, FailedAt: c[0], Status: driver.StatusDead}
		suite.NoError(t, "park", s.Park(t.Context(), []driver.DeadLetter{d}))
		list, err := s.List(t.Context(), group, driver.DeadLetterFilter{FirstSequence: &d.Event.Sequence, FailedSince: c[1], FailedBefore: c[1].Add(time.Second)})
		if i == 2 { // there is no second after it
			list, err = s.List(t.Context(), group, driver.DeadLetterFilter{FirstSequence: &d.Event.Sequence})
		}
		if err != nil || len(list) != 1 || !list[0].Event.Enqueued.Equal(c[1]) || !list[0].FailedAt.Equal(c[1]) {
			t.Errorf("%v: %v, %v; want %v", c[0], list, err, c[1])
		}
	}
}

// TestSQLServerRowsLeftOpen: a connection takes one statement at a time. The handler's error says
// so.
func TestSQLServerRowsLeftOpen(t *testing.T) {
	s := openMSSQL(t, sqlservertest.Database(t), nil)
	mssqlExec(t, s.DB(), "INSERT INTO parents VALUES (1), (2)")
	for _, then := range []string{"", "INSERT INTO effects ([key]) VALUES (N'x')"} {
		err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
			rows, err := tx.QueryContext(ctx, "SELECT id FROM parents")
			suite.NoError(t, "query", err)
			if !rows.Next() {
				t.Errorf("no row: %v", rows.Err())
			}
			if then != "" {
				return execute(ctx, tx, then)
			}
			return nil
		})
		if failed := (*driver.HandlerError)(nil); !errors.As(err, &failed) || !errors.Is(err, errRowsOpen) {
			t.Errorf("rows left open, then %q: %v", then, err)
		}
	}
	suite.NoError(t, "rows read to the end", inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT id FROM parents")
		suite.NoError(t, "query", err)
		for rows.Next() {
		}
		return mssqlPut(ctx, tx, "x")
	}))
}

// TestSQLServerArguments: named arguments and those of the driver's own types work, in statements
// that were prepared too.
func TestSQLServerArguments(t *testing.T) {
	s := openMSSQL(t, sqlservertest.Database(t), nil)
	suite.NoError(t, "step", inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		var sum int64
		err := tx.QueryRowContext(ctx, "SELECT @a + @b", sql.Named("a", int64(1)), sql.Named("b", int32(2))).Scan(&sum)
		if err != nil || sum != 3 {
			t.Errorf("named: %d, %v", sum, err)
		}
		stmt, err := tx.PrepareContext(ctx, "SELECT @result = @p1 + 1")
		suite.NoError(t, "prepare", err)
		if _, err := stmt.ExecContext(ctx, int64(4), sql.Named("result", sql.Out{Dest: &sum})); err != nil || sum != 5 {
			t.Errorf("output: %d, %v", sum, err)
		}
		return nil
	}))
}

// TestSQLServerMigrationLock: the process that has made the tables does not keep the lock.
func TestSQLServerMigrationLock(t *testing.T) {
	s := openMSSQL(t, sqlservertest.Database(t), nil)
	var free bool
	if _, err := one(t.Context(), s.writer, "SELECT CAST(APPLOCK_TEST(N'public', N'sluice migration', N'Exclusive', N'Session') AS bit)", nil, &free); err != nil || !free {
		t.Errorf("free %t, %v", free, err)
	}
}
