package sqlstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sluice-go/sluice/internal/databaseurl"
)

// connectTimeout bounds an attempt to connect where the address does not.
const connectTimeout = 10 * time.Second

// CheckMySQL returns why [OpenMySQL] would fail, as far as that can be found without creating or
// changing anything. A nil cfg takes every default.
func CheckMySQL(ctx context.Context, address string, cfg *ServerConfig) error {
	c, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	mc, err := mysqlConfig(address, c)
	if err != nil {
		return err
	}
	connector, err := mysql.NewConnector(mc)
	if err != nil {
		return fmt.Errorf("database %s: %w", mysqlName(mc), err)
	}
	db := sql.OpenDB(patientConnector{connector, mc.Timeout})
	defer db.Close()
	if _, err := mysqlDialectOf(ctx, db); err != nil {
		return outage(ctx, mysqlDialect{}, mysqlName(mc), "connect", err)
	}
	for _, component := range []string{storeComponent, leaseComponent} {
		if _, err := readVersion(ctx, db, mysqlDialect{}, component, len(mysqlSteps(component, ""))); err != nil {
			return outage(ctx, mysqlDialect{}, mysqlName(mc), "check "+component, err)
		}
	}
	if err := ownSafe(ctx, db, mysqlDialect{}); err != nil {
		return outage(ctx, mysqlDialect{}, mysqlName(mc), "check Sluice's tables", err)
	}
	return nil
}

// MySQLConnector returns a connector for [sql.OpenDB] to the database at address, for programs that
// only read it: it has no store's limits on the time of a session. address has a form of
// [OpenMySQL]. MySQLConnector does not connect. Errors never contain the password.
func MySQLConnector(address string) (driver.Connector, error) {
	mc, err := parseMySQL(address)
	if err != nil {
		return nil, err
	}
	setDefaults(mc.Params, map[string]string{
		"net_write_timeout": "3600", // a reader may be slow
	})
	connector, err := mysql.NewConnector(mc)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", mysqlName(mc), err)
	}
	return readingConnector{patientConnector{connector, mc.Timeout}, mysqlDialect{}, mysqlName(mc)}, nil
}

// mysqlName is a database's name in errors.
func mysqlName(mc *mysql.Config) string { return mc.DBName + " on " + mc.Addr }

// patientConnector gives up a server that accepts a connection and is silent then.
type patientConnector struct {
	driver.Connector
	timeout time.Duration
}

func (c patientConnector) Connect(ctx context.Context) (driver.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	conn, err := c.Connector.Connect(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("no answer within %v: %w", c.timeout, err)
	}
	return conn, err
}

// readingConnector says in errors which database it could not connect to, and what to do.
type readingConnector struct {
	driver.Connector
	dialect dialect
	name    string
}

func (c readingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, outage(ctx, c.dialect, c.name, "connect", err)
	}
	return conn, nil
}

// mysqlConfig makes the driver's configuration of a store.
func mysqlConfig(address string, c ServerConfig) (*mysql.Config, error) {
	mc, err := parseMySQL(address)
	if err != nil {
		return nil, err
	}
	if c.Dial != nil {
		mc.DialFunc = c.dial
	}
	mc.Timeout = min(mc.Timeout, c.patience())
	seconds := func(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }
	setDefaults(mc.Params, map[string]string{
		"innodb_lock_wait_timeout": seconds(c.LockTimeout),
		"lock_wait_timeout":        seconds(c.LockTimeout),
		// They end the transaction of an owner that is paused, so that its locks are released:
		// between two statements, within one, and while it reads rows.
		"wait_timeout":      seconds(c.LeaseFor),
		"net_read_timeout":  seconds(c.LeaseFor),
		"net_write_timeout": seconds(c.LeaseFor),
		"sql_mode":          "CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')",
	})
	mc.Params["autocommit"] = "1"
	return mc, nil
}

// mysqlTimeUnit returns the driver's parameter timeTruncate, for which its configuration has no
// field.
func mysqlTimeUnit(mc *mysql.Config) time.Duration {
	text := mc.FormatDSN()
	_, parameters, _ := strings.Cut(text[strings.LastIndex(text, "/"):], "?") // what comes before may contain them
	values, _ := url.ParseQuery(parameters)                                   // the driver's own text
	unit, _ := time.ParseDuration(values.Get("timeTruncate"))
	return unit
}

