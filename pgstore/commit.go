package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/postgres"
)

const limitsSQL = `SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true)`

// fenceSQL is the fence: without a row the step ends. It locks the row until the transaction ends,
// and returns the transaction's number.
const fenceSQL = `
SELECT pg_current_xact_id()::text FROM @sluice_checkpoints
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4` + fence + `
FOR NO KEY UPDATE`

// moveSQL moves the checkpoint, in the transaction that holds its lock and in no other: there it
// fails, by the root of a negative number. It fails by dividing by zero unless it changes exactly
// one row: an UPDATE that changes none would be no error. After an error the COMMIT behind it is
// not carried out.
const moveSQL = `
WITH moved AS (
UPDATE @sluice_checkpoints
SET sequence_number = $8, event_offset = $9, updated_at = clock_timestamp(),
    claims            = CASE WHEN $8 = sequence_number THEN claims ELSE 1 END,
    trial_sequence    = CASE WHEN $8 = sequence_number THEN trial_sequence ELSE 0 END,
    trial_dead_letter = CASE WHEN $8 = sequence_number THEN trial_dead_letter ELSE 0 END,
    trial_attempts    = CASE WHEN $8 = sequence_number THEN trial_attempts ELSE 0 END,
    trial_error       = CASE WHEN $8 = sequence_number THEN trial_error ELSE '' END,
    trial_unreturned  = CASE WHEN $8 = sequence_number THEN trial_unreturned ELSE 0 END,
    done              = CASE WHEN $8 = sequence_number THEN done ELSE '' END
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4` + fence + `
  AND pg_current_xact_id()::text = $10
RETURNING 1)
SELECT CASE WHEN pg_current_xact_id()::text = $10 THEN 1 / (count(*) = 1)::int ELSE sqrt(-1 - count(*)) END FROM moved`

// unlimitSQL gives the handler's statements the session's own lock timeout.
const unlimitSQL = `SET LOCAL lock_timeout TO DEFAULT`

// sameSQL fails, by dividing by zero, in another transaction than the step's.
const sameSQL = `SELECT 1 / (pg_current_xact_id()::text = $1)::int`

// step is a step in progress on a connection.
type step struct {
	driver.Step
	store *Store
	conn  *pgx.Conn
	tx    pgx.Tx
	xid   string // of the transaction
	ended bool   // the handler was seen to end it
	watch *watch // of the handler; nil: there is none
}

// Commit implements [driver.TxStore]. The handler gets a real transaction; nested transactions are
// savepoints. If the handler panics its writes are rolled back. If it ends the transaction in spite
// of that, the error is [driver.ErrHandlerEnded].
//
// Each round trip of the store's own ends within a third of [Config.LeaseFor], also if the server
// is silent. The handler's statements end with the handler's context.
func (s *Store) Commit(ctx context.Context, todo driver.Step, fn func(ctx context.Context, tx pgx.Tx) error) error {
	conn, err := s.acquireForStep(ctx)
	if err != nil {
		return fmt.Errorf("commit partition %s: %w", todo.Lease.Partition, err)
	}
	defer conn.Release() // the pool closes a connection that is still in a transaction
	st := &step{Step: todo, store: s, conn: conn.Conn()}
	if err = s.roundTrip(ctx, st.begin); err == nil && fn != nil {
		err = st.handle(ctx, fn)
	}
	switch {
	case err != nil:
	case st.DryRun:
		err = s.roundTrip(ctx, st.dryRun)
	default:
		err = s.roundTrip(ctx, st.commit)
	}
	if err == nil && st.DryRun && len(st.Witness) > 0 && !st.watch.ran.Has(st.Witness) {
		err = driver.ErrNotRun
	}
	if err != nil {
		return fmt.Errorf("commit partition %s: %w", todo.Lease.Partition, err)
	}
	return nil
}

// acquireForStep takes a connection of the pool. It fails if none can be had in time, but waits for
// as long as handlers use all of them.
func (s *Store) acquireForStep(ctx context.Context) (conn *pgxpool.Conn, err error) {
	for {
		err = s.roundTrip(ctx, func(ctx context.Context) error {
			conn, err = acquire(ctx, s.pool)
			return err
		})
		used := s.pool.Stat()
		if err == nil || ctx.Err() != nil || used.AcquiredConns() < used.MaxConns() {
			return conn, err
		}
	}
}

// roundTrip bounds one round trip of a step. A connection that has not answered by then is closed.
func (s *Store) roundTrip(ctx context.Context, do func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, s.cfg.requestTimeout())
	defer cancel()
	err := do(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("no answer from PostgreSQL within %v: %w", s.cfg.requestTimeout(), err)
	}
	return err
}

