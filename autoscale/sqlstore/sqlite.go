package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sluice-go/sluice/internal/datadir"
)

// schemaVersion is the user_version of files of this schema.
const schemaVersion = 1

const sqliteSchema = `
CREATE TABLE memory (
	resource  TEXT PRIMARY KEY,
	version   INTEGER NOT NULL,
	content   TEXT NOT NULL -- JSON: all but the windows
);
CREATE TABLE windows (
	resource  TEXT NOT NULL,
	metric    TEXT NOT NULL,
	content   TEXT NOT NULL, -- JSON
	PRIMARY KEY (resource, metric)
);
CREATE TABLE outcomes (
	resource  TEXT PRIMARY KEY,
	number    INTEGER NOT NULL,
	content   TEXT NOT NULL -- JSON
);
CREATE TABLE records (
	resource  TEXT NOT NULL,
	sequence  INTEGER NOT NULL,
	time      INTEGER NOT NULL, -- nanoseconds since 1970
	content   TEXT NOT NULL, -- JSON
	PRIMARY KEY (resource, sequence)
);
CREATE INDEX records_by_time ON records (resource, time);
CREATE TABLE messages (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
	queue      TEXT NOT NULL,
	body       BLOB NOT NULL,
	hidden     INTEGER NOT NULL DEFAULT 0, -- until then, nanoseconds since 1970
	deliveries INTEGER NOT NULL DEFAULT 0,
	aside      TEXT -- why it was set aside; NULL: it was not
);
CREATE INDEX messages_by_queue ON messages (queue, id) WHERE aside IS NULL;
`

// sqliteLeases were added to the schema without a new version.
const sqliteLeases = `
CREATE TABLE IF NOT EXISTS leases (
	resource  TEXT PRIMARY KEY,
	owner     TEXT NOT NULL,
	until     INTEGER NOT NULL, -- nanoseconds since 1970
	content   TEXT NOT NULL -- JSON
)`

// OpenSQLite opens the file at path, and creates it if it is missing. Its directory must
// exist, on a local disk. It fails if the file has another schema.
func OpenSQLite(path string) (*Store, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open state %s: %w", path, err)
	}
	dsn := (&url.URL{Scheme: "file", Path: filepath.ToSlash(absolute), RawQuery: "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"}).String()
	if err := datadir.CreateFile(absolute); err != nil {
		return nil, fmt.Errorf("open state %s: %w: give a path where a SQLite file can be created", path, err)
	}
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open state %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	s := &Store{where: path, db: db, dialect: newDialect("", "CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000000", "")}
	if err := s.prepareFile(context.Background()); err != nil {
		return nil, errors.Join(fmt.Errorf("open state %s: %w: give a path where a SQLite file can be created", path, err), db.Close())
	}
	return s, nil
}

// prepareFile creates the tables in a new file.
func (s *Store) prepareFile(ctx context.Context) error {
	return s.inTx(ctx, nil, func(tx *sql.Tx) error {
		var version, tables int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
			return err
		}
		if version == schemaVersion {
			_, err := tx.ExecContext(ctx, sqliteLeases)
			return err
		}
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
			return err
		}
		if version != 0 || tables != 0 {
			return fmt.Errorf("the SQLite file belongs to another program (schema %d, %d tables)", version, tables)
		}
		if _, err := tx.ExecContext(ctx, sqliteSchema+sqliteLeases); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
		return err
	})
}
