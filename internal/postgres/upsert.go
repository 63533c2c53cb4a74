package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-go/sluice/internal/keyed"
)

// Upsert writes rows by key, see [driver.Keyed]. The values go as text, as in [Copy]. A part of the
// rows takes two round trips: in the first the server says which rows count, because only it knows
// which keys are equal; in the second these are written, sorted by key, and looked for.
type Upsert struct {
	Table pgx.Identifier
	*keyed.Write
	// Check is as in [Copy], without a form to choose.
	Check func(Columns) error
}

// Upserter is a transaction that runs an Upsert itself, to watch it.
type Upserter interface {
	UpsertRows(ctx context.Context, u *Upsert) error
}

// Into runs the write in a transaction.
func (u *Upsert) Into(ctx context.Context, tx pgx.Tx) error {
	if own, ok := tx.(Upserter); ok {
		return own.UpsertRows(ctx, u)
	}
	return u.Run(ctx, tx.Conn())
}

const (
	// upsertBytes is the size of a part's rows from which on it takes no further one.
	upsertBytes = 2 << 20
	// upsertRows is how many rows a part has at most.
	upsertRows = 20_000
	// upsertTries is how often a part is written if its rows are not there afterwards: another
	// transaction may have deleted one, or inserted one that was deleted.
	upsertTries = 3
)

// errSuppressed is why rows are written in smaller parts.
var errSuppressed = errors.New("a trigger of the table leaves out the change of a row: change the trigger, or use a statement of your own")

// Run writes the rows over a connection. If it is known which row failed, the error is a
// [*keyed.RowError].
func (u *Upsert) Run(ctx context.Context, conn *pgx.Conn) error {
	copied := &Copy{Table: u.Table, Columns: u.Columns}
	known, err := copied.known(ctx, conn)
	if err != nil {
		return err
	}
	if u.Check != nil {
		if err := u.Check(known.columns); err != nil {
			return copied.refused(conn, err)
		}
	}
	table, err := u.keyedTable(ctx, conn, known)
	if err != nil {
		return err
	}
	r := &upsertRun{Upsert: u, conn: conn, known: known, keyedTable: table}
	for rest := u.All(); len(rest) > 0; {
		part := r.part(rest)
		if err := keyed.Narrow(part, func(rows []int) error { return r.write(ctx, rows) }, refusesRow); err != nil {
			if e, ok := errors.AsType[*pgconn.PgError](err); ok {
				if changed := known.changed(e); changed != nil {
					return changed
				}
			}
			return err
		}
		rest = rest[len(part):]
	}
	return nil
}

// refusesRow reports whether an error may be that of one row.
func refusesRow(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return err == errSuppressed || ok && OutageIn(e) == nil && !StatementFault(e) && !TimeLimit(e) && e.Code != "25P02"
}

// upsertRun is an Upsert on a connection.
type upsertRun struct {
	*Upsert
	*keyedTable
	conn  *pgx.Conn
	known *knownTable
}

// part returns the first rows, which are written together.
func (r *upsertRun) part(rows []int) []int {
	size := 0
	for i, row := range rows {
		if i == upsertRows || size >= upsertBytes {
			return rows[:i]
		}
		for _, value := range r.Rows[row] {
			switch v := value.(type) {
			case string:
				size += len(v)
			case []byte:
				size += 2 * len(v)
			default:
				size += 16
			}
		}
	}
	return rows
}

// upsertPoint is the savepoint to which a part that fails is undone.
const upsertPoint = "sluice_upsert"

// write writes a part, or nothing of it. An error that stays is one of the transaction, not of the
// savepoint: then PostgreSQL says of the whole transaction that it is aborted.
func (r *upsertRun) write(ctx context.Context, rows []int) error {
	if len(rows) == 1 {
		return r.tryWrite(ctx, rows, false)
	}
	err := r.tryWrite(ctx, rows, true)
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || OutageIn(e) != nil || TimeLimit(e) || r.conn.PgConn().TxStatus() != 'E' {
		return err
	}
	if back := r.conn.PgConn().Exec(ctx, "ROLLBACK TO "+upsertPoint+"; RELEASE "+upsertPoint).Close(); back != nil {
		return errors.Join(err, back)
	}
	if refusesRow(err) {
		return err
	}
	return r.tryWrite(ctx, rows, false)
}

