//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// server makes databases of one kind.
type server interface {
	// fresh makes a database, which is empty.
	fresh(ctx context.Context, name string) (*database, error)
	// version is the server's, empty for a library.
	version() string
	// pid is the server's first process, 0 if it is not known.
	pid() int
	close() error
}

// start has for each kind of database the function that starts its server as it runs in production,
// with every commit on disk.
var start = map[string]func(ctx context.Context) (server, error){
	"postgres":  startPostgres,
	"mariadb":   startMariaDB,
	"sqlserver": startSQLServer,
	"sqlite":    startSQLite,
}

// databases makes a fresh database for each run.
type databases struct {
	servers map[string]server // by kind; each starts when it is first needed
	count   int
}

// server returns the server of a kind.
func (db *databases) server(ctx context.Context, kind string) (server, error) {
	if s := db.servers[kind]; s != nil {
		return s, nil
	}
	s, err := start[kind](ctx)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	if db.servers == nil {
		db.servers = map[string]server{}
	}
	db.servers[kind] = s
	return s, nil
}

func (db *databases) close() (err error) {
	for _, s := range db.servers {
		err = errors.Join(err, s.close())
	}
	return err
}

// database is that of one run.
type database struct {
	url   string // as in a pipeline file
	table string
	db    *sql.DB // nil: the contender only reads
	drop  func()
	pid   int // of its server
}

// fresh makes a database with the contender's table; a contender that only
// reads gets none.
func (db *databases) fresh(ctx context.Context, kind string, c contender) (*database, error) {
	name := "readings"
	if c.Raw {
		name = "raw"
	}
	if kind == noDatabase {
		return &database{table: name, drop: func() {}}, nil
	}
	s, err := db.server(ctx, kind)
	if err != nil {
		return nil, err
	}
	db.count++
	d, err := s.fresh(ctx, fmt.Sprintf("run_%d", db.count))
	if err != nil {
		return nil, fmt.Errorf("make database: %w", err)
	}
	d.table, d.pid = name, s.pid()
	if _, err = d.db.ExecContext(ctx, tables[kind][name]); err != nil {
		d.drop()
		return nil, fmt.Errorf("make table: %w", err)
	}
	return d, nil
}

// hasRows counts the rows: a run that lost or duplicated an event is not reported.
func (d *database) hasRows(ctx context.Context, want int) error {
	if d.db == nil {
		return nil
	}
	var rows, events int
	query := "SELECT count(*), count(DISTINCT concat(hub_partition, ':', sequence_number)) FROM " + d.table
	if err := d.db.QueryRowContext(ctx, query).Scan(&rows, &events); err != nil {
		return err
	}
	if rows != want || events != want {
		return fmt.Errorf("the table has %d rows of %d events, want one row for each of %d", rows, events, want)
	}
	return nil
}
