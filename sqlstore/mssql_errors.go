package sqlstore

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"
)

// errUndone is the error for a handler that goes on after the server has rolled its transaction
// back.
var errUndone = errors.New("the server has rolled the handler's transaction back, because of an error of a statement that the handler has ignored: return that error")

// errNested is the error for a transaction inside the handler's.
var errNested = errors.New("the handler has begun a transaction inside its own and left it open (BEGIN TRANSACTION without COMMIT in a procedure or dynamic SQL): end it there")

// Numbers of errors,
// https://learn.microsoft.com/en-us/sql/relational-databases/errors-events/database-engine-events-and-errors.
const (
	mssqlUniqueIndex      = 2601
	mssqlUniqueConstraint = 2627
	mssqlUserErrors       = 50000 // and higher: of THROW and RAISERROR
	// mssqlBabelfish stands for every error of Babelfish that has no number.
	mssqlBabelfish = 33557097
)

// mssqlError is an error of the server in one line. It can be compared, unlike the driver's.
type mssqlError struct{ err mssql.Error }

// mssqlErrorOf returns an error of the driver; one of the server as *mssqlError.
func mssqlErrorOf(err error) error {
	if e, ok := err.(mssql.Error); ok {
		return &mssqlError{e}
	}
	return err
}

func (e *mssqlError) Error() string { return strings.ReplaceAll(e.err.Error(), "\n", "; ") }

// Unwrap returns the driver's error.
func (e *mssqlError) Unwrap() error { return e.err }

// mssqlUndone reports whether the driver has refused a statement because the server has ended the
// transaction.
func mssqlUndone(err error) bool {
	e, ok := errors.AsType[mssql.Error](err)
	return ok && e.Number == 0 && strings.Contains(e.Message, "does not have an active transaction")
}

func (mssqlDialect) duplicate(err error) bool {
	e, ok := errors.AsType[mssql.Error](err)
	return ok && (e.Number == mssqlUniqueConstraint || e.Number == mssqlUniqueIndex)
}

// fault goes by the gravest of the errors that a batch has returned.
func (mssqlDialect) fault(err error) fault {
	if server := (mssql.ServerError{}); errors.As(err, &server) {
		return faultBroken
	}
	e, ok := errors.AsType[mssql.Error](err)
	if !ok {
		var network net.Error
		var stream mssql.StreamError
		if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
			errors.As(err, &stream) || errors.As(err, &network) {
			return faultBroken
		}
		return faultStatement
	}
	f := mssqlFault(e)
	for _, other := range e.All {
		if of := mssqlFault(other); of.outage() {
			f = max(f, of)
		}
	}
	return f
}

func mssqlFault(e mssql.Error) fault {
	if e.Number == mssqlBabelfish {
		return babelfishFault(e.Message)
	}
	if e.Number >= mssqlUserErrors {
		return faultStatement
	}
	switch e.Number {
	case 0, 3998, 3999: // of the driver, or of a transaction that another error has doomed
		return faultStatement
	case mssqlUniqueIndex, mssqlUniqueConstraint, 515, 547, 548, 550, 513, // keys, NULL, checks, views, rules
		220, 232, 241, 242, 245, 248, 295, 296, 511, 1946, 2628, 3930, 8114, 8115, 8134, 8152, 8169, 8170, 9803: // values that do not fit
		return faultConstraint
	case 1205, 3960, 3961, 41301, 41302, 41305, 41325, 41839: // deadlock, conflicts of snapshots
		return faultBusy
	case 1222, 1204, 3958, 5245, // lock time-out, no locks, versions
		1101, 1105, 3959, 9002, 40544, // no room
		701, 802, 8645, 8651, 8657, 8902, 41805, 41823, 41840, // no memory
		10928, 10929, 10936, 40501, 49918, 49919, 49920, 14258, // too many requests
		3906, 3908, 924, 926, 927, 942, 945, 952, 955, 976, 978, 979, 982, 983, 41142, // read-only, replica, recovery
		4060, 4221, 18401, 40532, 40615, 42108, 42109, 42119, 47132: // no login now
		return faultRefused
	case 102, 105, 109, 110, 111, 137, 156, 195, 201, 206, 207, 208, 209, 213, 257, 271, 334, 402, 468, 489,
		544, 1088, 1934, 2812, 4104, 4121, 8102, 8116, 8117, 8144, 8145, 8178, // names, types, syntax
		229, 230, 262, 297, 300, 916, // rights
		911, 4063, 4064, 18452, 18456, 18470, 18486, 18487, 18488: // login
		return faultOpen
	case 596, 617, 823, 824, 825, 832, 984, 1236, 3314, 5011, 6005, 6006, 9001, 17142, 17197, // shutdown, KILL, disk
		40143, 40166, 40197, 40540, 40545, 40549, 40550, 40551, 40552, 40553, 40613, 40627, 40642, 40648, 40671, 40675: // Azure: failover, session ended
		return faultBroken
	}
	switch {
	case e.Class >= 20, e.Class == 18: // the session is over; an error inside the server
		return faultBroken
	case e.Class == 17, e.Class == 19: // no resources
		return faultRefused
	}
	return faultUnknown
}

