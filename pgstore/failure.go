package pgstore

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// unavailable reports whether an error is about the state of the database and not
// about the statement: the same statement may succeed later.
func unavailable(err error) bool {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return false
	}
	if encodingFailed(e) {
		return false
	}
	switch e.Code {
	case "55P03", // lock_not_available
		"25P03", "25P04", // idle_in_transaction_session_timeout, transaction_timeout
		"25006": // read_only_sql_transaction: the server has become a standby
		return true
	}
	switch class(e) {
	case "08", // connection exception
		"40", // transaction rollback: deadlock, serialization failure
		"53", // insufficient resources: disk full, too many connections
		"57", // operator intervention: shutdown, query cancelled
		"58", // system error
		"XX": // internal error
		return true
	}
	return false
}

// encodingFailed reports whether a COPY was cancelled by its client, which pgx
// does with a row that it cannot encode.
func encodingFailed(e *pgconn.PgError) bool {
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

// uncertain reports whether the transaction may have been committed although err came instead of the
// answer to its COMMIT. An error of the server says that it was not. But a session may end after the
// commit, and with a pooler the error may be the pooler's, about a server that it has lost.
func uncertain(err error) bool {
	var unsent pgx.ErrPreprocessingBatch
	if errors.As(err, &unsent) || pgconn.SafeToRetry(err) {
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
