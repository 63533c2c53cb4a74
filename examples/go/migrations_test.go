package examples

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	migratedb "github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/postgres"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/sqlstore"
)

// tool applies the files of a directory to a database of PostgreSQL or SQLite.
type tool func(ctx context.Context, dialect sqlstore.Dialect, db *sql.DB, files fs.FS) error

var tools = map[string]tool{
	"goose": func(ctx context.Context, dialect sqlstore.Dialect, db *sql.DB, files fs.FS) error {
		of := map[sqlstore.Dialect]goose.Dialect{sqlstore.PostgreSQL: goose.DialectPostgres, sqlstore.SQLite: goose.DialectSQLite3}
		provider, err := goose.NewProvider(of[dialect], db, files)
		if err != nil {
			return err
		}
		_, err = provider.Up(ctx)
		return err
	},
	"golang-migrate": func(_ context.Context, dialect sqlstore.Dialect, db *sql.DB, files fs.FS) error {
		source, err := iofs.New(files, ".")
		if err != nil {
			return err
		}
		var target migratedb.Driver
		if dialect == sqlstore.SQLite {
			target, err = sqlite.WithInstance(db, &sqlite.Config{})
		} else {
			target, err = postgres.WithInstance(db, &postgres.Config{})
		}
		if err != nil {
			return err
		}
		m, err := migrate.NewWithInstance("iofs", source, string(dialect), target)
		if err != nil {
			return err
		}
		if err := m.Up(); !errors.Is(err, migrate.ErrNoChange) {
			return err
		}
		return nil
	},
}

// TestMigrationTools: a service's own tool makes Sluice's tables, also in two runs, and a store
// that makes none works with them.
func TestMigrationTools(t *testing.T) {
	for name, apply := range tools {
		t.Run(name+", pgstore", func(t *testing.T) {
			address := pgtest.Database(t)
			migrated(t, apply, sqlstore.PostgreSQL, own(t, "postgres", address), pgstore.Migrations())
			store, err := pgstore.Open(t.Context(), address, &pgstore.Config{NoMigrate: true})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			deliver(t, store, store.Leases(), func(ctx context.Context, tx pgx.Tx, id string) error {
				_, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", id)
				return err
			})
		})
		t.Run(name+", sqlstore", func(t *testing.T) {
			address := pgtest.Database(t)
			migrated(t, apply, sqlstore.PostgreSQL, own(t, "postgres", address), sqlstore.Migrations(sqlstore.PostgreSQL))
			store, err := sqlstore.OpenPostgres(t.Context(), address, &sqlstore.ServerConfig{NoMigrate: true})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			deliver(t, store, store.Leases(), func(ctx context.Context, tx *sqlstore.Tx, id string) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", id)
				return err
			})
		})
		t.Run(name+", SQLite", func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "orders.db")
			files := sqlstore.Migrations(sqlstore.SQLite)
			leases, err := fs.Sub(files, "leases")
			if err != nil {
				t.Fatal(err)
			}
			if err := apply(t.Context(), sqlstore.SQLite, own(t, "sqlite", "file:"+path+"-leases"), leases); err != nil {
				t.Fatal(err)
			}
			migrated(t, apply, sqlstore.SQLite, own(t, "sqlite", "file:"+path), files)
			store, err := sqlstore.OpenSQLite(path, &sqlstore.Config{NoMigrate: true})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			deliver(t, store, store.Leases(), func(ctx context.Context, tx *sqlstore.Tx, id string) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", id)
				return err
			})
		})
	}
}

// migrated has a tool apply the first three files to a database, all of them, and all once more.
func migrated(t *testing.T, apply tool, dialect sqlstore.Dialect, db *sql.DB, files fs.FS) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) < 4 {
		t.Fatalf("files %v, %v: want more than three", names, err)
	}
	first := fstest.MapFS{}
	for _, name := range names[:3] {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		first[name] = &fstest.MapFile{Data: data}
	}
	for _, part := range []fs.FS{first, files, files} {
		if err := apply(t.Context(), dialect, db, part); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE orders (id text)"); err != nil {
		t.Fatal(err)
	}
}

// deliver delivers an event that is inserted, and one that becomes a dead letter, and takes a
// lease.
func deliver[Tx any](t *testing.T, store driver.TxStore[Tx], leases driver.LeaseStore, insert func(ctx context.Context, tx Tx, id string) error) {
	result := sluicetest.Run(t, store, sluice.Each(func(ctx context.Context, tx Tx, e *sluice.Event) error {
		if err := insert(ctx, tx, string(e.Body)); err != nil {
			return err
		}
		if string(e.Body) == "wrong" {
			return driver.Reject(errors.New("is wrong"))
		}
		return nil
	}), sluicetest.Bodies("right", "wrong"), nil)
	if n := len(result.DeadLetters); n != 1 {
		t.Errorf("%d dead letters, want 1", n)
	}
	group := sluice.Group{Namespace: "n", Topic: "t", Name: "g"}
	if _, err := leases.Acquire(t.Context(), group, "0", "owner", time.Minute, 0); err != nil {
		t.Error(err)
	}
}
