// Package sqlstore has stores of an autoscaler's state in SQL databases, and queues in the
// same database, which join its parts if they run as separate processes: a SQLite file
// ([OpenSQLite]) on one machine, and PostgreSQL ([OpenPostgres]) for processes on several.
package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// Store is an [autoscale.Store] in a database. It is safe for concurrent use, by several
// processes too. Open it with [OpenSQLite] or [OpenPostgres].
type Store struct {
	where string // for people
	db    *sql.DB
	dialect
}

var _ autoscale.Store = (*Store)(nil)

// dialect is what differs between the databases. Statements are written once, with {name}
// for a table, {now} and {skip locked}, and ? for a parameter.
type dialect struct {
	words    *strings.Replacer
	numbered bool           // parameters are $1, $2, …
	snapshot *sql.TxOptions // of a transaction whose reads see one state
}

// newDialect returns a dialect whose tables have a prefix. now is an expression for the
// present time in nanoseconds since 1970, by the one clock of all processes.
func newDialect(prefix, now, skipLocked string) dialect {
	return dialect{words: strings.NewReplacer("{now}", now, "{skip locked}", skipLocked, "{", prefix, "}", "")}
}

// text returns a statement as the database reads it.
func (d dialect) text(statement string) string {
	statement = d.words.Replace(statement)
	if !d.numbered {
		return statement
	}
	var b strings.Builder
	for i, part := range strings.Split(statement, "?") {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}

// Close closes the database. Methods of the store and its queues fail afterwards.
func (s *Store) Close() error { return s.db.Close() }

// inTx runs fn in a transaction.
func (s *Store) inTx(ctx context.Context, opts *sql.TxOptions, fn func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, opts)
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

// exec runs a statement, and returns how many rows it has changed.
func (s *Store) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	return s.execOn(ctx, s.db, statement, args...)
}

// execOn is exec in a transaction.
func (d dialect) execOn(ctx context.Context, on execer, statement string, args ...any) (int64, error) {
	result, err := on.ExecContext(ctx, d.text(statement), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (s *Store) fail(what string, err error) error {
	return fmt.Errorf("%s: state %s: %w", what, s.where, err)
}

// Load implements [autoscale.Store].
func (s *Store) Load(ctx context.Context, resource string) (*autoscale.ResourceState, error) {
	m := &autoscale.ResourceState{Resource: resource}
	err := s.inTx(ctx, s.snapshot, func(tx *sql.Tx) error {
		var version int64
		var content string
		err := tx.QueryRowContext(ctx, s.text("SELECT version, content FROM {memory} WHERE resource = ?"), resource).Scan(&version, &content)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(content), m); err != nil {
			return err
		}
		m.Resource, m.Version = resource, strconv.FormatInt(version, 10)
		m.Windows, err = s.loadWindows(ctx, tx, resource)
		return err
	})
	if err != nil {
		return nil, s.fail("load state of "+resource, err)
	}
	return m, nil
}

func (s *Store) loadWindows(ctx context.Context, tx *sql.Tx, resource string) (map[string]*autoscale.Window, error) {
	rows, err := tx.QueryContext(ctx, s.text("SELECT metric, content FROM {windows} WHERE resource = ?"), resource)
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
	err := s.inTx(ctx, nil, func(tx *sql.Tx) error {
		if err := s.saveMemory(ctx, tx, m, expected); err != nil {
			return err
		}
		if err := s.saveWindows(ctx, tx, m); err != nil {
			return err
		}
		for _, r := range records {
			content, err := json.Marshal(r)
			if err != nil {
				return err
			}
			if _, err := s.execOn(ctx, tx, `INSERT INTO {records} (resource, sequence, time, content) VALUES (?, ?, ?, ?)
				ON CONFLICT (resource, sequence) DO UPDATE SET time = excluded.time, content = excluded.content`,
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

func (s *Store) saveMemory(ctx context.Context, tx *sql.Tx, m *autoscale.ResourceState, expected int64) error {
	bare := *m
	bare.Windows, bare.Version, bare.Resource = nil, "", ""
	content, err := json.Marshal(bare)
	if err != nil {
		return err
	}
	var saved int64
	if expected == 0 {
		saved, err = s.execOn(ctx, tx, "INSERT INTO {memory} (resource, version, content) VALUES (?, 1, ?) ON CONFLICT DO NOTHING", m.Resource, string(content))
	} else {
		saved, err = s.execOn(ctx, tx, "UPDATE {memory} SET version = version + 1, content = ? WHERE resource = ? AND version = ?", string(content), m.Resource, expected)
	}
	if err == nil && saved != 1 {
		err = autoscale.ErrConflict
	}
	return err
}

func (s *Store) saveWindows(ctx context.Context, tx *sql.Tx, m *autoscale.ResourceState) error {
	if _, err := s.execOn(ctx, tx, "DELETE FROM {windows} WHERE resource = ?", m.Resource); err != nil {
		return err
	}
	for metric, w := range m.Windows {
		content, err := json.Marshal(w)
		if err != nil {
			return err
		}
		if _, err := s.execOn(ctx, tx, "INSERT INTO {windows} (resource, metric, content) VALUES (?, ?, ?)", m.Resource, metric, string(content)); err != nil {
			return err
		}
	}
	return nil
}

// Outcome implements [autoscale.Store].
func (s *Store) Outcome(ctx context.Context, resource string) (*autoscale.Outcome, error) {
	var content string
	err := s.db.QueryRowContext(ctx, s.text("SELECT content FROM {outcomes} WHERE resource = ?"), resource).Scan(&content)
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
		_, err = s.exec(ctx, `INSERT INTO {outcomes} AS o (resource, number, content) VALUES (?, ?, ?)
			ON CONFLICT (resource) DO UPDATE SET number = excluded.number, content = excluded.content WHERE excluded.number > o.number`,
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
		limit = math.MaxInt
	}
	from := int64(math.MinInt64)
	if !since.IsZero() {
		from = since.UnixNano()
	}
	rows, err := s.db.QueryContext(ctx, s.text(`SELECT content FROM (SELECT sequence, content FROM {records} WHERE resource = ? AND time >= ? ORDER BY sequence DESC LIMIT ?) AS newest ORDER BY sequence`),
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
	if _, err := s.exec(ctx, "DELETE FROM {records} WHERE resource = ? AND time < ?", resource, before.UnixNano()); err != nil {
		return s.fail("delete records of "+resource, err)
	}
	return nil
}
