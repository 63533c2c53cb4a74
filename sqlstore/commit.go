package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/postgres"
	"github.com/sluice-go/sluice/internal/sqlshape"
	"github.com/sluice-go/sluice/internal/tables"
)

// errEnded is the error for a handler that ends its own transaction.
var errEnded = errors.New("the handler ended its own transaction (by COMMIT, ROLLBACK, a statement that commits by itself such as CREATE TABLE, or a conflict clause that rolls back): what it still could roll back was rolled back; leave the commit to the store")

// handlerEnded is the error for a handler whose transaction was ended past the store, and that then
// returned err. Only the text of err is kept: it decides nothing.
func handlerEnded(err error) error {
	ended := fmt.Errorf("%w (COMMIT, ROLLBACK, or a statement that commits by itself such as CREATE TABLE, past the store)", driver.ErrHandlerEnded)
	if err == nil {
		return ended
	}
	return fmt.Errorf("%w, and returned: %v", ended, err)
}

// handlerKept is the error for a handler whose writes a rollback has kept.
func handlerKept(err error) error {
	kept := fmt.Errorf("%w: a table without transactions, perhaps a temporary one, has kept what the rollback should have undone: have the handler write to tables whose engine is InnoDB", driver.ErrHandlerEnded)
	if err == nil {
		return kept
	}
	return fmt.Errorf("%w; the transaction was rolled back because: %v", kept, err)
}

// kept reports whether a rollback has kept writes. A server that does not answer has ended the
// session or will end it; what it has kept then is not known.
func (s *Store) kept(t *transaction) bool {
	kept := false
	_ = s.bounded(context.Background(), func(ctx context.Context) (err error) {
		kept, err = s.dialect.kept(ctx, t.conn)
		return err
	})
	return kept
}

// errRowsOpen is the error for a handler that does not close its rows.
var errRowsOpen = errors.New("the handler has left the rows of a query open: read them to the end or close them, before the next statement and before the handler returns")

