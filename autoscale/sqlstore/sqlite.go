package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/datadir"
)

// busyTimeout is how long a SQLite file may be held by another process.
const busyTimeout = 10 * time.Second

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
	dsn := (&url.URL{Scheme: "file", Path: filepath.ToSlash(absolute), RawQuery: fmt.Sprintf("_pragma=busy_timeout(%d)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate", busyTimeout.Milliseconds())}).String()
	if err := datadir.CreateFile(absolute); err != nil {
		return nil, fmt.Errorf("open state %s: %w: give a path where a SQLite file can be created", path, err)
	}
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open state %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	s := &Store{where: path, db: db, dialect: newDialect("", "CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000000", "")}
	if err := s.awaitFile(context.Background()); err != nil {
		return nil, errors.Join(fmt.Errorf("open state %s: %w: give a path where a SQLite file can be created", path, err), db.Close())
	}
	return s, nil
}

// awaitFile prepares the file, and tries again while another process does. SQLite does not wait for
// that, in spite of busy_timeout, where a connection turns the write-ahead log on
// (https://sqlite.org/c3ref/busy_handler.html).
func (s *Store) awaitFile(ctx context.Context) error {
	deadline := time.Now().Add(busyTimeout)
	for {
		err := s.prepareFile(ctx)
		busy, is := errors.AsType[*sqlite.Error](err)
		if !is || busy.Code()&0xff != sqlite3.SQLITE_BUSY || time.Now().After(deadline) {
			return err
		}
		if err := clock.Sleep(ctx, 5*time.Millisecond+rand.N(5*time.Millisecond)); err != nil {
			return err
		}
	}
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
