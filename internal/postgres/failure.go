package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// OutageIn returns PostgreSQL's error in err if it is about the state of the database, whatever the
// statement and its values: the same write may succeed later. Otherwise it returns nil.
func OutageIn(err error) *pgconn.PgError {
	var e *pgconn.PgError
	if !errors.As(err, &e) || EncodingFailed(e) {
		return nil
	}
	if ColumnsChanged(e) || e.Code == unsafeTable || e.Code == unfitColumn || sessionEnded(e) {
		return e
	}
	switch e.Code {
	case "55P03", // lock_not_available
		"25P03", "25P04", // idle_in_transaction_session_timeout, transaction_timeout
		"25006", // read_only_sql_transaction: the server has become a standby
		"08000", "08003", "08006", "08001", "08004", "08007":
		return e
	}
	switch class(e) {
	case "40", // transaction rollback: deadlock, serialization failure
		"53", // insufficient resources: disk full, too many connections
		"57": // operator intervention: shutdown, query cancelled
		return e
	}
	return nil
}

// sessionEnded reports whether an error has ended the session.
func sessionEnded(e *pgconn.PgError) bool {
	for _, severity := range []string{e.Severity, e.SeverityUnlocalized} {
		if severity == "FATAL" || severity == "PANIC" {
			return true
		}
	}
	return false
}

// StatementFault reports whether an error that is no outage may be every event's: what the
// statement names is missing or may not be used, or it fails inside the server. One event's values
// may be the cause too: a bad search term is a syntax error, a trigger may write to a table that
// its values name. The code does not say which.
//
// Only codes that PostgreSQL itself has count,
// https://www.postgresql.org/docs/current/errcodes-appendix.html:
// others are those of a trigger or function that refuses the values.
func StatementFault(e *pgconn.PgError) bool {
	switch class(e) {
	case "08", "09", "0A", "0B", "0L", "0P", "20", "24", "25", "26", "28", "2B", "2D", "34", "38", "39", "3B", "3D", "3F",
		"42", // syntax error or access rule violation: no such table or column, no right, or a row that a policy refuses
		"55", "58", "72", "F0", "HV", "XX":
		return OutageIn(e) == nil && e.Code != "25P02" // which follows from another
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

// Advice says what to do about an error that is an outage or a [StatementFault]; it may be empty.
func Advice(e *pgconn.PgError) string {
	switch {
	case ColumnsChanged(e):
		return "the columns are read again, and the batch is repeated"
	case e.Code == unfitColumn:
		return "events wait, none is a dead letter"
	case e.Code == "25006":
		return "the server accepts no writes: check whether it is a standby"
	case !StatementFault(e):
		return ""
	case noPartition(e):
		return "the table has no partition for this row: create it, or a default partition"
	case e.Code == "42P01":
		return "a table is missing: create it, or correct its name"
	case e.Code == datatypeMismatch:
		return "a column has another type: change it, or what is written to it"
	case e.Code == "42703":
		return "a column is missing: create it, or correct its name"
	case e.Code == "42883":
		return "a function is missing: create it, or correct its name and arguments"
	case e.Code == "42501":
		return "the database user lacks a right, or a row-level policy refuses the row: grant the right, or change the policy"
	case class(e) == "3F":
		return "a schema is missing: create it, or correct search_path"
	case class(e) == "42", class(e) == "0A":
		return "correct the statement"
	}
	return ""
}

// EncodingFailed reports whether a COPY was cancelled by its client, which pgx
// does with a row that it cannot encode.
func EncodingFailed(e *pgconn.PgError) bool {
	return e.Code == "57014" && e.Routine == "CopyGetData"
}

// closeIfReadOnly makes a handler of errors that closes a connection whose server accepts no
// writes, so that the pool connects again: after a failover its connections may be those of the old
// primary. Inside a transaction the error is about the statement, and the connection stays.
func closeIfReadOnly(keep pgconn.PgErrorHandler) pgconn.PgErrorHandler {
	return func(conn *pgconn.PgConn, e *pgconn.PgError) bool {
		// BEGIN READ WRITE fails with feature_not_supported on a standby.
		readOnly := e.Code == "25006" || e.Code == "0A000"
		return keep(conn, e) && (!readOnly || conn.TxStatus() != 'I')
	}
}

func class(e *pgconn.PgError) string { return e.Code[:min(2, len(e.Code))] }

// Uncertain reports whether the transaction may have been committed although err came instead of
// the answer to its COMMIT. An error of the server says that it was not. But a session may end
// after the commit, and with a pooler the error may be the pooler's, about a server that it has
// lost.
func Uncertain(err error) bool {
	var unsent pgx.ErrPreprocessingBatch
	// In the simple protocol pgx also says "conn closed" of a connection that was lost after the
	// COMMIT was sent, and that nothing was.
	if errors.As(err, &unsent) || pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed) {
		return false
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch {
		case e.Code == "25P03": // only a session that waits for a statement is ended so
			return false
		case e.Code == "40003", class(e) == "08": // statement_completion_unknown
			return true
		}
		return sessionEnded(e)
	}
	return true
}
