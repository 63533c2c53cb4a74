//go:build unix

package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

// databases makes a fresh database for each run.
type databases struct {
	server  *pgtest.Server
	admin   *sql.DB
	version string // PostgreSQL's
	dir     string // for SQLite's files
	count   int
}

// openDatabases starts PostgreSQL as it runs in production, with fsync, and
// warms it up.
func openDatabases(ctx context.Context) (*databases, error) {
	server, err := pgtest.Start(&pgtest.Config{Durable: true, Settings: []string{"min_wal_size = '2GB'", "max_wal_size = '4GB'"}})
	if err != nil {
		return nil, err
	}
	db := &databases{server: server}
	if db.admin, err = sql.Open("pgx", server.URL("postgres")); err == nil {
		err = db.admin.QueryRowContext(ctx, "SHOW server_version").Scan(&db.version)
	}
	if err == nil {
		err = db.warm(ctx)
	}
	if err == nil {
		db.dir, err = os.MkdirTemp("", "sluice-bench-")
	}
	if err != nil {
		return nil, errors.Join(err, db.close())
	}
	return db, nil
}

// warm makes PostgreSQL create the files of its write-ahead log and fill its
// buffers. Later runs reuse them, so the first run is like the others.
func (db *databases) warm(ctx context.Context) error {
	for _, sql := range []string{
		"CREATE TABLE warm AS SELECT repeat('x', 1000) FROM generate_series(1, 600000)", "DROP TABLE warm", "CHECKPOINT",
	} {
		if _, err := db.admin.ExecContext(ctx, sql); err != nil {
			return fmt.Errorf("warm PostgreSQL: %w", err)
		}
	}
	return nil
}

func (db *databases) close() error {
	var err error
	if db.admin != nil {
		err = db.admin.Close()
	}
	if db.dir != "" {
		err = errors.Join(err, os.RemoveAll(db.dir))
	}
	return errors.Join(err, db.server.Close())
}

// pid is PostgreSQL's first process, 0 if there is none.
func (db *databases) pid() int {
	if db.server == nil {
		return 0
	}
	data, _ := os.ReadFile(filepath.Join(db.server.Dir(), "data", "postmaster.pid"))
	line, _, _ := strings.Cut(string(data), "\n")
	pid, _ := strconv.Atoi(line)
	return pid
}

// database is that of one run.
type database struct {
	url   string // as in a pipeline file
	table string
	db    *sql.DB
	drop  func()
}

// fresh makes a database with the contender's table; a contender that only
// reads gets none.
func (db *databases) fresh(ctx context.Context, kind string, c contender) (*database, error) {
	d := &database{table: "readings", drop: func() {}}
	if c.Raw {
		d.table = "raw"
	}
	if c.Name == readContender {
		return d, nil
	}
	db.count++
	name := fmt.Sprintf("run_%d", db.count)
	var err error
	var create string
	if kind == "postgres" {
		create = table[d.table].postgres
		// Otherwise PostgreSQL would write the pages of an earlier run during this one.
		if _, err := db.admin.ExecContext(ctx, "CHECKPOINT"); err != nil {
			return nil, err
		}
		if d.url, err = db.server.CreateDatabase(ctx, name); err != nil {
			return nil, err
		}
		d.db, err = sql.Open("pgx", d.url)
		d.drop = func() {
			d.db.Close()
			_, _ = db.admin.Exec("DROP DATABASE " + name + " WITH (FORCE)") // if this fails, it goes with the server
		}
	} else {
		create = table[d.table].sqlite
		path := filepath.Join(db.dir, name)
		d.url = "sqlite:" + path
		d.db, err = sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)")
		d.drop = func() {
			d.db.Close()
			files, _ := filepath.Glob(path + "*")
			for _, f := range files {
				os.Remove(f)
			}
		}
	}
	if err == nil {
		_, err = d.db.ExecContext(ctx, create)
	}
	if err != nil {
		d.drop()
		return nil, fmt.Errorf("make database: %w", err)
	}
	return d, nil
}

// hasRows counts the rows: a run that lost or duplicated an event is not reported.
func (d *database) hasRows(ctx context.Context, want int) error {
	if d.db == nil {
		return nil
	}
	var rows, events int
	query := "SELECT count(*), count(DISTINCT (hub_partition || ':' || sequence_number)) FROM " + d.table
	if err := d.db.QueryRowContext(ctx, query).Scan(&rows, &events); err != nil {
		return err
	}
	if rows != want || events != want {
		return fmt.Errorf("the table has %d rows of %d events, want one row for each of %d", rows, events, want)
	}
	return nil
}

// cpuOf is the processor time that a process and its children have used, 0
// where there is no /proc (proc(5)).
func cpuOf(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	own, _ := procTimes(pid)
	stats, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range stats {
		id, _ := strconv.Atoi(filepath.Base(dir))
		if t, parent := procTimes(id); parent == pid {
			own += t
		}
	}
	return own
}

// procTimes reads the times of a process with those of its children that have
// ended, and its parent.
func procTimes(pid int) (used time.Duration, parent int) {
	const tick = 10 * time.Millisecond // USER_HZ, which the kernel never changes
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	_, rest, _ := strings.Cut(string(data), ") ") // behind the name, which may hold spaces
	f := strings.Fields(rest)
	if len(f) < 15 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(f[1])
	for _, field := range f[11:15] { // utime, stime, cutime, cstime
		n, _ := strconv.Atoi(field)
		used += time.Duration(n) * tick
	}
	return used, parent
}

// processor is the name of the machine's processor, empty where there is no /proc.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
