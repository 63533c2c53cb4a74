package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sqlstore"
)

// sqlite is a database in a file of its own, beside the one that is named: on the same disk.
type sqlite struct {
	storeDatabase
	path  string // of the file that the checks make
	named string // by the user; it is only read
}

// OpenSQLite makes a [System] of the place of a SQLite database. It opens nothing.
func OpenSQLite(path string, opts Options) (System, error) {
	s := &sqlite{named: path, path: path + ".sluice-check-" + opts.ID}
	return &databaseSystem{
		opts: opts, name: "SQLite " + path, leaseFor: 2 * time.Second,
		rights:  s.rights,
		creates: []string{"a database of its own on the same disk, " + s.path + ", with files beside it; they are removed at the end, and " + path + " is not opened"},
		prepare: s.prepare,
		closes:  s.close,
	}, nil
}

func (s *sqlite) rights(context.Context, bool) []Right {
	list := []Right{directoryRight(filepath.Dir(s.named))}
	f, err := os.OpenFile(s.named, os.O_RDWR, 0)
	if err == nil {
		err = f.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return list // a pipeline creates it
	}
	file := Right{Name: "read and write the database's file"}
	file.grant(err, "change the owner or the mode of the file")
	return append(list, file)
}

func directoryRight(dir string) Right {
	r := Right{Name: "create files in the database's directory"}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
	case !info.IsDir():
		err = fmt.Errorf("%s is not a directory", dir)
	default:
		err = mayWrite(dir)
	}
	r.grant(err, "create the directory, or change its owner or its mode")
	return r
}

func (s *sqlite) prepare(ctx context.Context, made *Ledger) (database, error) {
	made.Add("database "+s.path, func(context.Context) error {
		s.close()
		files, err := filepath.Glob(globEscape(s.path) + "*")
		for _, f := range files {
			err = errors.Join(err, os.Remove(f))
		}
		return err
	})
	ctx, cancel := untilDone(ctx)
	defer cancel()
	store, err := sqlstore.OpenSQLite(s.path, nil)
	if err != nil {
		return nil, err
	}
	s.store, s.table = store, effectsTable
	// A handler creates the table: nothing else writes to the database.
	lease := driver.Lease{Group: driver.Group{Namespace: "sluice-check", Topic: "tables", Name: "check"}, Partition: "0", Owner: "check", Epoch: 1}
	if _, err := store.Claim(ctx, lease, incarnation); err != nil {
		return nil, err
	}
	return s, store.Commit(ctx, driver.Step{Lease: lease, From: driver.Unset, To: positionAt(0)}, func(ctx context.Context, tx *sqlstore.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE "+effectsTable+" (id INTEGER PRIMARY KEY)")
		return err
	})
}

// globEscape makes a path match itself only.
func globEscape(path string) string {
	var b []byte
	for i := range len(path) {
		switch path[i] {
		case '*', '?', '[', '\\':
			if filepath.Separator != '\\' {
				b = append(b, '\\')
			}
		}
		b = append(b, path[i])
	}
	return string(b)
}

// clock is SQLite's own, which is that of this machine, to the millisecond.
func (s *sqlite) clock(ctx context.Context) (time.Time, error) {
	var text string
	if err := s.store.DB().QueryRowContext(ctx, "SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')").Scan(&text); err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339Nano, text)
}

func (s *sqlite) durable(ctx context.Context) (found, problem string, err error) {
	var mode, version string
	err = s.store.DB().QueryRowContext(ctx, "SELECT (SELECT journal_mode FROM pragma_journal_mode), sqlite_version()").Scan(&mode, &version)
	if err == nil && mode != "wal" {
		problem = "the journal mode is " + mode + " and not wal: the file system has no shared memory, as over a network"
	}
	return "version " + version + ", journal mode " + mode + ", synchronous full", problem, err
}
