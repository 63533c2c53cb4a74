package check

import (
	"context"
	"time"
)

// sessionChecks are the checks of a database server that compare two sessions.
var sessionChecks = []check[*sessions]{
	{"db.lock", "The statement that begins a step locks the checkpoint's row at READ COMMITTED: a second one waits, and then sees what the first has committed. The fence rests on it.", 0, (*sessions).checkLock},
	{"db.rows", "An UPDATE that has waited checks its condition on the row as it was committed, and the number of rows that it reports is exact: one of two rivals finds its row.", 0, (*sessions).checkRows},
	{"db.insert", "Of two INSERTs of one key the second waits for the first, and then is a duplicate, or succeeds if the first was rolled back.", 0, (*sessions).checkInsert},
	{"db.timeout", "A wait for a lock ends in time, with an error that Sluice knows: it counts as an outage, not as the handler's failure.", 0, (*sessions).checkTimeout},
	{"db.deadlock", "Of two transactions that wait for each other one fails with an error that Sluice knows and is rolled back, and the other goes on.", 0, (*sessions).checkDeadlock},
	{"db.killed", "The server rolls back the transaction of a session that ends, releases its locks, and its COMMIT fails.", 0, (*sessions).checkKilled},
	{"db.cancel", "A statement that is cancelled ends within seconds, and nothing of its transaction stays.", 0, (*sessions).checkCancel},
	{"db.mark", "The mark of a handler's transaction lasts as long as the transaction: a handler that ends it by a statement or by DDL is found before the commit.", 0, (*sessions).checkMark},
	{"db.undone", "After an error of a statement the transaction goes on without that statement alone, or every further statement fails: nothing is written outside of it.", 0, (*sessions).checkUndone},
	{"db.readers", "Reading a checkpoint does not wait for a transaction that has its row locked, and does not see what that has not committed.", 0, (*sessions).checkReaders},
	{"db.snapshot", "A transaction of the audit sees one state of the database throughout.", 0, (*sessions).checkSnapshot},
	{"db.hints", "A SELECT with UPDLOCK and HOLDLOCK locks the row: handlers may rely on it, Sluice's own statements do not.", 0, (*sessions).checkHints},
	{"db.strict", "A value that does not fit its column is refused with an error that Sluice knows, and not changed: its event becomes a dead letter.", 0, (*sessions).checkStrict},
	{"db.time", "A time is stored to the microsecond and read in UTC.", 0, (*sessions).checkTime},
	{"db.readonly", "A write that is refused because the server or the transaction is read-only, as after a failover, has an error that Sluice knows: it counts as an outage.", 0, (*sessions).checkReadOnly},
}

func (s *sessions) checkLock(ctx context.Context) Finding { return s.locks(ctx, s.words.lock) }

func (s *sessions) checkHints(ctx context.Context) Finding {
	finding := s.locks(ctx, s.words.hints)
	if finding.State == Failed {
		finding = finding.next("%s", s.words.next["db.hints"])
	}
	return finding
}

// locks tries a statement that is to lock a row.
func (s *sessions) locks(ctx context.Context, lock string) Finding {
	return s.pair(ctx, bothBegun, func(ctx context.Context, a, b *session, id int64) Finding {
		if _, err := b.number(ctx, s.words.read, id); err != nil { // it must not see this state for ever
			return failed("reading a row", err)
		}
		if _, err := a.number(ctx, lock, id); err != nil {
			return failed("locking a row", err)
		}
		second := b.start(ctx, b.number, lock, id)
		if !second.waits(s.words.watch) {
			if _, err := second.result(); err != nil {
				return failed("locking a row that is locked", err)
			}
			return differed("a transaction locked a row, and a second one did not wait for it")
		}
		if _, err := a.exec(ctx, s.words.set, id); err != nil {
			return failed("changing a row", err)
		}
		if err := a.tx.Commit(); err != nil {
			return failed("committing", err)
		}
		if _, err := second.result(); err != nil {
			return failed("waiting for a lock", err)
		}
		switch n, err := b.number(ctx, s.words.read, id); {
		case err != nil:
			return failed("reading a row", err)
		case n != 1:
			return differed("a transaction that had waited for a lock read %d, and 1 had been committed", n)
		}
		return held("the second transaction waited, and saw what the first had committed")
	})
}

