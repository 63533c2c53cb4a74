package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/sluice-go/sluice/internal/databaseurl"
)

// CheckSQLServer returns why [OpenSQLServer] would fail, as far as that can be found without
// creating or changing anything. A nil cfg takes every default.
func CheckSQLServer(ctx context.Context, address string, cfg *ServerConfig) error {
	name, connector, c, err := mssqlServer(address, cfg)
	if err != nil {
		return err
	}
	d := mssqlDialect{}
	db := sql.OpenDB(patientConnector{connector, c.patience()})
	defer db.Close()
	if err := mssqlCheck(ctx, db); err != nil {
		return outage(ctx, d, name, "connect", err)
	}
	for _, component := range []string{storeComponent, leaseComponent} {
		if _, err := readVersion(ctx, db, d, component, len(d.steps(component))); err != nil {
			return outage(ctx, d, name, "check "+component, err)
		}
	}
	if err := ownSafe(ctx, db, d); err != nil {
		return outage(ctx, d, name, "check Sluice's tables", err)
	}
	return nil
}

// SQLServerConnector returns a connector for [sql.OpenDB] to the database at address, for programs that
// only read it. address has the form of [OpenSQLServer], and accessToken is as
// [ServerConfig.AccessToken]; it may be nil. SQLServerConnector does not connect. Errors never contain
// the password.
func SQLServerConnector(address string, accessToken func(ctx context.Context) (string, error)) (driver.Connector, error) {
	name, connector, _, err := mssqlServer(address, &ServerConfig{AccessToken: accessToken})
	if err != nil {
		return nil, err
	}
	return readingConnector{patientConnector{connector, connectTimeout}, mssqlDialect{}, name}, nil
}

// mssqlServer returns a database's name in errors, a connector to it, and the configuration with
// its defaults.
func mssqlServer(address string, cfg *ServerConfig) (name string, connector driver.Connector, c ServerConfig, err error) {
	if c, err = cfg.withDefaults(); err != nil {
		return "", nil, c, err
	}
	params, err := mssqlParams(address, c)
	if err != nil {
		return "", nil, c, err
	}
	name = mssqlName(params)
	if connector, err = newMSSQLConnector(params, c); err != nil {
		return "", nil, c, fmt.Errorf("database %s: %w", name, err)
	}
	return name, connector, c, nil
}

// mssqlName is a database's name in errors.
func mssqlName(params msdsn.Config) string {
	host := params.Host
	if params.Instance != "" {
		host += `\` + params.Instance
	}
	if params.Port != 0 && params.Port != 1433 {
		host = net.JoinHostPort(host, strconv.FormatUint(params.Port, 10))
	}
	return params.Database + " on " + host
}

// mssqlParams makes the driver's parameters from a URL.
func mssqlParams(address string, c ServerConfig) (msdsn.Config, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "sqlserver" || u.Hostname() == "" || databaseurl.CutPassword(u) {
		// The error of url.Parse contains the password.
		return msdsn.Config{}, errors.New("SQL Server URL: cannot be read: it must have the form sqlserver://user:password@host:1433?database=name, with special characters of the password as %XX")
	}
	params, err := msdsn.Parse(address)
	unknown := mssqlUnknown(u)
	switch {
	case unknown != "":
		return params, fmt.Errorf("SQL Server URL: parameter %q is unknown: correct its name, or remove it", unknown)
	case err != nil:
		return params, fmt.Errorf("SQL Server URL: %w", err)
	case params.Database == "":
		return params, errors.New("SQL Server URL: names no database: add it, as in sqlserver://user@host:1433?database=name")
	case c.AccessToken == nil && params.User == "" && u.Query().Get("authenticator") == "":
		return params, errors.New("SQL Server URL: names no user: add one, as in sqlserver://user:password@host:1433?database=name, or set AccessToken")
	}
	if encrypted := params.Encryption == msdsn.EncryptionRequired || params.Encryption == msdsn.EncryptionStrict; c.AccessToken != nil && !encrypted {
		return params, errors.New("SQL Server URL: an access token is sent over TLS only: add encrypt=true")
	}
	if c.AccessToken != nil && params.TrustServerCertificate {
		return params, errors.New("SQL Server URL: an access token is sent only to a server whose certificate is checked: remove TrustServerCertificate=true")
	}
	params.ConnTimeout = 0      // it would set the socket's deadlines
	params.DisableRetry = false // only what was not sent is repeated
	if _, set := params.Parameters[msdsn.AppName]; !set {
		params.AppName = "sluice"
	}
	return params, nil
}

// mssqlParameters are those of a URL that the driver reads.
var mssqlParameters = []string{
	msdsn.Database, msdsn.Encrypt, msdsn.Password, msdsn.UserID, msdsn.TrustServerCertificate, msdsn.Certificate, msdsn.ServerCertificate,
	msdsn.TLSMin, msdsn.PacketSize, msdsn.LogParam, msdsn.ConnectionTimeout, msdsn.HostNameInCertificate, msdsn.KeepAlive, msdsn.ServerSpn,
	msdsn.WorkstationID, msdsn.AppName, msdsn.ApplicationIntent, msdsn.FailoverPartner, msdsn.FailOverPort, msdsn.FailoverPartnerSpn,
	msdsn.DisableRetry, msdsn.Protocol, msdsn.DialTimeout, msdsn.MultiSubnetFailover, msdsn.NoTraceID, msdsn.GuidConversion, msdsn.Timezone,
	msdsn.EpaEnabled, "authenticator",
}

// mssqlUnknown returns a parameter that the driver would ignore: a misspelled one may have been
// meant to encrypt. Those of an authenticator begin with its name.
func mssqlUnknown(u *url.URL) string {
	names := slices.Sorted(maps.Keys(u.Query()))
	i := slices.IndexFunc(names, func(name string) bool {
		name = strings.ToLower(name)
		return !slices.Contains(mssqlParameters, name) && !strings.HasPrefix(name, "krb5-")
	})
	if i < 0 {
		return ""
	}
	return names[i]
}

// mssqlCheck refuses servers and databases that are too old.
func mssqlCheck(ctx context.Context, db querier) error {
	var version string
	var edition, level int
	var babelfish bool
	_, err := one(ctx, db, `
		SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)), CAST(SERVERPROPERTY('EngineEdition') AS int),
			CAST(CASE WHEN @@VERSION LIKE N'Babelfish%' THEN 1 ELSE 0 END AS bit),
			(SELECT COALESCE(MAX(CAST(compatibility_level AS int)), 130) FROM sys.databases WHERE name = DB_NAME())`,
		nil, &version, &edition, &babelfish, &level)
	if err != nil || babelfish {
		return err
	}
	major, _ := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	switch {
	case edition <= mssqlBoxed && major < 15: // Azure SQL has versions of its own
		return fmt.Errorf("SQL Server %s is too old: upgrade it to 2019 (15.0) or later", version)
	case level < 130:
		return fmt.Errorf("the database's compatibility level is %d: set it to 130 or higher (ALTER DATABASE … SET COMPATIBILITY_LEVEL = 130)", level)
	}
	return nil
}

// mssqlBoxed is the highest SERVERPROPERTY('EngineEdition') of servers that are installed, not
// rented.
const mssqlBoxed = 4
