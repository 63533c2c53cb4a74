package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/keyed"
)

// Upsert writes rows by key, see [driver.Keyed]. The values go as text, as in [Copy]. First the
// server says which rows count, because only it knows which keys are equal, and which of them
// exist. Then those that are new are copied, if they are many; the others are inserted or updated,
// sorted by key; and in the same round trip those are looked for of which nothing else says that
// the table has them.
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

// RunTx runs the write in a transaction.
func (u *Upsert) RunTx(ctx context.Context, tx pgx.Tx) error {
	if own, ok := tx.(Upserter); ok {
		return own.UpsertRows(ctx, u)
	}
	return u.Run(ctx, tx.Conn())
}

const (
	// upsertRows is how many rows a part has at most.
	upsertRows = 20_000
	// insertBytes is the size of texts from which on one INSERT takes no further row.
	insertBytes = 512 << 10
	// upsertCopied is from how many new rows on a COPY, which has a round trip more, is worth it.
	upsertCopied = 100
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
	buffers := upsertBuffers.Get().(*[][]byte)
	defer upsertBuffers.Put(buffers)
	r := &upsertRun{Upsert: u, conn: conn, known: known, keyedTable: table, buffers: buffers}
	for part := range slices.Chunk(u.All(), upsertRows) {
		if err := keyed.Narrow(part, func(rows []int) error { return r.write(ctx, rows) }, refusesRow); err != nil {
			if e, ok := errors.AsType[*pgconn.PgError](err); ok {
				if changed := known.changed(e); changed != nil {
					return changed
				}
			}
			return err
		}
	}
	return nil
}

// refusesRow reports whether an error may be that of one row.
func refusesRow(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return err == errSuppressed || ok && OutageIn(e) == nil && !StatementFault(e) && !TimeLimit(e) && e.Code != "25P02"
}

// upsertBuffers are those of writes that have ended.
var upsertBuffers = sync.Pool{New: func() any { return new([][]byte) }}

// upsertRun is an Upsert on a connection.
type upsertRun struct {
	*Upsert
	*keyedTable
	conn  *pgx.Conn
	known *knownTable

	buffers *[][]byte // of arrays
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
	e, answered := errors.AsType[*pgconn.PgError](err)
	if err == nil || r.conn.PgConn().TxStatus() != 'E' || answered && (OutageIn(e) != nil || TimeLimit(e)) {
		return err
	}
	if back := r.conn.PgConn().Exec(ctx, "ROLLBACK TO "+upsertPoint+"; RELEASE "+upsertPoint).Close(); back != nil {
		return errors.Join(err, back)
	}
	if !answered || refusesRow(err) {
		return err
	}
	return r.tryWrite(ctx, rows, false)
}

func (r *upsertRun) tryWrite(ctx context.Context, rows []int, point bool) error {
	var list []upsertStatement
	if point {
		list = append(list, upsertStatement{text: "SAVEPOINT " + upsertPoint})
	}
	list = append(list, upsertStatement{text: r.known.lock}, upsertStatement{text: r.known.compare}, upsertStatement{text: r.exact},
		upsertStatement{text: r.reduce, rows: rows, columns: r.keyColumns(), deletes: r.AnyDelete()})
	results, err := r.run(ctx, list, point)
	if err != nil {
		return err
	}
	last := len(results) - 1
	counts, err := r.countOf(results[last].rows, rows)
	if err != nil {
		return err
	}
	exact := len(results[last-1].rows) == 1 && string(results[last-1].rows[0][0]) == "t"
	upserts, looked := counts.live, counts.live
	if exact && r.counted {
		looked = nil
	}
	if len(counts.fresh) >= upsertCopied && !slices.ContainsFunc(rows, r.Deletes) {
		if upserts = counts.existing; r.OnConflict == driver.Skip {
			upserts = nil
		}
		if exact && !r.counted {
			looked = counts.existing
		}
		if err := r.copy(ctx, counts.fresh); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		missing, err := r.store(ctx, counts, upserts, looked, point)
		switch {
		case err != nil || missing < 0:
			return err
		case try == upsertTries:
			return r.NotTaken(missing)
		}
		point, upserts, looked = false, counts.live, counts.live // it is released
	}
}

// upsertCounts are the rows of a part that count.
type upsertCounts struct {
	live, gone      []int // what each key is after the part
	fresh, existing []int // the live ones as they were before it
	deletes         []int // gone, and those before a live one
}

// countOf reads the result of reduce.
func (r *upsertRun) countOf(result [][][]byte, rows []int) (c upsertCounts, err error) {
	for _, row := range result {
		n, err := strconv.Atoi(string(row[0]))
		if err != nil || n < 1 || n > len(rows) {
			return c, fmt.Errorf("row number %q: not one of %d rows", row[0], len(rows))
		}
		n = rows[n-1]
		exists, before := string(row[1]) == "t", string(row[2]) == "t"
		switch {
		case r.Deletes(n):
			c.deletes = append(c.deletes, n)
			if !before {
				c.gone = append(c.gone, n)
			}
			continue
		case exists:
			c.existing = append(c.existing, n)
		default:
			c.fresh = append(c.fresh, n)
		}
		c.live = append(c.live, n)
	}
	if r.OnConflict != driver.Newer {
		c.deletes = r.deletesOf(rows)
	}
	return c, nil
}

