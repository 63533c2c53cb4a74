package check

import (
	"context"
	"database/sql"
	"time"
)

func (s *sessions) checkMark(ctx context.Context) Finding {
	for _, end := range append([]string{""}, s.words.ends...) {
		if finding := s.marked(ctx, end); finding.State != OK {
			return finding
		}
	}
	return held("the mark stays while the transaction lasts, and each of %d ways to end it removes the mark", len(s.words.ends))
}

// marked marks a transaction, ends it by a statement if that is not empty, and looks for the mark.
func (s *sessions) marked(ctx context.Context, end string) Finding {
	return s.pair(ctx, aBegun, func(ctx context.Context, a, _ *session, id int64) Finding {
		mark, err := s.words.mark(ctx, a.tx)
		if err != nil {
			return failed("marking a transaction", err)
		}
		if _, err := a.exec(ctx, s.words.set, id); err != nil {
			return failed("changing a row", err)
		}
		if end != "" {
			if _, err := a.exec(ctx, end, id); err != nil {
				return failed("ending a transaction", err)
			}
		}
		switch there, err := s.words.marked(ctx, a.tx, mark); {
		case err != nil:
			return failed("looking for the mark", err)
		case there && end != "":
			return differed("the mark of a transaction is still there after %q has ended it: a commit by the handler is not found", s.text(end, id))
		case !there && end == "":
			return differed("the mark of a transaction is gone although nothing has ended it: every step fails")
		}
		return held("")
	})
}

func (s *sessions) checkUndone(ctx context.Context) Finding {
	var finding Finding
	for _, statement := range append([]string{s.words.long}, s.words.aborts...) {
		if finding = s.undone(ctx, statement); finding.State != OK {
			return finding
		}
	}
	return finding
}

// undone tries a statement that fails in a transaction.
func (s *sessions) undone(ctx context.Context, statement string) Finding {
	return s.pair(ctx, aChanged, func(ctx context.Context, a, b *session, id int64) Finding {
		if _, err := a.exec(ctx, statement, effect()); err == nil {
			return undecided("a statement that was to fail succeeded")
		}
		n, err := a.number(ctx, s.words.read, id)
		if err == nil && n != 1 {
			return differed("after an error of a statement the server had rolled the transaction back, and carried out a further statement outside of it")
		}
		goesOn := err == nil
		if goesOn {
			err = a.tx.Commit()
		} else {
			_ = a.tx.Rollback() // the server may have rolled it back already
			err = nil
		}
		if err != nil {
			return differed("after an error of a statement the transaction went on, and could not be committed: %s", oneLine(err))
		}
		switch changed, err := b.exec(ctx, s.words.swap, id); {
		case err != nil:
			return failed("changing a row", err)
		case goesOn != (changed == 0):
			return differed("after an error of a statement the transaction went on: %t, and what it had written is in the database: %t", goesOn, changed == 0)
		case goesOn:
			return held("after an error of a statement the transaction goes on without it")
		}
		return held("after an error of a statement every further statement fails, and nothing is written")
	})
}

func (s *sessions) checkReaders(ctx context.Context) Finding {
	return s.pair(ctx, aChanged, func(ctx context.Context, a, b *session, id int64) Finding {
		reader := b.start(ctx, b.number, s.words.read, id)
		waits := tolerated("reading waits for transactions that have written: lists, the lag and the dashboard wait for handlers").next("%s", s.words.next["db.readers"])
		if reader.waits(s.words.statementLimit()) {
			return waits
		}
		switch n, err := reader.result(); {
		case isOne(err, s.words.timeout):
			return waits
		case err != nil:
			return failed("reading a row", err)
		case n != 0:
			return differed("a reader saw what was not committed")
		}
		return held("a reader saw what was committed last, and did not wait")
	})
}

func (s *sessions) checkSnapshot(ctx context.Context) Finding {
	return s.pair(ctx, nothingOpen, func(ctx context.Context, a, b *session, id int64) Finding {
		err := b.beginAs(ctx, s.words.snapshot)
		if err == nil {
			_, err = b.number(ctx, s.words.read, id)
		}
		if err != nil {
			return tolerated("the database refuses a snapshot, and so `sluice audit hub`: %s", oneLine(err)).next("%s", s.words.next["db.snapshot"])
		}
		if _, err := a.exec(ctx, s.words.set, id); err != nil {
			return failed("changing a row", err)
		}
		switch n, err := b.number(ctx, s.words.read, id); {
		case err != nil:
			return failed("reading a row", err)
		case n != 0:
			return differed("a transaction that is to see one state of the database saw a later commit")
		}
		return held("a transaction did not see what was committed after its first statement")
	})
}

func (s *sessions) checkStrict(ctx context.Context) Finding {
	return s.pair(ctx, nothingOpen, func(ctx context.Context, a, _ *session, _ int64) Finding {
		switch _, err := a.exec(ctx, s.words.long, effect()); {
		case err == nil:
			return differed("a text of four characters was stored in a column for three, without an error").next("%s", s.words.next["db.strict"])
		case !isOne(err, s.words.tooLong):
			return differed("a text that is too long is refused with an error that Sluice does not know as such: %s", oneLine(err))
		default:
			return held("a text that is too long is refused with error %s", errorNumber(err))
		}
	})
}

func (s *sessions) checkTime(ctx context.Context) Finding {
	return s.pair(ctx, nothingOpen, func(ctx context.Context, a, _ *session, _ int64) Finding {
		id := effect()
		if _, err := a.exec(ctx, s.words.time, id); err != nil {
			return failed("inserting a time", err)
		}
		var stored time.Time
		if err := a.row(ctx, s.words.readTime, id).Scan(&stored); err != nil {
			return failed("reading a time", err)
		}
		if !stored.Equal(instant) {
			return differed("%s was stored, and %s read", instant.Format(time.RFC3339Nano), stored.Format(time.RFC3339Nano))
		}
		return held("a time came back to the microsecond")
	})
}

func (s *sessions) checkReadOnly(ctx context.Context) Finding {
	return s.pair(ctx, nothingOpen, func(ctx context.Context, a, _ *session, id int64) Finding {
		if err := a.beginAs(ctx, &sql.TxOptions{ReadOnly: true}); err != nil {
			return failed("beginning a transaction", err)
		}
		switch _, err := a.exec(ctx, s.words.set, id); {
		case err == nil:
			return differed("a read-only transaction has written")
		case !isOne(err, s.words.refused):
			return differed("a write where writes are refused has an error that Sluice does not know as such: %s", oneLine(err))
		default:
			return held("a write in a read-only transaction is refused with error %s", errorNumber(err))
		}
	})
}
