package pipeline

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/sluice-go/sluice/outbox"
)

// database is where leases and checkpoints are stored, and which a target may write to.
type database interface {
	// open opens the stores. It sets Leases, DeadLetters and Checkpoints of parts,
	// and its unexported fields that depend on the database.
	open(ctx context.Context, p *Pipeline, parts *Parts) error
	// inspect connects to the database and changes nothing. The catalog is nil if
	// the database does not exist yet.
	inspect(ctx context.Context) (c catalog, done func(), err error)
}

// sqlDatabase is a database with tables.
type sqlDatabase interface {
	database
	dialect() *dialect
	// address is the database as a file names it: sqlite:PATH or a URL, with its password.
	address() string
	// reader opens the database for reading. It does not connect.
	reader() (*sql.DB, error)
	// outbox opens the database for an outbox in it. It does not connect.
	outbox() (*sql.DB, outbox.Dialect, error)
}

// storage is where leases, checkpoints and dead letters are stored.
type storage struct {
	database    database
	connections int            // to the database, for batches; 0: the default
	leases      *blobContainer // of the leases, if they are not in the database
	noMigrate   bool           // opening only checks that the tables are up to date
}

// databaseForms says how a database is written.
const databaseForms = "write sqlite:PATH, or postgres://, mysql:// or mariadb:// and user@host:port/database, or sqlserver://user@host:port?database=name"

// schemes has the function that parses a database for each scheme. Errors do not quote the text,
// which may contain a password.
var schemes = map[string]func(address string) (sqlDatabase, error){
	"sqlite":     parseSQLite,
	"postgres":   parsePostgres,
	"postgresql": parsePostgres,
	"mysql":      parseMySQL,
	"mariadb":    parseMySQL,
	"sqlserver":  parseSQLServer,
}

// parseDatabase parses sqlite:PATH or the URL of a server's database.
func parseDatabase(address string) (sqlDatabase, error) {
	scheme, rest, found := strings.Cut(address, ":")
	parse := schemes[scheme]
	if !found || parse == nil || scheme != "sqlite" && !strings.HasPrefix(rest, "//") {
		return nil, errors.New(databaseForms)
	}
	return parse(address)
}

// OpenReader opens a database that is written as in a file, for programs that only read it. It does
// not connect. Errors do not contain the password.
func OpenReader(address string) (*sql.DB, error) {
	db, err := parseDatabase(address)
	if err != nil {
		return nil, err
	}
	return db.reader()
}