// copy writes rows that are new. If another transaction has inserted one meanwhile, the part is
// written again in smaller ones, which find it.
func (r *upsertRun) copy(ctx context.Context, rows []int) error {
	c := &Copy{Table: r.Table, Columns: r.Columns, Row: func(i int) ([]any, error) {
		if i == len(rows) {
			return nil, io.EOF
		}
		return r.Rows[rows[i]], nil
	}}
	n, err := c.Run(ctx, r.conn)
	if refused, named := errors.AsType[*CopyError](err); named {
		if _, answered := errors.AsType[*pgconn.PgError](refused.Err); answered {
			return refused.Err // in which order the rows are written may matter
		}
		return &keyed.RowError{Row: rows[refused.Row], Err: refused.Err}
	}
	if err == nil && n != int64(len(rows)) {
		return errSuppressed
	}
	return err
}

// store writes the rows upserts, which are all of the live ones or those that are not written yet,
// looks for the rows looked and those that are gone, and returns one that is not as it must be; -1:
// there is none.
func (r *upsertRun) store(ctx context.Context, counts upsertCounts, upserts, looked []int, point bool) (missing int, err error) {
	var list []upsertStatement
	key, gone := r.keyColumns(), counts.gone
	if len(counts.deletes) > 0 {
		list = append(list, upsertStatement{text: r.remove, rows: counts.deletes, columns: key})
	}
	if len(upserts) > 0 {
		list = append(list, upsertStatement{text: r.insert, rows: upserts, columns: r.allColumns(), split: true})
	}
	if len(looked) > 0 {
		list = append(list, upsertStatement{text: r.absent, rows: looked, columns: key, finds: true})
	}
	if len(gone) > 0 {
		list = append(list, upsertStatement{text: r.present, rows: gone, columns: key, finds: true})
	}
	if point {
		list = append(list, upsertStatement{text: "RELEASE " + upsertPoint})
	}
	results, err := r.run(ctx, list, point)
	if err != nil {
		return -1, err
	}
	for i, s := range list {
		switch {
		case s.finds && len(results[i].rows) > 0:
			n, err := strconv.Atoi(string(results[i].rows[0][0]))
			if err != nil || n < 1 || n > len(s.rows) {
				return -1, fmt.Errorf("row number %q: not one of %d rows", results[i].rows[0][0], len(s.rows))
			}
			return s.rows[n-1], nil
		case s.split && r.counted && results[i].affected < int64(len(upserts)):
			err = errSuppressed // if no row is missing
		}
	}
	return -1, err
}

func (r *upsertRun) deletesOf(all []int) (list []int) {
	for _, i := range all {
		if r.Deletes(i) {
			list = append(list, i)
		}
	}
	return list
}

// upsertStatement is a statement whose arguments are arrays of some columns of some rows.
type upsertStatement struct {
	text    string
	rows    []int
	columns []int
	deletes bool // and an array of whether each is a delete
	split   bool // it may be executed several times, each for some of the rows
	finds   bool // its result is the number of a row that is not as it must be
}

// upsertResult is the result of a statement.
type upsertResult struct {
	rows     [][][]byte
	affected int64
	times    int // that it was sent
}

// run executes statements in one round trip. The arrays of one are made while the server executes
// those before it.
func (r *upsertRun) run(ctx context.Context, list []upsertStatement, point bool) ([]upsertResult, error) {
	pipeline := r.conn.PgConn().StartPipeline(ctx)
	results := make([]upsertResult, len(list))
	for i, s := range list {
		times, err := r.send(pipeline, s)
		if err != nil {
			return nil, cmp.Or(r.unsend(ctx, pipeline, point), err)
		}
		results[i].times = times
	}
	if err := pipeline.Sync(); err != nil {
		return nil, cmp.Or(pipeline.Close(), err)
	}
	for i := range results {
		for range results[i].times {
			answer, err := pipeline.GetResults()
			if reader, ok := answer.(*pgconn.ResultReader); err == nil && ok {
				result := reader.Read()
				err = result.Err
				results[i].rows = result.Rows
				results[i].affected += result.CommandTag.RowsAffected()
			} else if err == nil {
				err = fmt.Errorf("%T is no result of a statement", answer)
			}
			if err != nil {
				pipeline.Close() // reads the rest
				return nil, err
			}
		}
	}
	return results, pipeline.Close()
}

// send sends a statement, and returns how often.
func (r *upsertRun) send(pipeline *pgconn.Pipeline, s upsertStatement) (times int, err error) {
	for rest := s.rows; times == 0 || len(rest) > 0; times++ {
		arrays, n, err := r.encode(rest, s)
		if err != nil {
			return 0, err
		}
		oids, formats := make([]uint32, len(arrays)), make([]int16, len(arrays))
		for i := range arrays {
			oids[i], formats[i] = textArrayOID, 1
		}
		pipeline.SendQueryParams(s.text, arrays, oids, formats, nil)
		if err := pipeline.Flush(); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return times, nil
}

// unsend undoes statements that were sent before the arrays of another could not be made.
func (r *upsertRun) unsend(ctx context.Context, pipeline *pgconn.Pipeline, point bool) error {
	if err := pipeline.Close(); err != nil || !point || r.conn.PgConn().TxStatus() != 'T' {
		return err
	}
	return r.conn.PgConn().Exec(ctx, "ROLLBACK TO "+upsertPoint+"; RELEASE "+upsertPoint).Close()
}