// begin opens the transaction and locks the checkpoint, in one round trip. It
// waits for the answer, so that no COMMIT is sent before the row's lock is held.
func (st *step) begin(ctx context.Context) error {
	var b pgx.Batch
	b.BeginTx(readCommitted)
	st.store.cfg.limits().queue(&b)
	b.Queue(st.store.sql.text(fenceSQL), append(leaseArgs(st.Lease), st.From.Sequence)...)
	b.Queue(unlimitSQL)
	br := st.conn.SendBatch(ctx, &b)
	st.tx = br.Tx()
	_, err := br.Exec()
	if err == nil {
		_, err = br.Exec()
	}
	if err == nil {
		err = br.QueryRow().Scan(&st.xid)
	}
	if cerr := br.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		return nil
	}
	back := st.rollback(ctx)
	if !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("lock checkpoint: %w", err)
	}
	if back != nil {
		return fmt.Errorf("partition %s: %w", st.Lease.Partition, driver.ErrFenced)
	}
	return st.store.fenced(ctx, st.conn, st.Lease, notAt(st.From))
}

// handle runs the handler. It returns nil if the transaction can be committed; otherwise it has
// been rolled back.
func (st *step) handle(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	w, began := &watch{conn: st.conn.PgConn()}, time.Now()
	err := func() error {
		defer w.finish()
		return fn(ctx, &handlerTx{scope{Tx: st.tx, watch: w}})
	}()
	took := time.Since(began)
	st.watch = w
	st.ended = w.ended.Load()
	pg := st.conn.PgConn()
	if pg.TxStatus() == 'T' && pg.ParameterStatus("standard_conforming_strings") == "off" {
		// In the simple protocol pgx sends no arguments then. A failure shows in what follows.
		_ = st.store.roundTrip(ctx, func(ctx context.Context) error {
			_, err := st.conn.Exec(ctx, `SET LOCAL standard_conforming_strings = on`)
			return err
		})
	}
	switch {
	case pg.IsClosed() || pg.IsBusy():
		st.conn.Close(ctx)
		return st.lost(ctx, took, w, err)
	case st.ended || pg.TxStatus() == 'I':
		st.rollback(ctx)
		return handlerEnded(err)
	case ctx.Err() != nil:
		return context.Cause(ctx) // closing the connection undoes it all
	case pg.TxStatus() == 'E':
		return st.undo(ctx, w, err, true)
	case w.unsafe != nil: // also where the handler drops it: PostgreSQL does not know of it
		return st.undo(ctx, w, w.unsafe, false)
	case err != nil:
		return st.undo(ctx, w, err, false)
	case took >= st.store.cfg.LeaseFor:
		return st.stillThere(ctx, took)
	}
	return nil
}

// lost returns why the connection was lost in the handler: a time limit has passed, or the database
// failed. A limit may also be that of the handler's own context, whose end closes the connection.
func (st *step) lost(ctx context.Context, took time.Duration, w *watch, err error) error {
	const what = "connection lost in the handler"
	limited := took >= st.store.cfg.LeaseFor || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if e := w.outage(err, true); e != nil && postgres.TimeLimit(e) {
		limited = true
	}
	if limited && ctx.Err() == nil {
		return fmt.Errorf("%w: the handler took %v: %v", driver.ErrTimeLimit, took.Round(time.Millisecond), outage(what, err))
	}
	return outage(what, err)
}

// stillThere checks, before COMMIT is sent, that PostgreSQL has not ended the session of a handler
// that was idle for long.
func (st *step) stillThere(ctx context.Context, took time.Duration) error {
	return st.store.roundTrip(ctx, func(ctx context.Context) error {
		_, err := st.conn.Exec(ctx, sameSQL, st.xid)
		switch {
		case divided(err):
			st.rollback(ctx)
			return handlerEnded(nil)
		case err != nil && st.conn.IsClosed():
			return fmt.Errorf("%w: the handler took %v, and PostgreSQL ends a session that is idle in a transaction for %v: %v",
				driver.ErrTimeLimit, took.Round(time.Millisecond), st.store.cfg.LeaseFor, err)
		}
		return nil // any other error shows again, in the commit
	})
}

