package audit

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice/driver"
)

// Table is a table whose rows record which event each belongs to. The names go into
// statements as they are: they must be quoted where SQL requires it.
type Table struct {
	Name      string
	Partition string // column with the event's partition
	Sequence  string // column with its sequence number
	// Topic is the column with the name of the event's topic; empty: all rows are of one topic.
	Topic string
}

// rows selects the sequence numbers of a partition's rows, and appends the arguments.
func (t *Table) rows(topic, partition string, args *[]any) string {
	text := fmt.Sprintf("SELECT t.%[3]s AS n, 0 AS letter FROM %[1]s AS t WHERE t.%[2]s = ?", t.Name, t.Partition, t.Sequence)
	*args = append(*args, partition)
	if t.Topic != "" {
		text += " AND t." + t.Topic + " = ?"
		*args = append(*args, topic)
	}
	return text
}

// Dialect is how the SQL of a database differs from that of another.
type Dialect struct {
	// Placeholder returns the placeholder of the nth parameter, counted from 1.
	Placeholder func(n int) string
	// Isolation is the level at which a read-only transaction sees one state of
	// the database from its first statement on.
	Isolation sql.IsolationLevel
	// NoReadOnly: the driver has no read-only transactions.
	NoReadOnly bool

	group     string // condition with namespace, topic and consumer group; empty: these columns'
	partition string // the column partition; empty: its name
}

// SQLite returns the dialect of SQLite, for a database in write-ahead log mode.
func SQLite() Dialect {
	return Dialect{Placeholder: func(n int) string { return "?" + strconv.Itoa(n) }}
}

// PostgreSQL returns the dialect of PostgreSQL.
func PostgreSQL() Dialect {
	return Dialect{Placeholder: func(n int) string { return "$" + strconv.Itoa(n) }, Isolation: sql.LevelRepeatableRead}
}

// MySQL returns the dialect of MySQL and MariaDB.
func MySQL() Dialect {
	return Dialect{Placeholder: func(int) string { return "?" }, Isolation: sql.LevelRepeatableRead, partition: "`partition`"} // a reserved word
}

// SQLServer returns the dialect of SQL Server. The database must allow snapshots: ALTER DATABASE …
// SET ALLOW_SNAPSHOT_ISOLATION ON, which is Azure SQL's default.
func SQLServer() Dialect {
	return Dialect{
		Placeholder: func(n int) string { return "@p" + strconv.Itoa(n) }, Isolation: sql.LevelSnapshot, NoReadOnly: true,
		// = does not compare trailing blanks. The tables are clustered by this key.
		group: "group_key = CAST(HASHBYTES('SHA2_256', CONCAT(?, NCHAR(31), ?, NCHAR(31), ?)) AS binary(32))",
	}
}

// SQLLedger is the [Ledger] of a transactional consumer: the tables that the
// handler writes to, and Sluice's own tables in the same database. It only
// reads. It is safe for concurrent use.
type SQLLedger struct {
	db      *sql.DB
	dialect Dialect
	table   Table
	more    []Table
}

// NewSQLLedger returns the ledger in a database, which the caller opens and closes. An event may
// have its row in any of the tables. In PostgreSQL, Sluice's tables are looked up on the search
// path.
func NewSQLLedger(db *sql.DB, dialect Dialect, table Table, more ...Table) *SQLLedger {
	return &SQLLedger{db, dialect, table, more}
}

// Open implements [Ledger]. The view is a read-only transaction.
func (l *SQLLedger) Open(ctx context.Context, topic driver.Topic, partition string) (View, error) {
	tx, err := l.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: !l.dialect.NoReadOnly, Isolation: l.dialect.Isolation})
	if err != nil {
		return nil, fmt.Errorf("begin to read the database: %w", err)
	}
	return &sqlView{l, tx, topic, partition}, nil
}

type sqlView struct {
	ledger    *SQLLedger
	tx        *sql.Tx
	topic     driver.Topic
	partition string
}

func (v *sqlView) Close() error { return v.tx.Rollback() }

