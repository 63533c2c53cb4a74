//go:build linux

package attack

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/sqlstore"
)

// SQLServer is Babelfish, which speaks SQL Server's protocol, through sqlstore.
var SQLServer = &Engine{
	Name:     "SQL Server's protocol (Babelfish)",
	LeaseFor: 10 * time.Second, // a new connection costs Babelfish much time
	start:    func() (server, error) { return started(sqlservertest.Start()) },
	prepare:  prepareSQLServer,
	proxy:    sqlservertest.NewProxy,
	form:     "sqlserver://%s@%s?database=" + database + "&encrypt=disable",
	wrong:    "&encrypt=",
	moments:  sqlstoreMoments(sqlServerLocks, "INSERT BULK [flights]", "INSERT INTO [flights]"),
	refused: func(statements, tags []string) bool {
		return sqlServerLocks(statements[0]) && slices.Contains(tags, "UPDATE 0")
	},
	partition: "partition",
	expire:    `UPDATE sluice_leases SET expires_at = DATEADD(second, -1, SYSUTCDATETIME()) WHERE owner LIKE @p1`,
	owned:     `SELECT COUNT(*) FROM sluice_checkpoints WHERE owner LIKE @p1`,
}

func sqlServerLocks(statement string) bool {
	return strings.HasPrefix(strings.TrimSpace(statement), "UPDATE sluice_checkpoints SET updated_at = @p9 WHERE")
}

func prepareSQLServer(ctx context.Context, s server, password string) (*sql.DB, error) {
	url, err := s.(*sqlservertest.Server).CreateDatabase(ctx, database)
	if err != nil {
		return nil, err
	}
	connector, err := sqlstore.SQLServerConnector(url, nil)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	return db, execute(ctx, db,
		"CREATE LOGIN "+role+" WITH PASSWORD = '"+password+"'",
		"ALTER SERVER ROLE sysadmin ADD MEMBER "+role) // Babelfish has no members of db_owner
}