// undo rolls back after the handler's error, or after one of PostgreSQL's that the handler has
// dropped. It is the handler's failure if the database is well enough to say that it has done so,
// and the error is not about the database's state. A rejection counts more than an error about a
// statement, or a time limit.
func (st *step) undo(ctx context.Context, w *watch, err error, aborted bool) error {
	cause := w.outage(err, aborted)
	if err == nil {
		err = errDropped
		if w.failed != nil {
			err = fmt.Errorf("%w: %w", errDropped, w.failed)
		}
	}
	if failure := st.undone(ctx, err); failure != nil {
		return failure
	}
	rejected := errors.Is(err, driver.ErrRejected) && w.unsafe == nil
	if cause != nil && !(rejected && postgres.TimeLimit(cause)) {
		return explain("handler", err, cause)
	}
	refused, shapes := w.refused(err, aborted)
	if refused == nil || rejected {
		return &driver.HandlerError{Err: err}
	}
	return &driver.HandlerError{Err: err, Statements: shapes, Advice: postgres.Advice(refused)}
}

// handlerEnded is the error for a handler that has ended the transaction, by SQL or by a connection
// that the store does not watch, and then returned err. Only the text of err is kept: it decides
// nothing.
func handlerEnded(err error) error {
	if err == nil {
		return fmt.Errorf("%w (COMMIT, ROLLBACK or PREPARE TRANSACTION, past the store)", driver.ErrHandlerEnded)
	}
	return fmt.Errorf("%w (COMMIT, ROLLBACK or PREPARE TRANSACTION, past the store), and returned: %v", driver.ErrHandlerEnded, err)
}

var errDropped = errors.New("the handler ignored an error of PostgreSQL, which has aborted the transaction: return the error, or use a savepoint")

// outage keeps only the text of what a handler returned: the failure is the database's, whatever
// that error means elsewhere.
func outage(what string, err error) error {
	if err == nil {
		return errors.New(what)
	}
	return fmt.Errorf("%s: %v", what, err)
}

// explain is [outage] with what to do about its cause.
func explain(what string, err error, cause *pgconn.PgError) error {
	failure := outage(what, err)
	if postgres.TimeLimit(cause) {
		return fmt.Errorf("%w: %w", driver.ErrTimeLimit, failure)
	}
	if do := postgres.Advice(cause); do != "" {
		return fmt.Errorf("%w: %s", failure, do)
	}
	return failure
}

// rollback leaves the connection usable, or closed. It runs also if the step's context has ended.
func (st *step) rollback(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), st.store.cfg.requestTimeout())
	defer cancel()
	return st.tx.Rollback(ctx)
}

// undone rolls back and returns nil if that has undone all that the handler has written. It returns
// an error if the session was in another transaction than the step's: the handler has ended that,
// and what it has written may be committed.
func (st *step) undone(ctx context.Context, result error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), st.store.cfg.requestTimeout())
	defer cancel()
	aborted := st.conn.PgConn().TxStatus() == 'E' // it takes no statement but its end
	var err error
	if !aborted {
		_, err = st.conn.Exec(ctx, sameSQL, st.xid)
	}
	back := st.rollback(ctx)
	var status *string
	if aborted && back == nil {
		err = st.conn.QueryRow(ctx, `SELECT pg_xact_status($1::text::xid8)`, st.xid).Scan(&status)
	}
	switch {
	case divided(err):
		return handlerEnded(result)
	case err != nil:
		return fmt.Errorf("check the handler's transaction: %w", err)
	case back != nil:
		return fmt.Errorf("roll back: %w", back)
	case aborted && (status == nil || *status != "aborted"):
		return handlerEnded(result)
	}
	return nil
}

// commit stores the dead letters and causation IDs, moves the checkpoint and commits: in one round
// trip, unless redrives are to be settled, whose rows must be counted first.
func (st *step) commit(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var b pgx.Batch
	for i := range st.DeadLetters {
		st.store.park(&b, st.Lease.Group, st.Lease.Partition, &st.DeadLetters[i])
	}
	if st.SettleIncarnation != "" {
		st.store.settleEvents(&b, &st.Step)
	}
	if len(st.Redriven)+len(st.FailedRedrives) > 0 {
		if err := st.settle(ctx, &b); err != nil {
			st.rollback(ctx)
			return err
		}
		b = pgx.Batch{}
	}
	st.storeDedup(&b)
	before := b.Len()
	b.Queue(st.store.sql.text(moveSQL), append(leaseArgs(st.Lease), st.From.Sequence, st.To.Sequence, clean(st.To.Offset), st.xid)...)
	b.Queue(`COMMIT`)

	br := st.conn.SendBatch(ctx, &b)
	defer br.Close() // whatever comes after the answer cannot change it
	for i := range before + 1 {
		_, err := br.Exec()
		switch {
		case err == nil:
		case postgres.Uncertain(err):
			return unknown(err)
		case i == before && hasCode(err, anotherTransaction):
			br.Close()
			st.rollback(ctx)
			return handlerEnded(nil)
		case i == before && divided(err):
			br.Close()
			return st.unmoved(ctx)
		case i == before:
			br.Close()
			st.rollback(ctx)
			return fmt.Errorf("move checkpoint: %w", err)
		default:
			br.Close()
			st.rollback(ctx)
			return fmt.Errorf("store dead letters and causation IDs: %w", err)
		}
	}
	return st.committed(br.Exec())
}

