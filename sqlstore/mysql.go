package sqlstore

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sluice-go/sluice/internal/tables"
)

// OpenMySQL opens the database at address in a server of MySQL 8.0.19 or later, or MariaDB 10.6 or
// later, and brings its tables up to date. address is a URL such as
// mysql://user:password@host:3306/database or mariadb://…, whose parameters are those of
// github.com/go-sql-driver/mysql, or that driver's own form. tls=true encrypts and checks the server's
// certificate; a URL's parameter tls_ca_file=FILE does so with certificates to trust besides the
// system's. The context is for opening only. Errors never contain the password. A nil cfg takes every
// default.
//
// A handler must close the rows of a query before its next statement: MySQL's connections take one
// at a time.
//
// Tx.Insert loads 100 rows or more by LOAD DATA LOCAL INFILE, from memory, where the server's
// variable local_infile is on; MySQL's default is off.
//
// The tables must be InnoDB's. A handler's transaction is READ COMMITTED, and its session is
// strict: a value that does not fit is an error. Settings that a handler makes with SET SESSION
// stay with the connection. Statements that MySQL commits by itself (CREATE TABLE, TRUNCATE, LOCK
// TABLES and so on) are refused in a handler; one that a stored procedure contains is found before
// the commit, and the checkpoint does not move.
func OpenMySQL(ctx context.Context, address string, cfg *ServerConfig) (*Store, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	mc, err := mysqlConfig(address, c)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(mc)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", mysqlName(mc), err)
	}
	db := sql.OpenDB(patientConnector{connector, mc.Timeout})
	defer db.Close()
	d, err := mysqlDialectOf(ctx, db)
	if err != nil {
		return nil, outage(ctx, mysqlDialect{}, mysqlName(mc), "connect", err)
	}
	d.unit = mysqlTimeUnit(mc)
	return openServer(ctx, mysqlName(mc), mysqlConnector{connector}, d, c)
}

// mysqlDialectOf returns the dialect of a server, and refuses servers that are too old.
func mysqlDialectOf(ctx context.Context, db querier) (d mysqlDialect, err error) {
	var version string
	if _, err := one(ctx, db, "SELECT VERSION(), @@local_infile", nil, &version, &d.load); err != nil {
		return d, err
	}
	d.collation, err = mysqlCollation(version)
	return d, err
}

// The collations in which texts are equal only if their bytes are.
const (
	mysqlBinary   = "utf8mb4_0900_bin"
	mariadbBinary = "utf8mb4_nopad_bin"
)

// mysqlCollation returns the collation of a server's version in which texts are equal only if their
// bytes are.
func mysqlCollation(version string) (string, error) {
	mariaDB := strings.Contains(version, "MariaDB")
	numbers := mysqlVersion.FindStringSubmatch(version)
	if numbers == nil {
		return "", fmt.Errorf("its version %q is not a number: is it MySQL or MariaDB?", version)
	}
	number := 0
	for _, part := range numbers[1:] {
		n, _ := strconv.Atoi(part) // digits
		number = number*1000 + n
	}
	switch {
	case mariaDB && number < 10_006_000:
		return "", fmt.Errorf("MariaDB %s is too old: upgrade it to 10.6 or later", version)
	case mariaDB:
		return mariadbBinary, nil
	case number < 8_000_019:
		return "", fmt.Errorf("MySQL %s is too old: upgrade it to 8.0.19 or later", version)
	}
	return mysqlBinary, nil
}

var mysqlVersion = regexp.MustCompile(`^(\d{1,3})\.(\d{1,3})\.(\d{1,3})`)

type mysqlDialect struct {
	collation string
	load      bool          // the server takes LOAD DATA LOCAL
	unit      time.Duration // that the driver cuts times to; 0: none
}

func (mysqlDialect) inserting(context.Context, querier, string) (string, bool, error) {
	return "INSERT", true, nil
}

func (mysqlDialect) savepoint(name string) savepoint { return standardSavepoint(name) }

func (mysqlDialect) statements() *statements         { return mysqlStatements }
func (d mysqlDialect) steps(component string) []step { return mysqlSteps(component, d.collation) }
func (mysqlDialect) rebind(query string) string      { return mysqlQuoted(query) }
func (mysqlDialect) variables() int                  { return math.MaxUint16 }
func (mysqlDialect) chunk() int                      { return 500 }