// Commit implements [driver.TxStore].
//
// The order is the guarantee: first the fence, which locks the checkpoint, so that a handler never
// runs on a partition whose checkpoint has moved; then the handler; then the move, in the
// transaction that holds the lock and in no other, the dead letters and the causation IDs; then the
// only commit. A handler that ends the transaction ends it with the checkpoint unmoved: its events
// are not lost. The end of ctx does not interrupt the commit: it waits for nothing, and the outcome
// of an interrupted commit would be unknown. A dry run does not check deferred foreign keys in
// SQLite, which checks them in the commit alone.
func (s *Store) Commit(ctx context.Context, step driver.Step, fn func(ctx context.Context, tx *Tx) error) (err error) {
	t, err := s.begin(ctx)
	if err != nil {
		return s.outage(ctx, "begin transaction", err)
	}
	// The handler's context ends when the transaction is over, and with it what hangs on it.
	handling, handled := context.WithCancel(ctx)
	defer handled()
	kept := false
	if fn != nil {
		t.rolledBack = func() { kept = s.kept(t) }
	}
	defer func() {
		if t.end(); kept {
			err = handlerKept(err)
		}
		if err != nil || !step.DryRun {
			s.known.learn(t.pins, err == nil)
		}
	}()
	err = s.bounded(ctx, func(ctx context.Context) error {
		return s.fence(ctx, t, step)
	})
	if err == nil && fn != nil {
		err = s.handle(ctx, t, step, func(tx *Tx) error { return fn(handling, tx) })
	}
	if err == nil && step.DryRun {
		err = s.checkDeferred(ctx, t, step)
	}
	if err == nil && len(step.Witness) > 0 {
		if ran, _, _ := t.watch.statements(); !ran.Has(step.Witness) {
			err = driver.ErrNotRun
		}
	}
	if err != nil || step.DryRun {
		return err
	}
	err = s.bounded(ctx, func(ctx context.Context) error {
		if err := s.settle(ctx, t, step); err != nil {
			return err
		}
		if err := s.storeDedup(ctx, t, step); err != nil {
			return err
		}
		if !t.moved {
			return s.move(ctx, t, step)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.commit(ctx, t, step)
}

// fence checks that the checkpoint is this lease's and is where the step begins, and locks it. It
// does not move it, so that a commit of the handler's does not either.
func (s *Store) fence(ctx context.Context, t *transaction, step driver.Step) error {
	found, err := s.dialect.lock(ctx, t, append(leaseArgs(step.Lease), step.From.Sequence))
	switch {
	case err != nil:
		return s.outage(ctx, "lock checkpoint of partition "+step.Lease.Partition, err)
	case !found:
		return s.fenced(ctx, t, step.Lease, notAt(step.From))
	}
	return nil
}

// move moves the checkpoint, or leaves it where it is, provided that it is still
// this lease's and is where the step begins.
func (s *Store) move(ctx context.Context, t *transaction, step driver.Step) error {
	query, args := s.sql.Stay, []any(nil)
	if step.From.Sequence != step.To.Sequence {
		query, args = s.sql.Move, []any{step.To.Sequence, clean(step.To.Offset)}
	}
	args = append(append(args, leaseArgs(step.Lease)...), step.From.Sequence)
	n, err := changed(ctx, t, query+t.unchanged(s.dialect), args...)
	switch {
	case err != nil:
		return s.outage(ctx, "move checkpoint of partition "+step.Lease.Partition, err)
	case n != 1:
		if err := s.changed(ctx, t); err != nil {
			return err
		}
		return s.fenced(ctx, t, step.Lease, notAt(step.From))
	}
	return nil
}

// moveIntact moves the checkpoint in the statement that checks whether the transaction is intact,
// and reports whether it has. If not, intact and move find out why.
func (s *Store) moveIntact(ctx context.Context, t *transaction, step driver.Step) (moved bool, err error) {
	if s.sql.MoveIntact == "" || step.DryRun || step.From.Sequence == step.To.Sequence {
		return false, nil
	}
	args := slices.Concat([]any{t.mark, step.To.Sequence, clean(step.To.Offset)}, leaseArgs(step.Lease), []any{step.From.Sequence})
	err = s.bounded(ctx, func(ctx context.Context) (err error) {
		var row int
		moved, err = one(ctx, t, s.sql.MoveIntact+t.unchanged(s.dialect), args, &row)
		return err
	})
	return moved && err == nil, err
}

// handle runs the handler, and finds out whether the handler or the database failed.
func (s *Store) handle(ctx context.Context, t *transaction, step driver.Step, fn func(*Tx) error) error {
	t.watch.guard()
	tx := &Tx{tx: t.Tx, transaction: t, dialect: s.dialect, safe: &s.safe, known: &s.known}
	defer tx.close()
	began := time.Now()
	err := fn(tx)
	err = cmp.Or(err, tx.leave(), tx.failure())
	t.pins = tx.pins
	took := time.Since(began)
	t.watch.handled()
	aborted := false
	over, outage := t.watch.state()
	switch {
	case columnsChanged(tx.failure()):
		return s.outage(ctx, "handler", tx.failure())
	case outage != nil:
		return s.handlerLost(ctx, took, outage)
	case errors.Is(tx.failure(), driver.ErrUnsafeTable): // the handler may drop it, or keep its text alone
		return s.outage(ctx, "handler", tx.failure())
	case s.dialect.fault(err) == faultTimeLimit && ctx.Err() == nil && !errors.Is(err, driver.ErrRejected):
		return fmt.Errorf("%w: %w", driver.ErrTimeLimit, s.outage(ctx, "handler", err))
	case over:
		err = cmp.Or(err, errEnded)
	case t.watch.rowsOpen():
		err = cmp.Or(err, errRowsOpen)
	default:
		if err == nil {
			var failed error
			t.moved, failed = s.moveIntact(ctx, t, step)
			switch {
			case t.moved:
				return nil
			case failed != nil && s.dialect.fault(failed) != faultStatement: // not of a transaction that is over or aborted
				return s.moveFailed(ctx, step, took, failed)
			}
		}
		switch ended := s.bounded(ctx, func(ctx context.Context) error { return s.dialect.intact(ctx, t) }); ended {
		case nil:
		case errEnded:
			return handlerEnded(err)
		case errNested:
			err = ended
		case errUndone:
			aborted = true
			if _, _, why := t.watch.statements(); err == nil && why != nil {
				ended = fmt.Errorf("%w: %w", ended, why)
			}
			err = cmp.Or(err, ended)
		default:
			return s.handlerLost(ctx, took, ended)
		}
	}
	if err == nil {
		return nil
	}
	t.end()
	return s.handlerFailed(ctx, step, err, s.refused(t, err, aborted))
}

// locked adds the cause to a handler's failure to get SQLite's write lock, which its own
// transaction holds.
func (s *Store) locked(failure error) error {
	if s.dialect.catalog() != tables.SQLite || s.dialect.fault(failure) != faultBusy {
		return failure
	}
	each, named := failure.(*driver.EventError)
	if named {
		failure = each.Err
	}
	failure = fmt.Errorf("%w: the handler's transaction holds this database's write lock: write through its Tx, not through another connection", failure)
	if named {
		return &driver.EventError{Index: each.Index, Err: failure}
	}
	return failure
}

// refused returns the shape of the statement that the database refused for a reason that may be
// every event's, if a handler has failed with err because of it, or the transaction was aborted. A
// handler may keep only the text of the database's error. What it says itself of the event counts
// more.
func (s *Store) refused(t *transaction, err error, aborted bool) []string {
	_, text, why := t.watch.statements()
	switch f := s.dialect.fault(err); {
	case errors.Is(err, driver.ErrRejected):
		return nil
	case f.open():
		return []string{sqlshape.Words(cmp.Or(text, sqlshape.Unseen))}
	case f == faultStatement && why != nil && (aborted || strings.Contains(err.Error(), why.Error())):
		return []string{sqlshape.Words(text)}
	}
	return nil // among them the errors of a handler that has got over such a failure
}

// handlerLost returns why a handler's transaction was lost: a time limit of the database has
// passed, among them that of a session that idles, or the database failed.
func (s *Store) handlerLost(ctx context.Context, took time.Duration, err error) error {
	failure := s.outage(ctx, "handler's transaction", err)
	f := s.dialect.fault(err)
	if limited := f == faultTimeLimit || f == faultBroken && s.idle > 0 && took >= s.idle; limited && ctx.Err() == nil {
		return fmt.Errorf("%w: the handler took %v: %w", driver.ErrTimeLimit, took.Round(time.Millisecond), failure)
	}
	return failure
}

// moveFailed returns why the checkpoint was not moved. A server that does not answer the store's
// own request is no time limit of the handler's.
func (s *Store) moveFailed(ctx context.Context, step driver.Step, took time.Duration, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return s.outage(ctx, "move checkpoint of partition "+step.Lease.Partition, err)
	}
	return s.handlerLost(ctx, took, err)
}

// handlerFailed returns a failure as the handler's, if the database works: it must be able to write
// and to bring that to disk, for which the checkpoint's time is set; and the checkpoint must still
// be this lease's.
func (s *Store) handlerFailed(ctx context.Context, step driver.Step, failure error, refused []string) error {
	if ctx.Err() != nil {
		return s.outage(ctx, "handler's transaction", failure)
	}
	n, err := s.change(ctx, s.sql.Probe, append(leaseArgs(step.Lease), step.From.Sequence)...)
	switch {
	case err != nil:
		return s.outage(ctx, fmt.Sprintf("check the database after the handler failed (%v)", failure), err)
	case n != 1:
		return s.fenced(ctx, s.writer, step.Lease, notAt(step.From))
	}
	failed := &driver.HandlerError{Err: s.locked(failure), Statements: refused}
	if len(refused) > 0 {
		failed.Advice = s.dialect.hint(failure)
	}
	return failed
}

// checkDeferred checks in a dry run what a commit would check.
func (s *Store) checkDeferred(ctx context.Context, t *transaction, step driver.Step) error {
	if s.sql.CheckDeferred == "" {
		return nil
	}
	err := s.bounded(ctx, func(ctx context.Context) error { _, err := t.ExecContext(ctx, s.sql.CheckDeferred); return err })
	switch {
	case err == nil:
		return nil
	case s.dialect.fault(err) == faultConstraint:
		t.end()
		return s.handlerFailed(ctx, step, err, nil)
	case s.dialect.fault(err) == faultOpen:
		t.end()
		return s.handlerFailed(ctx, step, err, t.ran())
	}
	return s.outage(ctx, "check deferred constraints", err)
}

// settle stores the step's dead letters, removes those that were redriven, and updates those whose
// redrive has failed.
func (s *Store) settle(ctx context.Context, t *transaction, step driver.Step) error {
	if err := s.park(ctx, t, step.DeadLetters); err != nil {
		return s.outage(ctx, "store dead letters", err)
	}
	if step.SettleIncarnation != "" {
		if err := s.settleEvents(ctx, t, step); err != nil {
			return err
		}
	}
	of := key(step.Lease.Group, step.Lease.Partition)
	if ids := step.Redriven; len(ids) > 0 {
		n, err := changed(ctx, t, s.sql.EndRedrives, slices.Concat(of, []any{array(ids)})...)
		switch {
		case err != nil:
			return s.outage(ctx, fmt.Sprintf("remove %d dead letters", len(ids)), err)
		case n != int64(len(ids)):
			return fmt.Errorf("%d of the dead letters %v are no longer marked for redrive: %w", int64(len(ids))-n, ids, driver.ErrFenced)
		}
	}
	for i := range step.FailedRedrives {
		d := &step.FailedRedrives[i]
		statement, args := s.sql.FailRedrive, s.failureArgs(d)
		if step.PostponeFor > 0 && d.Status == driver.StatusRetry { // by the clock that Due looks at
			statement, args[len(args)-1] = s.sql.Postpone, step.PostponeFor.Milliseconds()
		}
		if err := s.changeRedrive(ctx, t, d.ID, statement, slices.Concat(args, of, []any{d.ID})); err != nil {
			return err
		}
	}
	return nil
}

// settleEvents removes the dead letters of the step's events, without those that the step stores.
func (s *Store) settleEvents(ctx context.Context, t *transaction, step driver.Step) error {
	stored := make([]int64, len(step.DeadLetters))
	for i := range step.DeadLetters {
		stored[i] = step.DeadLetters[i].Event.Sequence
	}
	args := append(key(step.Lease.Group, "")[:3], clean(step.SettleIncarnation), clean(step.Lease.Partition),
		step.From.Sequence, step.To.Sequence, array(stored))
	if _, err := changed(ctx, t, s.sql.SettleEvents, args...); err != nil {
		return s.outage(ctx, "remove the dead letters of events that are handled again", err)
	}
	return nil
}

// changeRedrive runs a statement that must change exactly one dead letter marked for redrive: of
// two transactions that redrive it at the same time, one takes effect.
func (s *Store) changeRedrive(ctx context.Context, t *transaction, id int64, query string, args []any) error {
	n, err := changed(ctx, t, query, args...)
	switch {
	case err != nil:
		return s.outage(ctx, fmt.Sprintf("update dead letter %d", id), err)
	case n != 1:
		return fmt.Errorf("dead letter %d is no longer marked for redrive: %w", id, driver.ErrFenced)
	}
	return nil
}

// commit commits the transaction. An error of the commit itself is one of three things: a violated
// constraint that was deferred until now, which is the handler's failure; a refusal, after which
// nothing is written; or anything else, after which the commit may be on disk or not.
func (s *Store) commit(ctx context.Context, t *transaction, step driver.Step) error {
	if !t.detach() {
		return s.outage(ctx, "commit", ctx.Err())
	}
	t.watch.release()
	err := t.Commit()
	if err == nil {
		return nil
	}
	switch s.dialect.fault(err) {
	case faultConstraint:
		t.end()
		return s.handlerFailed(ctx, step, err, nil)
	case faultOpen:
		if errors.As(err, new(*pgconn.PgError)) && postgres.Uncertain(err) {
			break
		}
		t.end()
		return s.handlerFailed(ctx, step, err, t.ran())
	case faultBusy, faultRefused:
		return s.outage(context.WithoutCancel(ctx), "commit", err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnknown, s.outage(context.WithoutCancel(ctx), "commit", err))
}
