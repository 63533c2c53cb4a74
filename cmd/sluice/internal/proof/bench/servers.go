//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	_ "modernc.org/sqlite"

	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/testserver"
	"github.com/sluice-go/sluice/pipeline"
)

// testServer is a server of the tests.
type testServer interface {
	testserver.Databases
	URL(database string) string
	Close() error
}

// started is a server that was started for this program.
type started struct {
	testServer
	admin   *sql.DB
	name    string // with its version
	pidFile string // its first line is the number of the server's first process
	settle  string // writes what earlier runs have left to be written, so that it is not written during the next one
}

// begin warms a server up, whose version a query returns.
func begin(ctx context.Context, s *started, maintenance, version string, warm ...string) (server, error) {
	var err error
	if s.admin, err = pipeline.OpenReader(s.URL(maintenance)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	err = s.admin.QueryRowContext(ctx, version).Scan(&s.name)
	for _, statement := range warm {
		if err == nil {
			_, err = s.admin.ExecContext(ctx, statement)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.name, _, _ = strings.Cut(s.name, "\n")
	return s, nil
}

func (s *started) version() string { return s.name }
func (s *started) close() error    { return errors.Join(s.admin.Close(), s.Close()) }

func (s *started) pid() int {
	data, _ := os.ReadFile(s.pidFile)
	line, _, _ := strings.Cut(string(data), "\n")
	pid, _ := strconv.Atoi(line)
	return pid
}

func (s *started) fresh(ctx context.Context, name string) (*database, error) {
	if s.settle != "" {
		if _, err := s.admin.ExecContext(ctx, s.settle); err != nil {
			return nil, err
		}
	}
	url, err := s.CreateDatabase(ctx, name)
	if err != nil {
		return nil, err
	}
	db, err := pipeline.OpenReader(url)
	if err != nil {
		return nil, err
	}
	return &database{url: url, db: db, drop: func() {
		db.Close()
		_ = s.DropDatabase(context.WithoutCancel(ctx), name) // if this fails, it goes with the server
	}}, nil
}

// startPostgres starts PostgreSQL with the files of its write-ahead log and its buffers as later
// runs find them.
func startPostgres(ctx context.Context) (server, error) {
	s, err := pgtest.Start(&pgtest.Config{Durable: true, Settings: []string{"min_wal_size = '2GB'", "max_wal_size = '4GB'"}})
	if err != nil {
		return nil, err
	}
	return begin(ctx, &started{testServer: s, pidFile: filepath.Join(s.Dir(), "data", "postmaster.pid"), settle: "CHECKPOINT"},
		"postgres", "SELECT 'PostgreSQL ' || current_setting('server_version')",
		"CREATE TABLE warm AS SELECT repeat('x', 1000) FROM generate_series(1, 600000)", "DROP TABLE warm", "CHECKPOINT")
}

// startMariaDB starts MariaDB with a log as large as PostgreSQL's, and warms it up in the same way.
func startMariaDB(ctx context.Context) (server, error) {
	s, err := mariadbtest.Start(&mariadbtest.Config{Durable: true, Options: []string{"--innodb-log-file-size=2G", "--innodb-buffer-pool-size=1G"}})
	if err != nil {
		return nil, err
	}
	return begin(ctx, &started{testServer: s, pidFile: s.File("pid")},
		"mysql", "SELECT CONCAT('MariaDB ', VERSION())",
		"CREATE DATABASE warm", "CREATE TABLE warm.warm ENGINE = InnoDB SELECT REPEAT('x', 1000) FROM seq_1_to_300000", "DROP DATABASE warm")
}

// startSQLServer takes the server of SLUICE_SQLSERVER_URL, or starts Babelfish.
func startSQLServer(ctx context.Context) (server, error) {
	s, err := sqlservertest.Provide()
	if err != nil {
		return nil, err
	}
	return begin(ctx, &started{testServer: s}, "master", "SELECT @@VERSION")
}

// files are the SQLite databases of a directory.
type files struct{ dir string }

func startSQLite(context.Context) (server, error) {
	dir, err := os.MkdirTemp("", "sluice-bench-")
	return files{dir}, err
}

func (files) version() string { return "" }
func (files) pid() int        { return 0 }
func (f files) close() error  { return os.RemoveAll(f.dir) }

func (f files) fresh(_ context.Context, name string) (*database, error) {
	path := filepath.Join(f.dir, name)
	db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=journal_mode(WAL)", path))
	if err != nil {
		return nil, err
	}
	return &database{url: "sqlite:" + path, db: db, drop: func() {
		db.Close()
		list, _ := filepath.Glob(path + "*")
		for _, file := range list {
			os.Remove(file)
		}
	}}, nil
}
