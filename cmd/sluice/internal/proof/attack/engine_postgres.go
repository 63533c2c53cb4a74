//go:build linux

package attack

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver pgx

	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

// PostgreSQL is PostgreSQL through pgstore.
var PostgreSQL = &Engine{
	Name:     "PostgreSQL",
	LeaseFor: 3 * time.Second,
	start:    func() (server, error) { return started(pgtest.Start(nil)) },
	prepare:  preparePostgres,
	proxy:    pgtest.NewProxy,
	form:     "postgres://%s@%s/" + database + "?sslmode=disable",
	wrong:    "&sslmode=",
	moments:  func() func([]string) moment { return postgresMoment },
	refused: func(statements, tags []string) bool {
		return slices.ContainsFunc(statements, postgresLocks) && slices.Contains(tags, "SELECT 0")
	},
	partition: "partition",
	expire:    `UPDATE sluice_leases SET expires_at = clock_timestamp() - interval '1 second' WHERE owner LIKE $1`,
	owned:     `SELECT count(*) FROM sluice_checkpoints WHERE owner LIKE $1`,
}

func preparePostgres(ctx context.Context, s server, password string) (*sql.DB, error) {
	pg := s.(*pgtest.Server)
	admin, err := sql.Open("pgx", pg.URL("postgres"))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if err := execute(ctx, admin,
		"CREATE ROLE "+role+" LOGIN PASSWORD '"+password+"'",
		"CREATE DATABASE "+database+" OWNER "+role); err != nil {
		return nil, err
	}
	return sql.Open("pgx", pg.URL(database))
}

func postgresLocks(statement string) bool {
	return strings.Contains(statement, "SELECT pg_current_xact_id()::text FROM") && strings.HasSuffix(statement, "FOR NO KEY UPDATE")
}

// postgresMoment finds the moments by pgstore's statements. If those change, the attack fails: see
// [world.recognizes].
func postgresMoment(statements []string) moment {
	last := statements[len(statements)-1]
	for _, s := range statements {
		switch {
		case postgresLocks(s):
			return begins
		case strings.Contains(s, "COPY ") && strings.Contains(s, " FROM STDIN"):
			return writes
		case strings.Contains(s, "pg_current_xact_id()::text = $") && last == "COMMIT":
			return commits
		}
	}
	return never
}
