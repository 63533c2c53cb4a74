package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/postgres"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/sqlstore"
	"github.com/sluice-go/sluice/storetest"
)

// world is a database that is empty at first.
type world struct {
	dialect Dialect
	address string
	connect func(t testing.TB, address string) *sql.DB
	db      *sql.DB
	table   string
}

// worlds are the four databases. Those of a server skip where it is not installed.
var worlds = map[Dialect]func(t testing.TB) *world{
	SQLite: func(t testing.TB) *world {
		return newWorld(t, SQLite, filepath.Join(t.TempDir(), "outbox.db"), openSQLite)
	},
	PostgreSQL: func(t testing.TB) *world {
		return newWorld(t, PostgreSQL, pgtest.Database(t), openPostgres)
	},
	MySQL: func(t testing.TB) *world {
		return newWorld(t, MySQL, mariadbtest.Database(t), openMySQL)
	},
	SQLServer: func(t testing.TB) *world {
		return newWorld(t, SQLServer, sqlservertest.Database(t), openSQLServer)
	},
}

func newWorld(t testing.TB, d Dialect, address string, connect func(t testing.TB, address string) *sql.DB) *world {
	return &world{d, address, connect, connect(t, address), DefaultTable}
}

// another returns a world with a table of its own in the same database.
func (w *world) another() *world {
	other := *w
	other.table = fmt.Sprintf("outbox_%d", tables.Add(1))
	return &other
}

var tables atomic.Int64

func opened(t testing.TB, db *sql.DB) *sql.DB {
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { db.Close() })
	return db
}

func openSQLite(t testing.TB, path string) *sql.DB {
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"}
	db, err := sql.Open("sqlite", dsn.String())
	suite.NoError(t, "open", err)
	return opened(t, db)
}

func openPostgres(t testing.TB, address string) *sql.DB {
	pc, err := postgres.ParseURL(address)
	suite.NoError(t, "parse", err)
	return opened(t, stdlib.OpenDB(*pc.ConnConfig))
}

func openMySQL(t testing.TB, address string) *sql.DB {
	connector, err := sqlstore.MySQLConnector(address)
	suite.NoError(t, "parse", err)
	return opened(t, sql.OpenDB(connector))
}

func openSQLServer(t testing.TB, address string) *sql.DB {
	connector, err := sqlstore.SQLServerConnector(address, nil)
	suite.NoError(t, "parse", err)
	return opened(t, sql.OpenDB(connector))
}

// source returns an outbox of the database, over connections of its own.
func (w *world) source(t testing.TB, cfg Config) *Source {
	t.Helper()
	cfg.Table = w.table
	s, err := New(w.connect(t, w.address), w.dialect, &cfg)
	suite.NoError(t, "new", err)
	suite.NoError(t, "create", s.Create(suite.Context(t)))
	return s
}

// put writes messages to a partition and commits them.
func put(ctx context.Context, s *Source, partition int, messages ...Message) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := s.prepared(ctx); err != nil {
		return err
	}
	var rows [][]any
	for i := range messages {
		row, err := s.row(&messages[i], 1)
		if err != nil {
			return err
		}
		row[0] = partition
		rows = append(rows, row)
	}
	if err := s.insert(ctx, tx, rows); err != nil {
		return err
	}
	return tx.Commit()
}

func (w *world) exec(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := w.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// harness returns the suite's harness for a database.
func (w *world) harness(t testing.TB) storetest.SourceHarness {
	s := w.source(t, Config{Partitions: 2})
	return storetest.SourceHarness{
		Connect: func(t testing.TB) driver.Source { return w.source(t, Config{Partitions: 2}) },
		Append: func(ctx context.Context, partition string, events ...*driver.Event) error {
			p, err := strconv.Atoi(partition)
			if err != nil {
				return err
			}
			var messages []Message
			for _, e := range events {
				messages = append(messages, Message{ID: e.MessageID, CorrelationID: e.CorrelationID, ContentType: e.ContentType, Properties: e.Properties, Body: e.Body, Created: e.Created})
			}
			return put(ctx, s, p, messages...)
		},
		Trim: func(ctx context.Context, partition string, before int64) error {
			p, err := s.partition(ctx, partition)
			if err != nil {
				return err
			}
			_, err = s.deleteBatch(ctx, p, before, 0)
			return err
		},
		Recreate: func(ctx context.Context) error {
			if err := w.exec(ctx, "DROP TABLE "+w.table, "DROP TABLE "+w.table+"_partitions"); err != nil {
				return err
			}
			return s.create(ctx)
		},
		Truncate: w.setBack,
		Features: storetest.SourceFeatures{NoEpochs: true, SharedOffsets: true, Created: true},
	}
}

// setBack makes the table what it was before the number end was given, as the restore of a backup
// or a fail-over to a server that is behind does.
func (w *world) setBack(ctx context.Context, partition string, end int64) error {
	replace := strings.NewReplacer("@t", w.table, "@part", partition, "@before", fmt.Sprint(end-1), "@end", fmt.Sprint(end))
	return w.exec(ctx,
		replace.Replace("UPDATE @t_partitions SET head = @end, last_tag = COALESCE((SELECT MIN(tag) FROM @t WHERE partition_id = @part AND n = @before), 0) WHERE partition_id = @part"),
		replace.Replace("DELETE FROM @t WHERE partition_id = @part AND n >= @end"))
}

// Each conformance case has a table of its own.
func TestConformance(t *testing.T)          { conformance(t, SQLite) }
func TestPostgresConformance(t *testing.T)  { conformance(t, PostgreSQL) }
func TestMariaDBConformance(t *testing.T)   { conformance(t, MySQL) }
func TestSQLServerConformance(t *testing.T) { conformance(t, SQLServer) }

func conformance(t *testing.T, d Dialect) {
	w := worlds[d](t)
	suite.Parallel(t, func(t *testing.T) {
		storetest.TestSource(t, func(t testing.TB) storetest.SourceHarness {
			if d == SQLite { // one writer at a time
				return worlds[d](t).harness(t)
			}
			return w.another().harness(t)
		})
	})
}
