package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/sluice-go/sluice"
)

// Table says which rows record which events.
type Table struct {
	Name      string // as SQL wants it, quoted where it must be
	Partition string // column with the event's partition, quoted likewise
	Sequence  string // column with its sequence number
}

// SQL is the ledger of a transactional consumer: a table that the handler
// writes to, and Sluice's own tables in the same database. It is safe for
// concurrent use.
type SQL struct {
	db     *sql.DB
	table  Table
	number func(n int) string // placeholder of a parameter
}

// OpenSQLite opens the ledger in the SQLite file at path, to read only.
func OpenSQLite(path string, table Table) (*SQL, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if _, err := os.Stat(abs); err != nil {
		return nil, fmt.Errorf("open %s: %w: has the pipeline run yet?", path, errors.Unwrap(err))
	}
	name := filepath.ToSlash(abs)
	if !strings.HasPrefix(name, "/") {
		name = "/" + name // C:/…
	}
	dsn := url.URL{Scheme: "file", Path: name, RawQuery: "mode=ro&_pragma=busy_timeout(10000)&_time_format=sqlite"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &SQL{db, table, func(n int) string { return "?" + strconv.Itoa(n) }}, nil
}

// OpenPostgres opens the ledger in the PostgreSQL database at a URL, to read
// only. Sluice's tables are looked for on the search path.
func OpenPostgres(url string, table Table) (*SQL, error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		// The driver's error may show the URL, which may hold a password.
		return nil, errors.New("open PostgreSQL: not a URL that it understands")
	}
	return &SQL{db, table, func(n int) string { return "$" + strconv.Itoa(n) }}, nil
}

// Close closes the connections.
func (l *SQL) Close() error { return l.db.Close() }

// Open implements [Ledger]: a read-only transaction, in which PostgreSQL
// (repeatable read) and SQLite (write-ahead log) show one state of the database
// from its first statement on.
func (l *SQL) Open(ctx context.Context, topic sluice.Topic, partition string) (View, error) {
	opts := &sql.TxOptions{ReadOnly: true}
	if l.number(1) == "$1" {
		opts.Isolation = sql.LevelRepeatableRead
	}
	tx, err := l.db.BeginTx(ctx, opts)
	var refused *pgconn.ConnectError
	if errors.As(err, &refused) {
		// The driver takes a line for each address.
		return nil, errors.New("connect to PostgreSQL: " + strings.Join(strings.Fields(err.Error()), " "))
	}
	if err != nil {
		return nil, fmt.Errorf("begin to read the database: %w", err)
	}
	return &sqlView{l, tx, topic, partition}, nil
}

type sqlView struct {
	*SQL
	tx        *sql.Tx
	topic     sluice.Topic
	partition string
}

func (v *sqlView) Close() error { return v.tx.Rollback() }

// Checkpoint implements [View].
func (v *sqlView) Checkpoint(ctx context.Context) (sluice.Checkpoint, bool, error) {
	g := v.topic.Group
	p := sluice.Checkpoint{Group: g, Partition: v.partition}
	var updated any // SQLite keeps text
	err := v.tx.QueryRowContext(ctx, v.numbered(`SELECT incarnation, sequence_number, owner, epoch, updated_at FROM sluice_checkpoints
WHERE namespace = ? AND topic = ? AND consumer_group = ? AND partition = ?`), g.Namespace, g.Topic, g.Name, v.partition).
		Scan(&p.Incarnation, &p.Position.Sequence, &p.Owner, &p.Epoch, &updated)
	if errors.Is(err, sql.ErrNoRows) {
		return p, false, nil
	}
	if at, ok := updated.(time.Time); ok {
		p.Updated = at
	}
	if err != nil {
		return p, false, fmt.Errorf("read the checkpoint: %w", err)
	}
	return p, true, nil
}

// Entries implements [View].
func (v *sqlView) Entries(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		g := v.topic.Group
		rows, err := v.tx.QueryContext(ctx, fmt.Sprintf(v.numbered(`SELECT t.%[3]s AS n, 0 AS letter FROM %[1]s AS t WHERE t.%[2]s = ?
UNION ALL SELECT sequence_number, 1 FROM sluice_dead_letters
WHERE namespace = ? AND topic = ? AND consumer_group = ? AND incarnation = ? AND partition = ?
ORDER BY n, letter`), v.table.Name, v.table.Partition, v.table.Sequence),
			v.partition, g.Namespace, g.Topic, g.Name, v.topic.Incarnation, v.partition)
		if err != nil {
			yield(Entry{}, fmt.Errorf("read table %s and the dead letters: %w", v.table.Name, err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var sequence sql.NullInt64
			var letter int
			if err := rows.Scan(&sequence, &letter); err != nil {
				yield(Entry{}, fmt.Errorf("row of table %s: %w", v.table.Name, err))
				return
			}
			if !sequence.Valid {
				continue // says nothing of any event
			}
			if !yield(Entry{sequence.Int64, letter == 1}, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Entry{}, fmt.Errorf("read table %s and the dead letters: %w", v.table.Name, err))
		}
	}
}

// numbered puts the database's placeholders for ?, of which the texts have no
// others.
func (v *sqlView) numbered(text string) string {
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(text, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString(v.number(n))
		text = after
	}
}