// setDefaults sets the parameters that are not set.
func setDefaults(params, defaults map[string]string) {
	for name, value := range defaults {
		if _, set := params[name]; !set {
			params[name] = value
		}
	}
}

// parseMySQL makes the driver's configuration from a URL, or from the driver's own form, with what
// every connection of ours has in common.
func parseMySQL(address string) (*mysql.Config, error) {
	mc, err := parseMySQLAddress(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("MySQL URL: %w", err)
	case mc.DBName == "":
		return nil, errors.New("MySQL URL: names no database: add it after the host, as in mysql://user@host:3306/database")
	}
	mc.ParseTime = true
	mc.InterpolateParams = true // one round trip instead of three
	mc.ClientFoundRows = true   // an UPDATE that changes nothing counts
	mc.MultiStatements = false
	mc.AllowAllFiles = false
	mc.Loc = time.UTC
	if mc.DialFunc == nil && slices.Contains([]string{"tcp", "unix"}, mc.Net) {
		mc.DialFunc = new(ServerConfig).dial // a network of mysql.RegisterDialContext has its own
	}
	if mc.MaxAllowedPacket == mysql.NewConfig().MaxAllowedPacket {
		// The server is asked: it closes the connection of a client that sends more than it allows,
		// which looks like an outage.
		mc.MaxAllowedPacket = 0
	}
	mc.Logger = &mysql.NopLogger{} // errors are returned
	if mc.Timeout == 0 {
		mc.Timeout = connectTimeout
	}
	if mc.Params == nil {
		mc.Params = map[string]string{}
	}
	setDefaults(mc.Params, map[string]string{"time_zone": "'+00:00'"})
	return mc, nil
}

// errMySQLURL does not quote the URL, which may contain a password, as the error of url.Parse does.
var errMySQLURL = errors.New("cannot be read: it must have the form mysql://user:password@host:3306/database, with special characters of the password as %XX")

func parseMySQLAddress(address string) (*mysql.Config, error) {
	scheme, _, found := strings.Cut(address, "://")
	if !found {
		return mysql.ParseDSN(address)
	}
	u, err := url.Parse(address)
	if err != nil || scheme != "mysql" && scheme != "mariadb" || databaseurl.CutPassword(u) || strings.Contains(strings.TrimPrefix(u.Path, "/"), "/") {
		return nil, errMySQLURL
	}
	parameters, roots, err := splitParameters(u.RawQuery)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = "3306"
	}
	mc, err := mysql.ParseDSN(fmt.Sprintf("tcp(%s)/%s?%s", net.JoinHostPort(u.Hostname(), port), url.PathEscape(strings.TrimPrefix(u.Path, "/")), parameters))
	if err != nil {
		return nil, err
	}
	mc.User = u.User.Username()
	mc.Passwd, _ = u.User.Password()
	if roots != nil {
		mc.TLS = &tls.Config{RootCAs: roots, ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	}
	return mc, nil
}

// splitParameters returns a URL's parameters for the driver, and the certificates of tls_ca_file,
// nil if that is not set.
func splitParameters(query string) (parameters string, roots *x509.CertPool, err error) {
	var list []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		lower := strings.ToLower(name)
		switch lower {
		case "tls_ca_file":
			if roots, err = readRoots(value); err != nil {
				return "", nil, fmt.Errorf("tls_ca_file: %w", err)
			}
		case "user", "username", "password", "passwd", "pwd":
			// The driver would execute SET PASSWORD.
			return "", nil, fmt.Errorf("has the parameter %s: write user and password before the host, as in mysql://user:password@host:3306/database", name)
		case "strict":
			return "", nil, errors.New("has the parameter strict, which the driver no longer has: set sql_mode")
		default:
			if strings.HasPrefix(lower, "ssl") {
				return "", nil, fmt.Errorf("has the parameter %s: write tls=true, and tls_ca_file=FILE for an authority that the system does not trust", name)
			}
			list = append(list, part)
		}
	}
	return strings.Join(list, "&"), roots, nil
}

// readRoots reads certificates to trust besides the system's. The name of the file is escaped.
func readRoots(name string) (*x509.CertPool, error) {
	name, err := url.QueryUnescape(name)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", name)
	}
	return roots, nil
}
