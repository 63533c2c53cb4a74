package sqlstore

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// serverColumns are the columns of Sluice's tables in the database of a connection.
const serverColumns = `SELECT table_name, column_name, data_type, is_nullable, coalesce(column_default, '-')
	FROM information_schema.columns WHERE table_name LIKE 'sluice_%' AND table_schema = `

// byTool checks that the files of a dialect make what opening makes, and that a store finds them
// current and works. open opens a database of its own by the address; schema is an expression for
// the default one.
func byTool(t *testing.T, kind Dialect, database func(testing.TB) string, open func(context.Context, string, *ServerConfig) (*Store, error), schema string) {
	addressOf := map[string]string{"opening": database(t), "tool": database(t)}
	_, err := open(t.Context(), addressOf["tool"], &ServerConfig{NoMigrate: true})
	saysAll(t, "an empty database", err, "version 0", "sluice migrate", "NoMigrate")

	made, err := open(t.Context(), addressOf["opening"], nil)
	suite.NoError(t, "open", err)
	defer made.Close()
	apply(t, kind, addressOf["tool"], made)
	s, err := open(t.Context(), addressOf["tool"], &ServerConfig{NoMigrate: true})
	suite.NoError(t, "open without migrating", err)
	defer s.Close()

	got, want := serverContent(t, s.DB(), schema), serverContent(t, made.DB(), schema)
	if got != want || strings.Count(got, "\n") < 50 {
		t.Errorf("the tool made\n%s\nopening makes\n%s", got, want)
	}
	l, err := s.Leases().Acquire(t.Context(), group, "0", "a", time.Minute, 0)
	suite.NoError(t, "acquire", err)
	c, err := s.Claim(t.Context(), l, "i")
	suite.NoError(t, "claim", err)
	suite.NoError(t, "commit", s.Commit(t.Context(), driver.Step{Lease: l, From: c.Position, To: positionAt(1)}, nil))
}

// apply sends the statements of the files over one connection of a new database, which is not a
// store's.
func apply(t *testing.T, kind Dialect, address string, made *Store) {
	t.Helper()
	var db *sql.DB
	switch kind {
	case MariaDB:
		mc, err := parseMySQL(address)
		suite.NoError(t, "read the address", err)
		db, err = sql.Open("mysql", mc.FormatDSN())
		suite.NoError(t, "open", err)
	case SQLServer:
		var err error
		db, err = sql.Open("sqlserver", address)
		suite.NoError(t, "open", err)
	default:
		var err error
		db, err = sql.Open("pgx", address)
		suite.NoError(t, "open", err)
	}
	defer db.Close()
	conn, err := db.Conn(t.Context())
	suite.NoError(t, "connect", err)
	defer conn.Close()
	for _, text := range migrationTexts(t, Migrations(kind), ".") {
		for _, statement := range gooseStatements(t, text) {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%v in\n%s", err, statement)
			}
		}
	}
}

// serverContent returns the columns and the versions of a database.
func serverContent(t *testing.T, db *sql.DB, schema string) string {
	t.Helper()
	var b strings.Builder
	for _, query := range []string{
		serverColumns + schema + " ORDER BY table_name, column_name",
		"SELECT component, version, oldest_compatible, '', '' FROM sluice_schema ORDER BY component",
	} {
		rows, err := db.QueryContext(t.Context(), query)
		suite.NoError(t, "read the schema", err)
		for rows.Next() {
			var parts [5]string
			suite.NoError(t, "scan", rows.Scan(&parts[0], &parts[1], &parts[2], &parts[3], &parts[4]))
			b.WriteString(strings.Join(parts[:], " ") + "\n")
		}
		suite.NoError(t, "read the rows", rows.Err())
	}
	return b.String()
}

func TestMariaDBMigrations(t *testing.T) {
	byTool(t, MariaDB, mariadbtest.Database, OpenMySQL, "DATABASE()")
}

func TestSQLServerMigrations(t *testing.T) {
	byTool(t, SQLServer, sqlservertest.Database, OpenSQLServer, "SCHEMA_NAME()")
}

func TestPostgresMigrations(t *testing.T) {
	byTool(t, PostgreSQL, pgtest.Database, OpenPostgres, "current_schema()")
}
