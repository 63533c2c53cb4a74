package postgres

import (
	"cmp"
	"context"
	"errors"
	"net"
	neturl "net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-go/sluice/internal/databaseurl"
)

// oldestServer is the oldest major version of PostgreSQL that has
// pg_current_xact_id.
const oldestServer = 13

// connectTimeout bounds an attempt to connect where the URL does not.
const connectTimeout = 10 * time.Second

// Settings are what a store demands of its connections.
type Settings struct {
	// LeaseFor is the consumers' LeaseFor.
	LeaseFor time.Duration
	// RequestTimeout bounds a round trip.
	RequestTimeout time.Duration
	// Password, if set, returns the password of each new connection. It may be a token, which is
	// not sent without TLS.
	Password func(context.Context) (string, error)
}

// ParseURL makes a pool's configuration from a URL as it is, for programs that only read the
// database. Its errors are one line without the password.
func ParseURL(url string) (*pgxpool.Config, error) {
	pc, err := parseURL(url)
	if err == nil {
		pc.ConnConfig.ConnectTimeout = cmp.Or(pc.ConnConfig.ConnectTimeout, connectTimeout)
	}
	return pc, err
}

func parseURL(url string) (*pgxpool.Config, error) {
	if u, err := neturl.Parse(url); err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql") && databaseurl.CutPassword(u) {
		return nil, &parseError{reason: urlForm}
	}
	if scheme, _, _ := strings.Cut(url, ":"); slices.Contains([]string{"mysql", "mariadb", "sqlserver", "sqlite", "file", "http", "https"}, scheme) {
		return nil, &parseError{reason: "begins with " + scheme + ": write postgres://user:password@host:5432/database"}
	}
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, &parseError{reason: parseReason(url, err)}
	}
	return pc, nil
}

// Parse makes the configuration of a store's pool from a URL. Client and server are set to detect
// within the lease's length that the other is gone. Its errors are those of [ParseURL].
func Parse(url string, settings Settings) (*pgxpool.Config, error) {
	pc, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	cc := pc.ConnConfig
	cc.ConnectTimeout = cmp.Or(cc.ConnectTimeout, min(connectTimeout, settings.RequestTimeout))
	pc.PingTimeout = cmp.Or(pc.PingTimeout, settings.RequestTimeout/4)
	d := newDialer(cc.ConnectTimeout, settings.LeaseFor)
	d.install(cc)
	cc.OnPgError = closeIfReadOnly(cc.OnPgError)

	seconds := strconv.Itoa(int(d.giveUp / time.Second))
	for name, value := range map[string]string{
		"application_name":        "sluice",
		"tcp_keepalives_idle":     seconds,
		"tcp_keepalives_interval": seconds,
		"tcp_keepalives_count":    "3",
		"tcp_user_timeout":        strconv.FormatInt(settings.LeaseFor.Milliseconds(), 10),
	} {
		if _, set := cc.RuntimeParams[name]; !set {
			cc.RuntimeParams[name] = value
		}
	}
	if settings.Password != nil {
		if !private(cc) {
			return nil, &parseError{reason: "its password may be a token, which must not be sent without TLS: add sslmode=verify-full, or sslmode=require"}
		}
		pc.BeforeConnect = askPassword(settings.Password)
	}
	return pc, nil
}

// private reports whether every way to connect is encrypted or stays on this machine.
func private(cc *pgx.ConnConfig) bool {
	alone := func(host string, tls bool) bool {
		ip := net.ParseIP(host)
		return tls || strings.HasPrefix(host, "/") || host == "localhost" || ip != nil && ip.IsLoopback()
	}
	for _, f := range cc.Fallbacks {
		if !alone(f.Host, f.TLSConfig != nil) {
			return false
		}
	}
	return alone(cc.Host, cc.TLSConfig != nil)
}

func askPassword(password func(context.Context) (string, error)) func(context.Context, *pgx.ConnConfig) error {
	return func(ctx context.Context, cc *pgx.ConnConfig) error {
		text, err := password(ctx)
		if err != nil {
			return &connectError{text: "connect to " + place(&cc.Config) + ": get the password: " + oneLine(err.Error()), err: err}
		}
		cc.Password = text
		return nil
	}
}

// RefusedParameter reports whether a pooler has refused a startup parameter.
func RefusedParameter(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == protocolViolation && strings.Contains(refused.Message, "startup parameter")
}

// protocolViolation is the SQLSTATE with which PgBouncer refuses a startup parameter.
const protocolViolation = "08P01"

// AdaptToPooler leaves out the settings of TCP, which would be those of the pooler's
// connections, and prepared statements, which a pooler in transaction mode may not keep
// for a client.
func AdaptToPooler(cc *pgx.ConnConfig) {
	for name := range cc.RuntimeParams {
		if strings.HasPrefix(name, "tcp_") {
			delete(cc.RuntimeParams, name)
		}
	}
	if cc.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		cc.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
}

// parseError is why a URL cannot be read. It does not wrap pgx's error, which
// carries the URL with its password.
type parseError struct{ reason string }

func (e *parseError) Error() string { return "PostgreSQL URL: " + e.reason }

const urlForm = "cannot be read: write postgres://user:password@host:5432/database, with %-encoding for special characters in the password"

// parseReason says what is wrong with a URL, if that is possible without revealing a part of its
// password. In a URL that cannot be split into its parts, any text may be one.
func parseReason(url string, err error) string {
	u, uerr := neturl.Parse(url)
	var failed *pgconn.ParseConfigError
	if uerr != nil || u.Scheme == "" || !errors.As(err, &failed) || failed.Unwrap() == nil {
		return urlForm
	}
	reason := oneLine(failed.Unwrap().Error())
	secrets := append(u.Query()["password"], u.Query()["sslpassword"]...)
	if p, ok := u.User.Password(); ok {
		secrets = append(secrets, p)
	}
	for _, s := range secrets {
		if s != "" && strings.Contains(reason, s) {
			return urlForm
		}
	}
	if strings.ContainsAny(reason, "@%") { // a password read as something else
		return urlForm
	}
	return reason
}

var lineBreaks = regexp.MustCompile(`[ \t]*[\r\n]+[ \t]*`)

func oneLine(s string) string { return lineBreaks.ReplaceAllString(strings.TrimSpace(s), "; ") }
