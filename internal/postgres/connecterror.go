package postgres

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ConnectError returns the error of an attempt to connect as one line that names host, port,
// database, user, cause and what to do.
func ConnectError(failed *pgconn.ConnectError) error {
	text, advice := cause(failed)
	return &connectError{text: "connect to " + place(failed.Config) + ": " + text + ": " + advice, err: failed.Unwrap()}
}

// NoConnection returns an error for a pool that had no connection in time.
func NoConnection(c *pgconn.Config, err error) error {
	return &connectError{text: "connect to " + place(c) + ": no connection in time: check host, port and firewalls, and whether all connections are in use", err: err}
}

// place names a database in errors.
func place(c *pgconn.Config) string {
	at := []string{address(c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		if a := address(f.Host, f.Port); !slices.Contains(at, a) {
			at = append(at, a)
		}
	}
	database := cmp.Or(c.Database, "not named (is the URL complete?)")
	return fmt.Sprintf("PostgreSQL at %s, database %s, as %s", strings.Join(at, " or "), database, c.User)
}

func address(host string, port uint16) string {
	if strings.HasPrefix(host, "/") {
		return fmt.Sprintf("%s/.s.PGSQL.%d", host, port)
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

type connectError struct {
	text string
	err  error
}

func (e *connectError) Error() string { return e.text }
func (e *connectError) Unwrap() error { return e.err }

// cause returns what a failed attempt to connect comes down to, and what to do.
func cause(failed *pgconn.ConnectError) (text, advice string) {
	var refused *pgconn.PgError
	var resolve *net.DNSError
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(failed, &refused):
		return fmt.Sprintf("%s (SQLSTATE %s)", oneLine(refused.Message), refused.Code), refusal(refused)
	case errors.Is(failed, context.DeadlineExceeded):
		return "no answer in time", "check host, port and firewalls"
	case errors.As(failed, &resolve):
		return "host name is not known: " + resolve.Err, "correct the host"
	case errors.As(failed, &certificate):
		return oneLine(certificate.Error()), "add sslrootcert=FILE to the URL, with the certificate of the server's authority, and connect by a name that the server's certificate has"
	case errors.As(failed, &op) && op.Err != nil:
		return strings.TrimPrefix(op.Err.Error(), "connect: "), "check host and port, and whether the server runs"
	}
	// pgx puts the server before it, a line for each.
	text = pgxServer.ReplaceAllString(oneLine(failed.Unwrap().Error()), "")
	switch {
	case strings.Contains(text, "refused TLS"):
		advice = "enable TLS in the server (ssl = on), or correct sslmode"
	case strings.Contains(text, "ValidateConnect"):
		advice = "check which server is the primary, and target_session_attrs in the URL"
	default:
		advice = "check the URL, and the server's log"
	}
	return text, advice
}

// pgxServer is the server's address before a cause in pgx's errors.
var pgxServer = regexp.MustCompile(`\S+ \(\S+\): `)

// refusal says what to do about a server that has refused a connection.
func refusal(e *pgconn.PgError) string {
	switch e.Code {
	case "28P01":
		return "check user and password"
	case "28000":
		return "check user and password; allow the user and this host in pg_hba.conf; for a server that requires TLS, add sslmode=verify-full to the URL"
	case "3D000":
		return "create the database, or correct its name"
	case "42501":
		return "grant the user CONNECT on the database"
	case "42704", "22023":
		return "correct the parameter in the URL"
	case "53300":
		return "raise max_connections or the role's limit, or lower pool_max_conns"
	case "57P03":
		return "wait until the server has started or recovered"
	case protocolViolation:
		return "a pooler such as PgBouncer refuses it: remove it from the URL, and set it for the role instead"
	}
	return "check the URL, and the server's log"
}

// Prepare checks that the server is suitable, and brings the stores' tables in schema (the role's
// default if empty) up to date; with noMigrate it only checks that they are. It returns the
// schema's name. Its errors are one line that names host, port, database, user, cause and what to
// do.
func Prepare(ctx context.Context, conn *pgx.Conn, schema string, noMigrate bool) (string, error) {
	if err := Check(conn); err != nil {
		return "", err
	}
	return prepare(ctx, pgxSession{conn}, place(&conn.Config().Config), schema, noMigrate)
}

// PrepareOver is [Prepare] over any session; at names the database in errors.
func PrepareOver(ctx context.Context, conn Session, at, schema string, noMigrate bool) (string, error) {
	var version, encoding string
	const query = `SELECT current_setting('server_version'), current_setting('server_encoding')`
	if err := conn.QueryRow(ctx, query).Scan(&version, &encoding); err != nil {
		return "", fmt.Errorf("%s: %w", at, err)
	}
	if err := suitable(at, version, encoding); err != nil {
		return "", err
	}
	return prepare(ctx, conn, at, schema, noMigrate)
}

func prepare(ctx context.Context, conn Session, at, schema string, noMigrate bool) (_ string, err error) {
	if noMigrate {
		schema, err = require(ctx, conn, schema)
	} else {
		schema, err = migrate(ctx, conn, schema, Stores, Migrations)
	}
	if err != nil {
		return "", fmt.Errorf("prepare Sluice's tables in %s: %w", at, err)
	}
	return schema, checkOwn(ctx, conn, at, schema)
}

// PrepareTables is [Prepare] for the tables of another component.
func PrepareTables(ctx context.Context, conn *pgx.Conn, schema, component string, all []Migration) (string, error) {
	if err := Check(conn); err != nil {
		return "", err
	}
	schema, err := Migrate(ctx, conn, schema, component, all)
	if err != nil {
		return "", fmt.Errorf("prepare Sluice's tables in %s: %w", place(&conn.Config().Config), err)
	}
	return schema, nil
}

// Check refuses servers that lack what the stores need.
func Check(conn *pgx.Conn) error {
	server := conn.PgConn().ParameterStatus
	return suitable(place(&conn.Config().Config), server("server_version"), server("server_encoding"))
}

func suitable(at, version, encoding string) error {
	digits, _, _ := strings.Cut(version, ".")
	if major, err := strconv.Atoi(digits); err == nil && major < oldestServer {
		return fmt.Errorf("%s: its version is %s: Sluice needs %d or later: upgrade the server", at, version, oldestServer)
	}
	switch encoding {
	case "", "UTF8", "SQL_ASCII":
		return nil
	}
	return fmt.Errorf("%s: the database is encoded in %s, which cannot hold every event: create it with ENCODING 'UTF8'", at, encoding)
}
