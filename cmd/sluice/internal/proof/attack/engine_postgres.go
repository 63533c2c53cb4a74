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
		return postgresMoment(statements) == begins && slices.Contains(tags, "UPDATE 0")
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

// postgresMoment finds the moments by pgstore's statements. If those change, it finds nothing, these
// faults do not strike, and the attack fails for that.
func postgresMoment(statements []string) moment {
	last := statements[len(statements)-1]
	for _, s := range statements {
		switch {
		case strings.Contains(s, "UPDATE") && strings.Contains(s, "sluice_checkpoints") && strings.Contains(s, "RETURNING pg_current_xact_id()"):
			return begins
		case strings.HasPrefix(strings.ToLower(s), "copy "):
			return writes
		case strings.Contains(s, "pg_current_xact_id()::text = $1") && last == "COMMIT":
			return commits
		}
	}
	return never
}
