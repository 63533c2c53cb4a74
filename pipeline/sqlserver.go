package pipeline

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/sluice-go/sluice/sqlstore"
)

// sqlServerDatabase is a database of SQL Server or Azure SQL.
type sqlServerDatabase struct {
	given string // the URL as the file has it
	url   string // the URL without credential=default
	// token returns a token of Entra ID; nil: the URL has the password.
	token func(context.Context) (string, error)
}

// sqlServerDialect's kinds of column are SQL Server's system types. A text in a varchar loses, without
// an error, the characters that its code page does not have.
var sqlServerDialect = dialect{
	engine: sqlServer, parameter: "@p", quotes: "[]",
	declare: map[columnType]string{
		typeText: "nvarchar(max)", typeInteger: "int", typeBigint: "bigint", typeDouble: "float",
		typeNumeric: "decimal(38,18)", typeBoolean: "bit", typeTimestamp: "datetime2", typeBytes: "varbinary(max)", typeJSON: "nvarchar(max)",
	},
	accepts: map[columnType][]string{
		typeText:    {"nvarchar", "nchar", "ntext", "varchar in UTF-8", "char in UTF-8", "uniqueidentifier"},
		typeInteger: {"int", "bigint", "decimal", "numeric"}, typeBigint: {"bigint", "decimal", "numeric"},
		typeDouble: {"float"}, typeNumeric: {"decimal", "numeric"}, typeBoolean: {"bit"},
		typeTimestamp: {"datetime2", "datetimeoffset"}, typeBytes: {"varbinary", "binary", "image"},
		typeJSON: {"nvarchar", "varchar in UTF-8", "json"},
		// store none of the types unchanged
		"": {"tinyint", "smallint", "real", "money", "smallmoney", "date", "time", "datetime", "smalldatetime", "varchar", "char", "text"},
	},
	argument: sqlServerArgument,
}

// sqlServerArgument gives NULL a type: the driver's own is a text, which is no binary.
func sqlServerArgument(t columnType, value any) any {
	if value == nil && t == typeBytes {
		return []byte(nil)
	}
	return value
}

func parseSQLServer(address string) (sqlDatabase, error) {
	d := sqlServerDatabase{given: address, url: address}
	if u, err := url.Parse(address); err == nil {
		q := u.Query()
		if q.Has("fedauth") {
			return nil, errors.New("has the parameter fedauth: for Entra ID write credential=default and no user")
		}
		if q.Has("credential") {
			if d.token, err = sqlServerToken(u); err != nil {
				return nil, err
			}
			q.Del("credential")
			u.RawQuery = q.Encode()
			d.url = u.String()
		}
	}
	if _, err := sqlstore.SQLServerConnector(d.url, d.token); err != nil {
		return nil, err
	}
	return d, nil
}

// sqlServerToken returns the tokens of a URL with the parameter credential.
func sqlServerToken(u *url.URL) (func(context.Context) (string, error), error) {
	q := u.Query()
	switch encrypt := strings.ToLower(q.Get("encrypt")); {
	case q.Get("credential") != "default":
		return nil, errors.New("credential: write credential=default, which is Entra ID")
	case u.User != nil:
		return nil, errors.New("has a user and credential=default: write one of them")
	case encrypt != "true" && encrypt != "strict":
		return nil, errors.New("credential=default sends a token, which needs TLS: add encrypt=true")
	}
	suffix := "windows.net"
	for _, other := range []string{"chinacloudapi.cn", "usgovcloudapi.net"} {
		if strings.HasSuffix(u.Hostname(), "."+other) {
			suffix = other
		}
	}
	// Made once: it caches tokens until shortly before they expire.
	connect := sync.OnceValues(func() (*azidentity.DefaultAzureCredential, error) { return azidentity.NewDefaultAzureCredential(nil) })
	return func(ctx context.Context) (string, error) {
		credential, err := connect()
		if err != nil {
			return "", fmt.Errorf("default credential: %w", err)
		}
		token, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{"https://database." + suffix + "/.default"}})
		return token.Token, err
	}, nil
}

func (sqlServerDatabase) dialect() *dialect { return &sqlServerDialect }
func (d sqlServerDatabase) address() string { return d.given }

func (d sqlServerDatabase) reader() (*sql.DB, error) {
	connector, err := sqlstore.SQLServerConnector(d.url, d.token)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func (d sqlServerDatabase) open(ctx context.Context, p *Pipeline, parts *Parts) error {
	store, err := sqlstore.OpenSQLServer(ctx, d.url, &sqlstore.ServerConfig{LeaseFor: p.config.LeaseFor, AccessToken: d.token})
	if err != nil {
		return err
	}
	parts.useSQLStore(p, store, sqlServerCatalog{store.DB()})
	return nil
}

func (d sqlServerDatabase) inspect(ctx context.Context) (catalog, func(), error) {
	if err := sqlstore.CheckSQLServer(ctx, d.url, &sqlstore.ServerConfig{AccessToken: d.token}); err != nil {
		return nil, nil, err
	}
	db, err := d.reader()
	if err != nil {
		return nil, nil, err
	}
	return sqlServerCatalog{db}, func() { db.Close() }, nil
}

type sqlServerCatalog struct{ db *sql.DB }

// columns: an identity and a rowversion (timestamp) take no values.
func (c sqlServerCatalog) columns(ctx context.Context, table string) ([]existingColumn, error) {
	rows, err := c.db.QueryContext(ctx, `
		SELECT name, TYPE_NAME(system_type_id) + CASE WHEN collation_name LIKE '%UTF8' AND TYPE_NAME(system_type_id) IN ('char', 'varchar') THEN ' in UTF-8' ELSE '' END,
			CAST(CASE WHEN is_nullable = 0 AND default_object_id = 0 AND is_identity = 0 AND is_computed = 0 AND TYPE_NAME(system_type_id) <> 'timestamp' THEN 1 ELSE 0 END AS bit),
			CAST(CASE WHEN is_computed = 1 OR is_identity = 1 OR TYPE_NAME(system_type_id) = 'timestamp' THEN 1 ELSE 0 END AS bit)
		FROM sys.columns WHERE object_id = OBJECT_ID(@p1) ORDER BY column_id`, sqlServerDialect.quoteTable(table))
	if err != nil {
		return nil, err
	}
	return scanColumns(rows)
}

func (c sqlServerCatalog) create(ctx context.Context, sql string) error {
	_, err := c.db.ExecContext(ctx, sql)
	return err
}

// parameters checks nothing: SQL Server cannot prepare every statement without executing it.
func (sqlServerCatalog) parameters(context.Context, string, int) ([]string, error) { return nil, nil }