func (mysqlDialect) safe(ctx context.Context, q querier, table string) error {
	return tables.CheckMySQL(ctx, q, table)
}

func (mysqlDialect) catalog() *tables.Catalog { return tables.MySQL }

// kept: a table without transactions keeps what a rollback should undo, with a warning,
// https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html#error_er_warning_not_complete_rollback.
func (mysqlDialect) kept(ctx context.Context, q querier) (bool, error) {
	rows, err := q.QueryContext(ctx, "SHOW WARNINGS")
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		var level, text string
		var code int
		if err := rows.Scan(&level, &code, &text); err != nil {
			return false, err
		}
		if code == 1196 {
			return true, nil
		}
	}
	return false, rows.Err()
}

// txOptions are those of the session, see [mysqlIsolation].
func (mysqlDialect) txOptions() *sql.TxOptions { return nil }

func (mysqlDialect) script(text string) []string {
	var list []string
	for statement := range strings.SplitSeq(text, ";\n") {
		if strings.TrimSpace(statement) != "" {
			list = append(list, statement)
		}
	}
	return list
}

func (mysqlDialect) quote(name string) string {
	return "`" + strings.ReplaceAll(clean(name), "`", "``") + "`"
}

// first reads the table through a derived one, because MySQL does not change a table that the same
// statement reads.
func (mysqlDialect) first(cond string) string {
	return "id IN (SELECT id FROM (SELECT id FROM sluice_dead_letters WHERE " + cond + " ORDER BY id LIMIT ?) AS list)"
}

// time is text: years that a column cannot hold become the nearest one that it can, as in SQLite.
func (mysqlDialect) time(t time.Time) any { return storable(t).Format("2006-01-02 15:04:05.000000") }

// ends reports whether a statement ends the transaction by its first word: by itself, or because
// MySQL commits before it, https://dev.mysql.com/doc/refman/8.4/en/implicit-commit.html. Intact finds
// those that a procedure contains.
func (mysqlDialect) ends(_ driver.Conn, query string) bool {
	words := mysqlWords.FindStringSubmatch(query)
	if words == nil {
		return false
	}
	first, second := strings.ToUpper(words[1]), strings.ToUpper(words[2])
	switch first {
	case "CREATE", "DROP":
		return second != "TEMPORARY"
	case "ROLLBACK":
		return second != "TO" && !(second == "WORK" && mysqlRollbackTo.MatchString(query))
	case "SET":
		return second == "PASSWORD" || mysqlAutocommit.MatchString(query)
	case "START", "LOCK":
		return second != "INSTANCE"
	case "LOAD":
		return second == "INDEX"
	case "ALTER", "RENAME", "TRUNCATE", "GRANT", "REVOKE", "BEGIN", "COMMIT", "XA",
		"INSTALL", "UNINSTALL", "ANALYZE", "CACHE", "CHECK", "OPTIMIZE", "REPAIR", "FLUSH", "RESET", "STOP", "CHANGE":
		return true
	}
	return false
}

var (
	mysqlWords      = regexp.MustCompile(`(?s)^(?:\s|--[^\n]*\n|#[^\n]*\n|/\*[^!].*?\*/)*(?:/\*!\d*\s*)?([A-Za-z]+)(?:\s+@?@?([A-Za-z_]+))?`)
	mysqlAutocommit = regexp.MustCompile(`(?i)\bautocommit\s*:?=`)
	mysqlRollbackTo = regexp.MustCompile(`(?i)^\s*ROLLBACK\s+WORK\s+TO\b`)
)

// guard makes a savepoint of a name that the handler does not know: every end of the transaction
// removes it.
func (mysqlDialect) guard(ctx context.Context, t *transaction) error {
	mark := "sluice_" + rand.Text()
	_, err := t.ExecContext(ctx, "SAVEPOINT "+mark)
	if err == nil {
		t.mark = mark
	}
	return err
}

func (d mysqlDialect) lock(ctx context.Context, t *transaction, args []any) (bool, error) {
	return one(ctx, t, d.statements().Lock, args, new(int))
}

