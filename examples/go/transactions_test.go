// Package examples shows handlers that write through other libraries within Sluice's transaction.
package examples

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/sqlstore"
)

type Order struct {
	ID    string `gorm:"primaryKey"`
	Total float64
}

// With database/sql: the transaction has the methods of a *sql.Tx, without Commit and Rollback.
func withSQL(ctx context.Context, tx *sqlstore.Tx, e *sluice.Event, o Order) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO orders (id, total) VALUES (?, ?)", o.ID, o.Total)
	return err
}

// DBTX is the interface that sqlc generates, and that its New takes: queries := db.New(tx).
type DBTX interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

var _ DBTX = (*sqlstore.Tx)(nil)

// With gorm: open it once, over the store's pool, and give each handler a session on its
// transaction.
func withGorm(db *gorm.DB) func(context.Context, *sqlstore.Tx, *sluice.Event, Order) error {
	return func(ctx context.Context, tx *sqlstore.Tx, e *sluice.Event, o Order) error {
		session := db.Session(&gorm.Session{NewDB: true, Context: ctx, SkipDefaultTransaction: true})
		session.Statement.ConnPool = tx.DB()
		return session.Create(&o).Error
	}
}

// With ent: a driver on the transaction, for ent.NewClient(ent.Driver(driver)) of your generated
// code.
func withEnt(ctx context.Context, tx *sqlstore.Tx, e *sluice.Event, o Order) error {
	driver := entsql.NewDriver(dialect.SQLite, entsql.Conn{ExecQuerier: tx})
	query, args := entsql.Dialect(dialect.SQLite).Insert("orders").Columns("id", "total").Values(o.ID, o.Total).Query()
	return driver.Exec(ctx, query, args, nil)
}

// failing wraps a handler so that an order without a total fails after its row was written.
func failing(handle func(context.Context, *sqlstore.Tx, *sluice.Event, Order) error) sluice.Handler[*sqlstore.Tx] {
	return sluice.Typed(func(ctx context.Context, tx *sqlstore.Tx, e *sluice.Event, o Order) error {
		if err := handle(ctx, tx, e, o); err != nil {
			return err
		}
		if o.Total == 0 {
			return driver.Reject(errors.New("no total"))
		}
		return nil
	})
}

func TestTransactions(t *testing.T) {
	for name, open := range map[string]func(*sqlstore.Store) (func(context.Context, *sqlstore.Tx, *sluice.Event, Order) error, error){
		"database/sql": func(*sqlstore.Store) (func(context.Context, *sqlstore.Tx, *sluice.Event, Order) error, error) {
			return withSQL, nil
		},
		"gorm": func(store *sqlstore.Store) (func(context.Context, *sqlstore.Tx, *sluice.Event, Order) error, error) {
			db, err := gorm.Open(sqlite.Dialector{Conn: store.DB()}, nil)
			return withGorm(db), err
		},
		"ent": func(*sqlstore.Store) (func(context.Context, *sqlstore.Tx, *sluice.Event, Order) error, error) {
			return withEnt, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := sqlstore.OpenSQLite(filepath.Join(t.TempDir(), "orders.db"), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			if _, err := store.DB().Exec("CREATE TABLE orders (id TEXT PRIMARY KEY, total REAL)"); err != nil {
				t.Fatal(err)
			}
			handle, err := open(store)
			if err != nil {
				t.Fatal(err)
			}
			result := sluicetest.Run(t, store, failing(handle), sluicetest.Bodies(
				`{"ID": "A-1", "Total": 12.5}`, `{"ID": "A-2"}`, `{"ID": "A-3", "Total": 7}`), nil)
			if n := len(result.DeadLetters); n != 1 {
				t.Errorf("%d dead letters, want that of A-2", n)
			}
			var ids string
			if err := store.DB().QueryRow("SELECT group_concat(id, ' ') FROM (SELECT id FROM orders ORDER BY id)").Scan(&ids); err != nil || ids != "A-1 A-3" {
				t.Errorf("the rows are %q, %v: that of A-2 must be rolled back, and the others kept", ids, err)
			}
		})
	}
}

// A handler without a database in its test: the store is in memory.
func TestHandler(t *testing.T) {
	store := new(sluicetest.Store)
	handler := sluice.Typed(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event, o Order) error {
		if o.Total < 0 {
			return driver.Reject(errors.New("negative total"))
		}
		return tx.InsertUnique("orders", o.ID, o)
	})
	result := sluicetest.Run(t, store, handler, sluicetest.Bodies(
		`{"ID": "A-1", "Total": 12.5}`, `not JSON`, `{"ID": "A-2", "Total": -1}`), nil)
	if got := fmt.Sprint(store.Rows("orders")); got != "[{A-1 12.5}]" {
		t.Errorf("orders are %s", got)
	}
	if n := len(result.DeadLetters); n != 2 {
		t.Errorf("%d dead letters, want 2", n)
	}
}