// babelfishFault goes by the text of PostgreSQL, because Babelfish gives these errors no number.
func babelfishFault(text string) fault {
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("does not exist", "syntax error", "permission denied", "not currently supported"):
		return faultOpen
	case has("invalid input syntax", "out of range", "too long"):
		return faultConstraint
	case has("read-only transaction", "No space left", "remaining connection slots"):
		return faultRefused
	case has("terminating connection", "shutting down", "starting up", "could not read", "could not write"):
		return faultBroken
	}
	return faultUnknown
}

func (d mssqlDialect) hint(err error) string {
	e, ok := errors.AsType[mssql.Error](err)
	if !ok {
		return mssqlNetworkHint(err)
	}
	if hint, found := mssqlHints[e.Number]; found {
		return hint
	}
	if d.fault(err) == faultOpen {
		return "create what is missing, grant the right, or correct the statement"
	}
	return ""
}

const (
	mssqlNoWrites = "it accepts no writes: check whether it is a replica"
	mssqlTooMany  = "too many requests at once: lower the pools' sizes, or raise the database's service objective"
)

var mssqlHints = map[int32]string{
	911:   "create the database, or correct its name",
	1222:  "another transaction holds the row: look for a paused process or a long transaction (sys.dm_exec_requests, column blocking_session_id), and KILL its session",
	1105:  "free some room in its files",
	1946:  "the value is too long for an index",
	3906:  mssqlNoWrites,
	4060:  "create the database or correct its name; if it is there, give the login a user in it (CREATE USER name FOR LOGIN name)",
	468:   "compare texts of one collation: add COLLATE to the statement",
	9002:  "free some room in its log",
	10928: mssqlTooMany,
	10929: mssqlTooMany,
	18456: "check user and password; an identity of Entra ID needs a user in the database (CREATE USER [name] FROM EXTERNAL PROVIDER)",
	40501: mssqlTooMany,
	40544: "the database has reached its size: raise the limit, or delete rows",
	40613: "the database moves to another node, or resumes after a pause: wait a minute; if it stays so, check its state in the Azure portal",
	40615: "add a rule for it to the server's firewall (Azure portal, Networking)",
}

// mssqlNetworkHint says what to do about a server that cannot be reached. The driver makes a text
// of the error of a certificate.
func mssqlNetworkHint(err error) string {
	switch {
	case err == nil:
		return ""
	case undialled(err):
		return checkHost
	case strings.Contains(err.Error(), "x509: "):
		return "add certificate=FILE to the URL, with the certificate of the server's authority, and connect by a name that the server's certificate has"
	case strings.Contains(err.Error(), "server does not support encryption"):
		return "configure TLS in the server"
	}
	return ""
}