// Checkpoint implements [View]. In a table of an earlier version, which has no columns for it, the
// beginning is not known.
func (v *sqlView) Checkpoint(ctx context.Context) (p driver.Checkpoint, found bool, err error) {
	g := v.topic.Group
	p = driver.Checkpoint{Group: g, Partition: v.partition}
	rows, err := v.tx.QueryContext(ctx, v.ledger.numbered(`SELECT * FROM sluice_checkpoints
WHERE {group} AND {partition} = ?`), g.Namespace, g.Topic, g.Name, v.partition)
	if err != nil {
		return p, false, fmt.Errorf("read the checkpoint: %w", err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err == nil && rows.Next() {
		found, err = true, scanCheckpoint(rows, columns, &p)
	}
	if err = cmp.Or(err, rows.Err()); err != nil {
		return p, false, fmt.Errorf("read the checkpoint: %w", err)
	}
	return p, found, nil
}

// scanCheckpoint reads what an audit needs of a checkpoint.
func scanCheckpoint(rows *sql.Rows, columns []string, p *driver.Checkpoint) error {
	var doneEpoch int64
	of := map[string]any{
		"incarnation": &p.Incarnation, "sequence_number": &p.Position.Sequence, "owner": &p.Owner, "epoch": &p.Epoch,
		"began_sequence": &p.Began.After, "began_how": &p.Began.How, "done_epoch": &doneEpoch,
	}
	places := make([]any, len(columns))
	for i, name := range columns {
		if places[i] = of[name]; places[i] == nil {
			places[i] = new(any)
		}
		delete(of, name)
	}
	for _, name := range []string{"incarnation", "sequence_number", "owner", "epoch"} {
		if of[name] != nil {
			return fmt.Errorf("sluice_checkpoints has no column %s", name)
		}
	}
	if err := rows.Scan(places...); err != nil {
		return err
	}
	// A program that does not know the other columns resets a checkpoint without done_epoch.
	if len(of) > 0 || !p.Began.Known() || p.Owner == "" && doneEpoch != p.Epoch {
		p.Began = driver.Beginning{}
	}
	return nil
}

// Entries implements [View].
func (v *sqlView) Entries(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		g := v.topic.Group
		var selects []string
		var args []any
		for _, t := range append(slices.Clone(v.ledger.more), v.ledger.table) {
			selects = append(selects, t.rows(g.Topic, v.partition, &args))
		}
		args = append(args, g.Namespace, g.Topic, g.Name, v.topic.Incarnation, v.partition)
		rows, err := v.tx.QueryContext(ctx, v.ledger.numbered(strings.Join(selects, " UNION ALL ")+`
UNION ALL SELECT sequence_number, 1 FROM sluice_dead_letters
WHERE {group} AND incarnation = ? AND {partition} = ?
ORDER BY n, letter`), args...)
		if err != nil {
			yield(Entry{}, fmt.Errorf("read table %s and the dead letters: %w", v.ledger.names(), err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var sequence sql.NullInt64
			var letter int
			if err := rows.Scan(&sequence, &letter); err != nil {
				yield(Entry{}, fmt.Errorf("row of table %s: %w", v.ledger.names(), err))
				return
			}
			if !sequence.Valid {
				continue // a row that belongs to no event
			}
			if !yield(Entry{sequence.Int64, letter == 1}, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Entry{}, fmt.Errorf("read table %s and the dead letters: %w", v.ledger.names(), err))
		}
	}
}

// names are those of the tables, for errors.
func (l *SQLLedger) names() string {
	list := l.table.Name
	for _, t := range l.more {
		list += ", " + t.Name
	}
	return list
}

// numbered replaces {group} of a statement with its condition, {partition} with that column, and
// each ? with the database's placeholder. The statements have no other question marks.
func (l *SQLLedger) numbered(text string) string {
	text = strings.Replace(text, "{group}", cmp.Or(l.dialect.group, "namespace = ? AND topic = ? AND consumer_group = ?"), 1)
	text = strings.Replace(text, "{partition}", cmp.Or(l.dialect.partition, "partition"), 1)
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(text, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString(l.dialect.Placeholder(n))
		text = after
	}
}
