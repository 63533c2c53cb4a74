package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	"github.com/sluice-go/sluice/internal/keyed"
	"github.com/sluice-go/sluice/internal/tables"
)

// dialect is what differs between databases.
type dialect interface {
	// statements is the dialect's SQL.
	statements() *statements
	// savepoint is a nested transaction of this name.
	savepoint(name string) savepoint
	// steps are the migrations of a component, oldest first; none if it is ready.
	steps(component string) []step
	// script divides a migration into what one call can execute.
	script(text string) []string
	// fault says what an error of the driver means.
	fault(err error) fault
	// duplicate reports whether an error says that there is a row with this key.
	duplicate(err error) bool
	// txOptions are how a transaction begins; nil if there is no choice.
	txOptions() *sql.TxOptions
	// hint says in a few words what to do about an error; it may be empty.
	hint(err error) string
	// rebind replaces each ? of a statement by the driver's placeholder.
	rebind(query string) string
	// quote quotes the name of a table or column.
	quote(name string) string
	// first is a condition that selects, of the dead letters that meet cond,
	// those with the lowest IDs, at most ? of them.
	first(cond string) string
	// variables is how many placeholders a statement can have.
	variables() int
	// inserting returns the verb with which Tx.Insert writes to a table, and whether the database
	// then counts the rows that the table has taken.
	inserting(ctx context.Context, q querier, table string) (verb string, counted bool, err error)
	// safe returns a driver.UnsafeTableError of Sluice for a table whose rows do not come and go
	// with their transaction. Tx.Insert calls it before its first rows of a table.
	safe(ctx context.Context, q querier, table string) error
	// kept reports whether a rollback, the last statement of a connection, has kept some of the
	// handler's writes.
	kept(ctx context.Context, q querier) (bool, error)
	// chunk is how many rows one INSERT of Tx.Insert has at most.
	chunk() int
	// catalog describes the columns of tables; nil: what writes to a table compares them itself.
	catalog() *tables.Catalog
	// bulk writes rows in a faster way than INSERT, all or none of them, and reports whether it has
	// tried to. The table has the columns of.
	bulk(ctx context.Context, q querier, table string, of []tables.Column, columns []string, rows [][]any) (done bool, err error)
	// keyFits returns a driver.NoKeyError for a table that has not the key of a write. [Tx.Upsert]
	// calls it before its first rows of a table.
	keyFits(ctx context.Context, q querier, w *keyed.Write) error
	// upsert writes rows by key.
	upsert(ctx context.Context, t *Tx, w *keyed.Write) error
	// park stores dead letters, whose columns are those of Park, in a faster way than Park does,
	// and reports whether it has tried to.
	park(ctx context.Context, tx querier, rows [][]any) (done bool, err error)
	// time is a time as an argument of a statement.
	time(t time.Time) any
	// ends reports whether a statement would end the transaction of a connection; false where the
	// watch is asked before each commit.
	ends(conn driver.Conn, query string) bool
	// lock executes Lock, with its arguments, and reports whether it has found the checkpoint.
	lock(ctx context.Context, t *transaction, args []any) (bool, error)
	// guard marks a transaction before the handler's first statement. [Tx.Insert] needs no mark:
	// what it sends cannot end the transaction, or lock has made the mark.
	guard(ctx context.Context, t *transaction) error
	// intact returns errEnded if the handler has ended the transaction that is marked, and another
	// has begun or none: what the handler wrote may be committed. It returns errUndone if the
	// database has rolled it back; and errNested if another has begun inside it. It comes before
	// the commit, and after a handler's error.
	intact(ctx context.Context, t *transaction) error
}

// fault is what an error of the database means.
type fault uint8

const (
	// faultStatement: it is no error of the database, or one by which a trigger or the store itself
	// refuses what was written.
	faultStatement fault = iota
	// faultVetoed: the watch refused the commit.
	faultVetoed
	// faultConstraint: what was written violates a constraint, or does not fit.
	faultConstraint
	// faultOpen: the statement names something that is missing or may not be used, or cannot be
	// understood. It may fail with any values, or with these alone.
	faultOpen
	// faultUnknown: an error of the database that is not known here. It counts as faultOpen, except
	// in a commit.
	faultUnknown
	// faultBusy: another process holds the database, or has won a deadlock. The same transaction
	// can succeed at once.
	faultBusy
	// faultRefused: the database could not do it now, and did nothing.
	faultRefused
	// faultTimeLimit: a limit of the database on the time of a statement passed.
	faultTimeLimit
	// faultBroken: the database failed; the outcome of a commit is unknown.
	faultBroken
)

// outage reports whether the database failed, and not the statement.
func (f fault) outage() bool { return f >= faultBusy && f != faultTimeLimit }

// open reports whether only another event shows whether the event or the statement is the cause.
func (f fault) open() bool { return f == faultOpen || f == faultUnknown }
