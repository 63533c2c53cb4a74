//go:build linux

package attack

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/sqlstore"
)

// MariaDB is MariaDB through sqlstore.
var MariaDB = &Engine{
	Name:     "MariaDB",
	LeaseFor: 3 * time.Second,
	start:    func() (server, error) { return started(mariadbtest.Start(nil)) },
	prepare:  prepareMariaDB,
	proxy:    mariadbtest.NewProxy,
	form:     "mariadb://%s@%s/" + database + "?timeout=10s",
	wrong:    "&tls=",
	moments:  sqlstoreMoments(mariadbLocks, "INSERT INTO `flights`", "LOAD DATA LOCAL INFILE"),
	refused: func(statements, tags []string) bool {
		return mariadbLocks(statements[0]) && slices.Contains(tags, "SELECT 0")
	},
	partition: "`partition`",
	expire:    `UPDATE sluice_leases SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE owner LIKE ?`,
	owned:     `SELECT COUNT(*) FROM sluice_checkpoints WHERE owner LIKE ?`,
}

func mariadbLocks(statement string) bool {
	return strings.HasPrefix(statement, "SELECT 1 FROM sluice_checkpoints") && strings.HasSuffix(statement, "FOR UPDATE")
}

func prepareMariaDB(ctx context.Context, s server, password string) (*sql.DB, error) {
	url, err := s.(*mariadbtest.Server).CreateDatabase(ctx, database)
	if err != nil {
		return nil, err
	}
	connector, err := sqlstore.MySQLConnector(url)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	return db, execute(ctx, db,
		"CREATE USER "+role+"@'%' IDENTIFIED BY '"+password+"'",
		"GRANT ALL ON "+database+".* TO "+role+"@'%'")
}
