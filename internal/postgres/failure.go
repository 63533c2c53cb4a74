package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// OutageIn returns PostgreSQL's error in err if it is not the event's fault: it is about the state of
// the database, about the statement itself, or about a right. The same write may succeed later.
// Otherwise it returns nil.
func OutageIn(err error) *pgconn.PgError {
	var e *pgconn.PgError
	if !errors.As(err, &e) || EncodingFailed(e) {
		return nil
	}
	if ColumnsChanged(e) || e.Code == unsafeTable {
		return e
	}
	switch e.Code {
	case "55P03", // lock_not_available
		"25P03", "25P04", // idle_in_transaction_session_timeout, transaction_timeout
		"25006": // read_only_sql_transaction: the server has become a standby
		return e
	}
	switch class(e) {
	case "08", // connection exception
		"40", // transaction rollback: deadlock, serialization failure
		"53", // insufficient resources: disk full, too many connections
		"57", // operator intervention: shutdown, query cancelled
		"58", // system error
		"XX": // internal error
		return e
	}
	if StatementFault(e) {
		return e
	}
	return nil
}

// StatementFault reports whether an error is about the statement, whatever its values: what it names
// is missing, or may not be used.
func StatementFault(e *pgconn.PgError) bool {
	switch class(e) {
	case "42", // syntax error or access rule violation: no such table or column, no right
		"3F", // invalid schema name
		"0A": // feature not supported
		return true
	}
	return noPartition(e)
}

// noPartition reports whether a partitioned table has no partition for a row. PostgreSQL gives that
// the code of a violated check, without the name of one.
func noPartition(e *pgconn.PgError) bool { return e.Code == "23514" && e.ConstraintName == "" }

// TimeLimit reports whether a time limit of PostgreSQL has passed.
func TimeLimit(e *pgconn.PgError) bool {
	switch e.Code {
	case "57014", // statement_timeout, or cancelled by an operator
		"25P03", "25P04": // idle_in_transaction_session_timeout, transaction_timeout
		return true
	}
	return false
}

// Advice says what to do about an error that is not the event's fault; it may be empty.
func Advice(e *pgconn.PgError) string {
	var do string
	switch {
	case ColumnsChanged(e):
		return "the columns are read again, and the batch is repeated"
	case e.Code == "25006":
		return "the server accepts no writes: check whether it is a standby"
	case !StatementFault(e):
		return ""
	case noPartition(e):
		do = "the table has no partition for this row: create it, or a default partition"
	case e.Code == "42P01":
		do = "a table is missing: create it, or correct its name"
	case e.Code == datatypeMismatch:
		do = "a column has another type: change it, or what is written to it"
	case e.Code == "42703":
		do = "a column is missing: create it, or correct its name"
	case e.Code == "42883":
		do = "a function is missing: create it, or correct its name and arguments"
	case e.Code == "42501":
		do = "the database user lacks a right: grant it"
	case class(e) == "3F":
		do = "a schema is missing: create it, or correct search_path"
	default:
		do = "correct the statement"
	}
	return do + "; events wait, none is a dead letter"
}

// EncodingFailed reports whether a COPY was cancelled by its client, which pgx
// does with a row that it cannot encode.
func EncodingFailed(e *pgconn.PgError) bool {
	return e.Code == "57014" && e.Routine == "CopyGetData"
}

// closeIfReadOnly makes a handler of errors that closes a connection whose server accepts no writes,
// so that the pool connects again: after a failover its connections may be those of the old primary.
// Inside a transaction the error is about the statement, and the connection stays.
func closeIfReadOnly(keep pgconn.PgErrorHandler) pgconn.PgErrorHandler {
	return func(conn *pgconn.PgConn, e *pgconn.PgError) bool {
		// BEGIN READ WRITE fails with feature_not_supported on a standby.
		readOnly := e.Code == "25006" || e.Code == "0A000"
		return keep(conn, e) && (!readOnly || conn.TxStatus() != 'I')
	}
}

func class(e *pgconn.PgError) string { return e.Code[:min(2, len(e.Code))] }

// Uncertain reports whether the transaction may have been committed although err came instead of the
// answer to its COMMIT. An error of the server says that it was not. But a session may end after the
// commit, and with a pooler the error may be the pooler's, about a server that it has lost.
func Uncertain(err error) bool {
	var unsent pgx.ErrPreprocessingBatch
	// In the simple protocol pgx also says "conn closed" of a connection that was lost after the COMMIT was
	// sent, and that nothing was.
	if errors.As(err, &unsent) || pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed) {
		return false
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		fatal := e.Severity == "FATAL" || e.Severity == "PANIC" || e.SeverityUnlocalized == "FATAL" || e.SeverityUnlocalized == "PANIC"
		switch {
		case e.Code == "25P03": // only a session that waits for a statement is ended so
			return false
		case e.Code == "40003", class(e) == "08": // statement_completion_unknown
			return true
		}
		return fatal
	}
	return true
}
