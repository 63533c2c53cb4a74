// Package sqlitestore has a store of an autoscaler's state in a SQLite file, and
// queues in the same file, which join its parts if they run as separate processes on
// one machine.
package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/internal/datadir"
)

// Store is an [autoscale.Store] in a SQLite file. It is safe for concurrent use, by
// several processes on one machine too. Open it with [Open].
type Store struct {
	path string
	db   *sql.DB
}

var _ autoscale.Store = (*Store)(nil)

// schemaVersion is the user_version of files of this schema.
const schemaVersion = 1

const schema = `
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

// leases were added to the schema without a new version.
const leases = `
CREATE TABLE IF NOT EXISTS leases (
	resource  TEXT PRIMARY KEY,
	owner     TEXT NOT NULL,
	until     INTEGER NOT NULL, -- nanoseconds since 1970
	content   TEXT NOT NULL -- JSON
)`

// Open opens the file at path, and creates it if it is missing. Its directory must
// exist, on a local disk. It fails if the file has another schema.
func Open(path string) (*Store, error) {
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
	s := &Store{path: path, db: db}
	if err := s.prepare(context.Background()); err != nil {
		return nil, errors.Join(fmt.Errorf("open state %s: %w: give a path where a SQLite file can be created", path, err), db.Close())
	}
	return s, nil
}

// prepare creates the tables in a new file.
func (s *Store) prepare(ctx context.Context) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		var version, tables int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
			return err
		}
		if version == schemaVersion {
			_, err := tx.ExecContext(ctx, leases)
			return err
		}
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
			return err
		}
		if version != 0 || tables != 0 {
			return fmt.Errorf("the SQLite file belongs to another program (schema %d, %d tables)", version, tables)
		}
		if _, err := tx.ExecContext(ctx, schema+leases); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
		return err
	})
}

// Close closes the file. Methods of the store and its queues fail afterwards.
func (s *Store) Close() error { return s.db.Close() }

// inTx runs fn in a write transaction, for which other writers wait.
func (s *Store) inTx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	return tx.Commit()
}

// ignoreDone drops the error of a rollback after the end of a context, which has
// rolled back already.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

func (s *Store) fail(what string, err error) error {
	return fmt.Errorf("%s: state %s: %w", what, s.path, err)
}

// Load implements [autoscale.Store].
func (s *Store) Load(ctx context.Context, resource string) (*autoscale.ResourceState, error) {
	m := &autoscale.ResourceState{Resource: resource}
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		var version int64
		var content string
		err := tx.QueryRowContext(ctx, "SELECT version, content FROM memory WHERE resource = ?", resource).Scan(&version, &content)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(content), m); err != nil {
			return err
		}
		m.Resource, m.Version = resource, strconv.FormatInt(version, 10)
		m.Windows, err = loadWindows(ctx, tx, resource)
		return err
	})
	if err != nil {
		return nil, s.fail("load state of "+resource, err)
	}
	return m, nil
}

func loadWindows(ctx context.Context, tx *sql.Tx, resource string) (map[string]*autoscale.Window, error) {
	rows, err := tx.QueryContext(ctx, "SELECT metric, content FROM windows WHERE resource = ?", resource)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	windows := map[string]*autoscale.Window{}
	for rows.Next() {
		var metric, content string
		if err := rows.Scan(&metric, &content); err != nil {
			return nil, err
		}
		w := &autoscale.Window{}
		if err := json.Unmarshal([]byte(content), w); err != nil {
			return nil, fmt.Errorf("window of %s: %w", metric, err)
		}
		windows[metric] = w
	}
	return windows, rows.Err()
}

// Save implements [autoscale.Store].
func (s *Store) Save(ctx context.Context, m *autoscale.ResourceState, records ...autoscale.Record) error {
	var expected int64 // 0: the row must not exist
	if m.Version != "" {
		var err error
		if expected, err = strconv.ParseInt(m.Version, 10, 64); err != nil {
			return s.fail("save state of "+m.Resource, fmt.Errorf("version %q: %w", m.Version, autoscale.ErrConflict))
		}
	}
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		if err := saveMemory(ctx, tx, m, expected); err != nil {
			return err
		}
		if err := saveWindows(ctx, tx, m); err != nil {
			return err
		}
		for _, r := range records {
			content, err := json.Marshal(r)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO records (resource, sequence, time, content) VALUES (?, ?, ?, ?)",
				m.Resource, r.Sequence, r.Time.UnixNano(), string(content)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return s.fail("save state of "+m.Resource, err)
	}
	m.Version = strconv.FormatInt(expected+1, 10)
	return nil
}

func saveMemory(ctx context.Context, tx *sql.Tx, m *autoscale.ResourceState, expected int64) error {
	bare := *m
	bare.Windows, bare.Version, bare.Resource = nil, "", ""
	content, err := json.Marshal(bare)
	if err != nil {
		return err
	}
	var result sql.Result
	if expected == 0 {
		result, err = tx.ExecContext(ctx, "INSERT INTO memory (resource, version, content) VALUES (?, 1, ?) ON CONFLICT DO NOTHING", m.Resource, string(content))
	} else {
		result, err = tx.ExecContext(ctx, "UPDATE memory SET version = version + 1, content = ? WHERE resource = ? AND version = ?", string(content), m.Resource, expected)
	}
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return errors.Join(autoscale.ErrConflict, err)
	}
	return nil
}

func saveWindows(ctx context.Context, tx *sql.Tx, m *autoscale.ResourceState) error {
	if _, err := tx.ExecContext(ctx, "DELETE FROM windows WHERE resource = ?", m.Resource); err != nil {
		return err
	}
	for metric, w := range m.Windows {
		content, err := json.Marshal(w)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO windows (resource, metric, content) VALUES (?, ?, ?)", m.Resource, metric, string(content)); err != nil {
			return err
		}
	}
	return nil
}

// Outcome implements [autoscale.Store].
func (s *Store) Outcome(ctx context.Context, resource string) (*autoscale.Outcome, error) {
	var content string
	err := s.db.QueryRowContext(ctx, "SELECT content FROM outcomes WHERE resource = ?", resource).Scan(&content)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	o := &autoscale.Outcome{}
	if err == nil {
		err = json.Unmarshal([]byte(content), o)
	}
	if err != nil {
		return nil, s.fail("load outcome of "+resource, err)
	}
	return o, nil
}

// SetOutcome implements [autoscale.Store].
func (s *Store) SetOutcome(ctx context.Context, resource string, o autoscale.Outcome) error {
	content, err := json.Marshal(o)
	if err == nil {
		_, err = s.db.ExecContext(ctx, `INSERT INTO outcomes (resource, number, content) VALUES (?, ?, ?)
			ON CONFLICT (resource) DO UPDATE SET number = excluded.number, content = excluded.content WHERE excluded.number > outcomes.number`,
			resource, o.Number, string(content))
	}
	if err != nil {
		return s.fail("save outcome of "+resource, err)
	}
	return nil
}

// Records implements [autoscale.Store].
func (s *Store) Records(ctx context.Context, resource string, since time.Time, limit int) ([]autoscale.Record, error) {
	if limit <= 0 {
		limit = -1
	}
	from := int64(-1 << 63)
	if !since.IsZero() {
		from = since.UnixNano()
	}
	rows, err := s.db.QueryContext(ctx, `SELECT content FROM (SELECT sequence, content FROM records WHERE resource = ? AND time >= ? ORDER BY sequence DESC LIMIT ?) ORDER BY sequence`,
		resource, from, limit)
	if err != nil {
		return nil, s.fail("read log of "+resource, err)
	}
	defer rows.Close()
	var list []autoscale.Record
	for rows.Next() {
		var content string
		var r autoscale.Record
		err := rows.Scan(&content)
		if err == nil {
			err = json.Unmarshal([]byte(content), &r)
		}
		if err != nil {
			return nil, s.fail("read log of "+resource, err)
		}
		list = append(list, r)
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail("read log of "+resource, err)
	}
	return list, nil
}

// DeleteRecords implements [autoscale.Store].
func (s *Store) DeleteRecords(ctx context.Context, resource string, before time.Time) error {
	if _, err := s.db.ExecContext(ctx, "DELETE FROM records WHERE resource = ? AND time < ?", resource, before.UnixNano()); err != nil {
		return s.fail("delete records of "+resource, err)
	}
	return nil
}