func (r *upsertRun) tryWrite(ctx context.Context, rows []int, point bool) error {
	var b upsertBatch
	if point {
		b.add("SAVEPOINT " + upsertPoint)
	}
	b.add(r.known.lock)
	b.add(r.known.compare)
	arrays, err := r.keyArrays(rows, true)
	if err != nil {
		return err
	}
	b.add(r.reduce, arrays...)
	results, err := b.run(ctx, r.conn)
	if err != nil {
		return err
	}
	var live, gone []int // what each key is after the part
	for _, row := range results[len(results)-1].Rows {
		n, err := strconv.Atoi(string(row[0]))
		if err != nil || n < 1 || n > len(rows) {
			return fmt.Errorf("row number %q: not one of %d rows", row[0], len(rows))
		}
		if n = rows[n-1]; r.Deletes(n) {
			gone = append(gone, n)
		} else {
			live = append(live, n)
		}
	}
	for try := 1; ; try++ {
		missing, err := r.store(ctx, rows, live, gone, point)
		switch {
		case err != nil || missing < 0:
			return err
		case try == upsertTries:
			return r.NotTaken(missing)
		}
		point = false // it is released
	}
}

// store writes the rows that count, and returns one that is not as it must be; -1: there is none.
func (r *upsertRun) store(ctx context.Context, all, live, gone []int, point bool) (missing int, err error) {
	var b upsertBatch
	written := -1
	if deletes := r.deletesOf(all); len(deletes) > 0 {
		arrays, err := r.keyArrays(deletes, false)
		if err != nil {
			return -1, err
		}
		b.add(r.remove, arrays...)
	}
	checks := make(map[int][]int)
	if len(live) > 0 {
		arrays, err := r.arrays(live)
		if err != nil {
			return -1, err
		}
		b.add(r.insert, arrays...)
		written = len(b.texts) - 1
	}
	for _, c := range []struct {
		text string
		rows []int
	}{{r.absent, live}, {r.present, gone}} {
		if len(c.rows) == 0 {
			continue
		}
		arrays, err := r.keyArrays(c.rows, false)
		if err != nil {
			return -1, err
		}
		checks[len(b.texts)] = c.rows
		b.add(c.text, arrays...)
	}
	if point {
		b.add("RELEASE " + upsertPoint)
	}
	results, err := b.run(ctx, r.conn)
	if err != nil {
		return -1, err
	}
	for i, rows := range checks {
		for _, row := range results[i].Rows {
			if n, err := strconv.Atoi(string(row[0])); err == nil && n >= 1 && n <= len(rows) {
				return rows[n-1], nil
			}
		}
	}
	if r.counted && written >= 0 && results[written].CommandTag.RowsAffected() < int64(len(live)) {
		return -1, errSuppressed
	}
	return -1, nil
}

func (r *upsertRun) deletesOf(all []int) (list []int) {
	for _, i := range all {
		if r.Deletes(i) {
			list = append(list, i)
		}
	}
	return list
}

// upsertBatch is statements for one round trip.
type upsertBatch struct {
	batch pgconn.Batch
	texts []string
}

func (b *upsertBatch) add(text string, arrays ...[]byte) {
	b.texts = append(b.texts, text)
	oids, formats := make([]uint32, len(arrays)), make([]int16, len(arrays))
	for i := range arrays {
		oids[i], formats[i] = textArrayOID, 1
	}
	b.batch.ExecParams(text, arrays, oids, formats, nil)
}

func (b *upsertBatch) run(ctx context.Context, conn *pgx.Conn) ([]*pgconn.Result, error) {
	results, err := conn.PgConn().ExecBatch(ctx, &b.batch).ReadAll()
	if err == nil && len(results) != len(b.texts) {
		err = fmt.Errorf("%d results of %d statements", len(results), len(b.texts))
	}
	return results, err
}