func (s *sessions) checkRows(ctx context.Context) Finding {
	return s.pair(ctx, bothBegun, func(ctx context.Context, a, b *session, id int64) Finding {
		first, err := a.exec(ctx, s.words.swap, id)
		if err != nil {
			return failed("changing a row", err)
		}
		rival := b.start(ctx, b.exec, s.words.swap, id)
		waited := rival.waits(s.words.watch)
		if err := a.tx.Commit(); err != nil {
			return failed("committing", err)
		}
		second, err := rival.result()
		if err != nil {
			return failed("changing a row that another has changed", err)
		}
		same, err := b.exec(ctx, s.words.set, id)
		switch {
		case err != nil:
			return failed("changing a row", err)
		case first != 1 || second != 0:
			return differed("two rivals changed a row that only one of them could find: the server reports %d and %d rows, and the second waited: %t", first, second, waited)
		case same != 1:
			return differed("an UPDATE that leaves its row as it was reports %d rows instead of 1", same)
		}
		return held("the first rival changed 1 row, the second none; an UPDATE that changes nothing reports its row")
	})
}

func (s *sessions) checkInsert(ctx context.Context) Finding {
	committed := s.rivalInserts(ctx, func(a *session) error { return a.tx.Commit() }, true)
	if committed.State != OK {
		return committed
	}
	return s.rivalInserts(ctx, func(a *session) error { return a.tx.Rollback() }, false)
}

// rivalInserts inserts a key twice; the first transaction is ended by end.
func (s *sessions) rivalInserts(ctx context.Context, end func(a *session) error, duplicate bool) Finding {
	return s.pair(ctx, bothBegun, func(ctx context.Context, a, b *session, _ int64) Finding {
		key := effect()
		if _, err := a.exec(ctx, s.words.insert, key); err != nil {
			return failed("inserting a row", err)
		}
		rival := b.start(ctx, b.exec, s.words.insert, key)
		waited := rival.waits(s.words.watch)
		if err := end(a); err != nil {
			return failed("ending a transaction", err)
		}
		n, err := rival.result()
		switch {
		case !waited:
			return differed("an INSERT of a key that another transaction had inserted did not wait for that: %d rows, error %v", n, err)
		case duplicate && err == nil:
			return differed("a key that was committed could be inserted again, or was left out without an error: %d rows", n)
		case duplicate && !isOne(err, s.words.duplicate):
			return differed("a duplicate key is refused with an error that Sluice does not know as one: %s", oneLine(err))
		case !duplicate && err != nil:
			return differed("a key whose first INSERT was rolled back is refused: %s", oneLine(err))
		}
		return held("a duplicate is refused when the first INSERT is committed, and inserted when that is rolled back")
	})
}

func (s *sessions) checkTimeout(ctx context.Context) Finding {
	return s.pair(ctx, bothBegun, func(ctx context.Context, a, b *session, id int64) Finding {
		if _, err := b.exec(ctx, s.words.patience, id); err != nil {
			return failed("setting the time limit of locks", err)
		}
		if _, err := a.exec(ctx, s.words.set, id); err != nil {
			return failed("changing a row", err)
		}
		began := time.Now()
		_, err := b.exec(ctx, s.words.set, id)
		took := time.Since(began).Round(100 * time.Millisecond)
		switch {
		case err == nil:
			return differed("a second transaction changed a row that is locked")
		case !isOne(err, s.words.timeout):
			return differed("a wait for a lock ended with an error that Sluice does not know as such: %s", oneLine(err))
		case took < time.Second || took > 10*time.Second:
			return differed("a wait for a lock, limited to 2 s, ended after %v", took)
		}
		return held("a wait for a lock, limited to 2 s, ended after %v with error %s", took, errorNumber(err))
	})
}