// unmoved rolls back and returns that the checkpoint did not move in the step's transaction.
func (st *step) unmoved(ctx context.Context) error {
	st.rollback(ctx)
	return fmt.Errorf("partition %s: its checkpoint did not move: look for a handler or a trigger that changes sluice_checkpoints: %w",
		st.Lease.Partition, driver.ErrFenced)
}

// checkSQL checks the constraints that a commit would check.
const checkSQL = `SET CONSTRAINTS ALL IMMEDIATE`

// dryRun rolls back, and returns what a commit would have returned.
func (st *step) dryRun(ctx context.Context) error {
	var b pgx.Batch
	b.Queue(sameSQL, st.xid)
	b.Queue(checkSQL)
	br := st.conn.SendBatch(ctx, &b)
	_, another := br.Exec()
	err := br.Close()
	switch {
	case divided(another):
		st.rollback(ctx)
		return handlerEnded(nil)
	case err != nil:
		return st.undo(ctx, st.deferred(err), err, true)
	}
	return st.rollback(ctx)
}

// deferred returns the watch of an error that came after the handler, at the commit or in place of
// it. Any of the handler's statements may be the cause.
func (st *step) deferred(err error) *watch {
	w := &watch{}
	if st.watch != nil {
		w.note(err, st.watch.ran.Shapes()...)
	}
	return w
}

// settle sends the batch that stores dead letters, removes those that the handler has redriven and
// updates those that have failed again: each exactly one row that is marked for redrive.
func (st *step) settle(ctx context.Context, b *pgx.Batch) error {
	deadLetters := b.Len()
	if len(st.Redriven) > 0 {
		st.store.remove(b, st.Lease, st.Redriven)
	}
	for i := range st.FailedRedrives {
		st.store.updateFailedRedrive(b, st.Lease, &st.FailedRedrives[i], st.PostponeFor)
	}
	br := st.conn.SendBatch(ctx, b)
	gone := false
	var err error
	for i := range b.Len() {
		var tag pgconn.CommandTag
		if tag, err = br.Exec(); err != nil {
			break
		}
		want := int64(1)
		if i == deadLetters && len(st.Redriven) > 0 {
			want = int64(len(st.Redriven))
		}
		gone = gone || i >= deadLetters && tag.RowsAffected() != want
	}
	if cerr := br.Close(); err == nil {
		err = cerr
	}
	switch {
	case err != nil:
		return fmt.Errorf("store and settle dead letters: %w", err)
	case gone:
		return fmt.Errorf("partition %s: a dead letter is no longer marked for redrive: %w", st.Lease.Partition, driver.ErrFenced)
	}
	return nil
}

// committed is the meaning of the answer to COMMIT.
func (st *step) committed(tag pgconn.CommandTag, err error) error {
	switch {
	case err == nil && tag.String() == "COMMIT":
		return nil
	case err == nil: // ROLLBACK
		return &driver.HandlerError{Err: errDropped}
	case postgres.Uncertain(err):
		return unknown(err)
	}
	if cause := postgres.OutageIn(err); cause != nil {
		return explain("COMMIT", err, cause)
	}
	if !errors.As(err, new(*pgconn.PgError)) {
		return err
	}
	// A deferred constraint or trigger.
	if refused, shapes := st.deferred(err).refused(err, true); refused != nil {
		return &driver.HandlerError{Err: err, Statements: shapes, Advice: postgres.Advice(refused)}
	}
	return &driver.HandlerError{Err: err}
}

func unknown(err error) error { return fmt.Errorf("%w: %w", driver.ErrUnknown, err) }

// The codes of the errors by which sameSQL and moveSQL fail.
const (
	divisionByZero     = "22012"
	anotherTransaction = "2201F" // the root of a negative number
)

func divided(err error) bool { return hasCode(err, divisionByZero) }

func hasCode(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == code
}