// intact has nothing to ask about a transaction in which only [Tx.Insert] has written: neither INSERT nor
// LOAD DATA commits, and no trigger may.
func (mysqlDialect) intact(ctx context.Context, t *transaction) error {
	if t.mark == "" {
		return nil
	}
	_, err := t.ExecContext(ctx, "RELEASE SAVEPOINT "+t.mark)
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == mysqlNoSavepoint {
		return errEnded
	}
	return err
}

// The numbers of errors, https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html and
// https://mariadb.com/kb/en/mariadb-error-code-reference/.
const (
	mysqlDuplicate   = 1062
	mysqlUnknown     = 1105 // its text says what has failed
	mysqlSignal      = 1644 // SIGNAL in a trigger or procedure
	mysqlNoSavepoint = 1305
)

func (mysqlDialect) duplicate(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && e.Number == mysqlDuplicate
}

func (mysqlDialect) fault(err error) fault {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		var network net.Error
		if errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, sql.ErrConnDone) || errors.As(err, &network) {
			return faultBroken
		}
		return faultStatement
	}
	if e.Number == mysqlUnknown && strings.Contains(e.Message, "max_allowed_packet") {
		return faultConstraint
	}
	switch e.Number {
	case 1022, 1048, 1062, 1169, 1216, 1217, 1364, 1451, 1452, 1557, 1586, 1761, 1762, 3819, 4025, // keys, NULL, checks
		1264, 1265, 1292, 1366, 1406, 1690, 3140, 3141, 1411: // values that do not fit
		return faultConstraint
	case 1213, 1020, // deadlock, a row that has changed since it was read
		3101: // group replication: a conflict at the commit
		return faultBusy
	case 1205, 1206, // lock wait time-out, too many locks
		1290, 1792, 1836, 3100, // read-only, as after a failover
		1021, 1114, 1037, 1038, 1041, // no room
		1040, 1203, 1226, 1129: // too many connections
		return faultRefused
	case 1969, 3024: // max_statement_time, max_execution_time
		return faultTimeLimit
	case 1044, 1045, 1049, 1142, 1143, 1144, 1227, 1370, // rights
		1051, 1054, 1064, 1091, 1103, 1109, 1136, 1146, 1149, 1305, 1318, 1356, 1526: // names, syntax, no partition of the table
		return faultOpen
	case mysqlSignal:
		return faultStatement
	case 1053, 1077, 1079, 1080, 1094, 1180, 1181, 1317, 1927, // shutdown, KILL, an error in the commit
		1158, 1159, 1160, 1161, 1189, 1190, 1152, 1184, // network
		1030, 1034, 1035, 1194, 1195, mysqlUnknown, 1815, 4031, 1296: // the storage engine
		return faultBroken
	}
	return faultUnknown
}

func (d mysqlDialect) hint(err error) string {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return mysqlNetworkHint(err)
	}
	if hint := mysqlHints[e.Number]; hint != "" {
		return hint
	}
	if d.fault(err) == faultOpen {
		return "create what is missing, grant the right, or correct the statement"
	}
	return ""
}

var mysqlHints = map[uint16]string{
	1040: "raise max_connections, or lower the pools' sizes",
	1044: "grant the user its rights on the database (docs/security.md), or correct the database's name",
	1045: "check user and password; for a server that requires TLS, add tls=true to the URL",
	1049: "create the database, or correct its name",
	1114: "free some room on its disk",
	1021: "free some room on its disk",
	1130: "create the user for this host, as in CREATE USER 'name'@'%'",
	1193: "correct the parameter in the URL",
	1206: "raise innodb_buffer_pool_size, or lock fewer rows in a transaction",
	1205: "another transaction holds the row: look for a paused process or a long transaction (SHOW ENGINE INNODB STATUS)",
	1290: "it accepts no writes: check whether it is a replica",
	1526: "the table has no partition for this row: create it",
	1792: "it accepts no writes: check whether it is a replica",
	1836: "it accepts no writes: check whether it is a replica",
	3159: "add tls=true to the URL",
}

// mysqlNetworkHint says what to do about a server that cannot be reached.
func mysqlNetworkHint(err error) string {
	if undialled(err) {
		return checkHost
	}
	if errors.Is(err, mysql.ErrNoTLS) {
		return "configure TLS in the server (ssl_cert, ssl_key)"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "add tls_ca_file=FILE to the URL, with the certificate of the server's authority, and connect by a name that the server's certificate has"
	}
	return ""
}