func (s *sessions) checkDeadlock(ctx context.Context) Finding {
	return s.pair(ctx, nothingOpen, func(ctx context.Context, a, b *session, one int64) Finding {
		other := effect()
		if _, err := a.exec(ctx, s.words.insert, other); err != nil {
			return failed("inserting a row", err)
		}
		if err := begun(ctx, a, b); err != nil {
			return failed("beginning transactions", err)
		}
		for c, id := range map[*session]int64{a: one, b: other} {
			if _, err := c.exec(ctx, s.words.set, id); err != nil {
				return failed("changing a row", err)
			}
		}
		began := time.Now()
		first, second := a.start(ctx, a.exec, s.words.set, other), b.start(ctx, b.exec, s.words.set, one)
		_, failure := first.result()
		survivor := b
		if failure == nil {
			survivor = a
			_, failure = second.result()
		} else if _, err := second.result(); err != nil {
			return differed("both of two transactions that waited for each other failed: %s, and %s", oneLine(failure), oneLine(err))
		}
		took := time.Since(began).Round(100 * time.Millisecond)
		switch {
		case failure == nil:
			return differed("two transactions locked the same rows")
		case isOne(failure, s.words.timeout):
			return tolerated("two transactions waited for each other until the time limit of locks, %v: the server does not look for deadlocks", took)
		case !isOne(failure, s.words.deadlock):
			return differed("a deadlock ended with an error that Sluice does not know as one: %s", oneLine(failure))
		}
		if err := survivor.tx.Commit(); err != nil {
			return differed("after a deadlock the other transaction could not commit: %s", oneLine(err))
		}
		return held("after %v one of the two failed with error %s, and the other committed", took, errorNumber(failure))
	})
}

func (s *sessions) checkKilled(ctx context.Context) Finding {
	return s.pair(ctx, aChanged, func(ctx context.Context, a, b *session, id int64) Finding {
		// Outside of the transaction a pooler may have the statement run in a session that is
		// another program's afterwards.
		victim, err := a.number(ctx, s.words.session, id)
		if err != nil {
			return failed("reading the number of the session", err)
		}
		if _, err := b.exec(ctx, s.words.kill, victim); isOne(err, s.words.mayNotKill) {
			return undecided("the user may not end sessions: %s", oneLine(err)).next("%s", s.words.next["db.killed"])
		} else if err != nil {
			return failed("ending a session", err)
		}
		began := time.Now()
		var changed int64
		for { // the server may take its time: it rolls back first
			if err := b.begin(ctx); err != nil { // SQL Server allows no KILL within
				return failed("beginning a transaction", err)
			}
			if _, err := b.exec(ctx, s.words.patience, id); err != nil {
				return failed("setting the time limit of locks", err)
			}
			changed, err = b.exec(ctx, s.words.swap, id)
			if !isOne(err, s.words.timeout) || time.Since(began) > s.words.statementLimit() {
				break
			}
			_ = b.tx.Rollback() // the next error says why, if it fails
		}
		took := time.Since(began).Round(time.Millisecond)
		switch commit := a.tx.Commit(); {
		case err != nil:
			return differed("%v after a session had ended its lock was not released: %s", took, oneLine(err))
		case commit == nil:
			return differed("the COMMIT of a session that had been ended was reported as successful")
		case changed != 1:
			return differed("what a session had written that was ended before its COMMIT is in the database")
		}
		return held("the transaction was rolled back, its lock was free after %v, and its COMMIT failed", took)
	})
}

func (s *sessions) checkCancel(ctx context.Context) Finding {
	const within = 5 * time.Second
	return s.pair(ctx, bothBegun, func(ctx context.Context, a, b *session, id int64) Finding {
		if _, err := a.number(ctx, s.words.lock, id); err != nil {
			return failed("locking a row", err)
		}
		limited, cancel := context.WithTimeout(ctx, s.words.watch)
		defer cancel()
		began := time.Now()
		_, err := b.exec(limited, s.words.set, id)
		took := time.Since(began).Round(time.Millisecond)
		if err == nil {
			return differed("a second transaction changed a row that is locked")
		}
		_ = b.tx.Rollback() // its connection may be closed
		if err := a.tx.Commit(); err != nil {
			return failed("committing", err)
		}
		a.tx = nil
		changed, err := a.exec(ctx, s.words.swap, id)
		switch {
		case err != nil:
			return failed("changing the row after the statement was cancelled", err)
		case changed != 1:
			return differed("a statement that was cancelled, and whose transaction was not committed, changed the row")
		case took > s.words.watch+within:
			return differed("a statement that was cancelled after %v ended after %v", s.words.watch, took)
		}
		return held("a statement that was cancelled after %v ended after %v, and left nothing", s.words.watch, took)
	})
}
