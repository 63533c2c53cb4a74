package examples

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mssqldialect"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/sqlstore"
)

// database is a store, and what libraries must know of its database.
type database struct {
	open        func(t *testing.T) (*sqlstore.Store, error)
	placeholder int // of sqlx
	gorm        func(db *sql.DB) gorm.Dialector
	bun         schema.Dialect
}

var databases = map[string]database{
	"SQLite": {
		func(t *testing.T) (*sqlstore.Store, error) {
			return sqlstore.OpenSQLite(filepath.Join(t.TempDir(), "orders.db"), nil)
		}, sqlx.QUESTION,
		func(db *sql.DB) gorm.Dialector { return sqlite.Dialector{Conn: db} }, sqlitedialect.New(),
	},
	"PostgreSQL": {
		func(t *testing.T) (*sqlstore.Store, error) {
			return sqlstore.OpenPostgres(t.Context(), pgtest.Database(t), nil)
		}, sqlx.DOLLAR,
		func(db *sql.DB) gorm.Dialector { return postgres.New(postgres.Config{Conn: db}) }, pgdialect.New(),
	},
	"MariaDB": {
		func(t *testing.T) (*sqlstore.Store, error) {
			return sqlstore.OpenMySQL(t.Context(), mariadbtest.Database(t), nil)
		}, sqlx.QUESTION,
		func(db *sql.DB) gorm.Dialector { return mysql.New(mysql.Config{Conn: db}) }, mysqldialect.New(),
	},
	"SQL Server": {
		func(t *testing.T) (*sqlstore.Store, error) {
			return sqlstore.OpenSQLServer(t.Context(), sqlservertest.Database(t), nil)
		}, sqlx.AT,
		func(db *sql.DB) gorm.Dialector { return sqlserver.New(sqlserver.Config{Conn: db}) }, mssqldialect.New(),
	},
}

// handles are databases over a *sql.DB of the program's own.
var handles = map[string]database{
	"SQLite": {
		func(t *testing.T) (*sqlstore.Store, error) {
			return sqlstore.NewSQLite(own(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "orders.db")), nil)
		}, databases["SQLite"].placeholder, databases["SQLite"].gorm, databases["SQLite"].bun,
	},
	"PostgreSQL, pgx": {
		func(t *testing.T) (*sqlstore.Store, error) {
			return sqlstore.NewPostgres(t.Context(), own(t, "pgx", pgtest.Database(t)), nil)
		}, databases["PostgreSQL"].placeholder, databases["PostgreSQL"].gorm, databases["PostgreSQL"].bun,
	},
	"PostgreSQL, lib/pq": {
		func(t *testing.T) (*sqlstore.Store, error) {
			return sqlstore.NewPostgres(t.Context(), own(t, "postgres", pgtest.Database(t)), nil)
		}, databases["PostgreSQL"].placeholder, databases["PostgreSQL"].gorm, databases["PostgreSQL"].bun,
	},
	"MariaDB": {
		func(t *testing.T) (*sqlstore.Store, error) {
			return sqlstore.NewMySQL(t.Context(), own(t, "mysql", dataSource(t, mariadbtest.Database(t))), nil)
		}, databases["MariaDB"].placeholder, databases["MariaDB"].gorm, databases["MariaDB"].bun,
	},
	"SQL Server": {
		func(t *testing.T) (*sqlstore.Store, error) {
			return sqlstore.NewSQLServer(t.Context(), own(t, "sqlserver", sqlservertest.Database(t)), nil)
		}, databases["SQL Server"].placeholder, databases["SQL Server"].gorm, databases["SQL Server"].bun,
	},
}

// own opens a database as a service does, which the store shares with the rest of it.
func own(t *testing.T, driver, dataSource string) *sql.DB {
	db, err := sql.Open(driver, dataSource)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(10)
	t.Cleanup(func() { db.Close() })
	return db
}

// dataSource makes a data source name of MySQL's driver from a URL.
func dataSource(t *testing.T, address string) string {
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	return fmt.Sprintf("%s:%s@tcp(%s)%s?parseTime=true", u.User.Username(), password, u.Host, u.Path)
}

// library writes an order, and executes a statement, by the means of a library.
type library struct {
	insert func(ctx context.Context, tx *sqlstore.Tx, o Order) error
	exec   func(ctx context.Context, tx *sqlstore.Tx, statement string) error
}

// errUndone ends a transaction that is to be undone.
var errUndone = errors.New("undone")

const insertOrder = "INSERT INTO orders (id, total) VALUES (:id, :total)"

func libraries(t *testing.T, d database, store *sqlstore.Store) map[string]library {
	g, err := gorm.Open(d.gorm(store.DB()), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	session := func(ctx context.Context, tx *sqlstore.Tx) *gorm.DB {
		s := g.Session(&gorm.Session{NewDB: true, Context: ctx, SkipDefaultTransaction: true})
		s.Statement.ConnPool = tx
		return s
	}
	b := bun.NewDB(store.DB(), d.bun)
	named := func(o Order) (string, []any, error) {
		query, args, err := sqlx.Named(insertOrder, map[string]any{"id": o.ID, "total": o.Total})
		return sqlx.Rebind(d.placeholder, query), args, err
	}
	execute := func(ctx context.Context, tx *sqlstore.Tx, statement string) error {
		_, err := tx.ExecContext(ctx, statement)
		return err
	}
	prepared := func(ctx context.Context, tx *sqlstore.Tx, query string, args ...any) error {
		statement, err := tx.PrepareContext(ctx, query)
		if err != nil {
			return err
		}
		_, err = statement.ExecContext(ctx, args...)
		return errors.Join(err, statement.Close())
	}
	return map[string]library{
		"sqlx": {func(ctx context.Context, tx *sqlstore.Tx, o Order) error {
			query, args, err := named(o)
			if err == nil {
				_, err = tx.ExecContext(ctx, query, args...)
			}
			return err
		}, execute},
		"prepared": {func(ctx context.Context, tx *sqlstore.Tx, o Order) error {
			query, args, err := named(o)
			if err != nil {
				return err
			}
			return prepared(ctx, tx, query, args...)
		}, func(ctx context.Context, tx *sqlstore.Tx, statement string) error {
			return prepared(ctx, tx, statement)
		}},
		"gorm": {func(ctx context.Context, tx *sqlstore.Tx, o Order) error {
			return session(ctx, tx).Create(&o).Error
		}, func(ctx context.Context, tx *sqlstore.Tx, statement string) error {
			return session(ctx, tx).Exec(statement).Error
		}},
		"gorm, transactions": {func(ctx context.Context, tx *sqlstore.Tx, o Order) error {
			s := session(ctx, tx)
			s.Statement.ConnPool = tx.DB()
			return s.Transaction(func(outer *gorm.DB) error {
				if err := outer.Create(&o).Error; err != nil {
					return err
				}
				err := outer.Transaction(func(inner *gorm.DB) error { return cmp.Or(inner.Create(&Order{ID: "undone"}).Error, errUndone) })
				if !errors.Is(err, errUndone) {
					return fmt.Errorf("nested twice: %w", err)
				}
				return nil
			})
		}, execute},
		"bun": {func(ctx context.Context, tx *sqlstore.Tx, o Order) error {
			_, err := b.NewInsert().Conn(tx).Model(&o).Exec(ctx)
			return err
		}, func(ctx context.Context, tx *sqlstore.Tx, statement string) error {
			_, err := b.NewRaw(statement).Conn(tx).Exec(ctx)
			return err
		}},
		"bun, transactions": {func(ctx context.Context, tx *sqlstore.Tx, o Order) error {
			return bun.NewDB(tx.DB(), d.bun).RunInTx(ctx, nil, func(ctx context.Context, outer bun.Tx) error {
				if _, err := outer.NewInsert().Model(&o).Exec(ctx); err != nil {
					return err
				}
				err := outer.RunInTx(ctx, nil, func(ctx context.Context, inner bun.Tx) error {
					_, err := inner.NewInsert().Model(&Order{ID: "undone"}).Exec(ctx)
					return cmp.Or(err, errUndone)
				})
				if !errors.Is(err, errUndone) {
					return fmt.Errorf("nested twice: %w", err)
				}
				return nil
			})
		}, func(ctx context.Context, tx *sqlstore.Tx, statement string) error {
			err := bun.NewDB(tx.DB(), d.bun).RunInTx(ctx, nil, func(ctx context.Context, inner bun.Tx) error {
				_, err := inner.NewRaw(statement).Exec(ctx)
				return err
			})
			return err
		}},
		"sqlx, transactions": {func(ctx context.Context, tx *sqlstore.Tx, o Order) error {
			query, args, err := named(o)
			if err != nil {
				return err
			}
			inner, err := sqlx.NewDb(tx.DB(), "").BeginTxx(ctx, nil)
			if err != nil {
				return err
			}
			defer inner.Rollback()
			if _, err := inner.ExecContext(ctx, query, args...); err != nil {
				return err
			}
			return inner.Commit()
		}, execute},
	}
}

// TestLibraries: what a library writes commits together with the checkpoint, on each store. A
// handler that has the library end the transaction, which is refused, and drops the error: what it
// wrote is committed as a whole, or it has failed as a whole.
func TestLibraries(t *testing.T) { everyLibrary(t, databases) }

// TestLibrariesOverHandles is the same on stores over a service's own *sql.DB.
func TestLibrariesOverHandles(t *testing.T) { everyLibrary(t, handles) }

func everyLibrary(t *testing.T, list map[string]database) {
	for name, d := range list {
		t.Run(name, func(t *testing.T) {
			store, err := d.open(t)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			for library, l := range libraries(t, d, store) {
				for _, ending := range []string{"", "COMMIT", "ROLLBACK"} {
					t.Run(fmt.Sprint(library, " ", ending), func(t *testing.T) {
						if _, err := store.DB().Exec("DROP TABLE IF EXISTS orders"); err != nil {
							t.Fatal(err)
						}
						if _, err := store.DB().Exec("CREATE TABLE orders (id VARCHAR(9) PRIMARY KEY, total FLOAT)"); err != nil {
							t.Fatal(err)
						}
						handler := sluice.Typed(func(ctx context.Context, tx *sqlstore.Tx, _ *sluice.Event, o Order) error {
							err := l.insert(ctx, tx, o)
							switch {
							case err != nil || o.Total > 0:
								return err
							case ending == "":
								return driver.Reject(errors.New("no total"))
							}
							_ = l.exec(ctx, tx, ending)
							return nil
						})
						result := sluicetest.Run(t, store, handler, sluicetest.Bodies(
							`{"ID": "A-1", "Total": 12.5}`, `{"ID": "A-2"}`, `{"ID": "A-3", "Total": 7}`), nil)
						if list := result.Checkpoints; len(list) != 1 || list[0].Position.Sequence != 2 {
							t.Errorf("checkpoints: %+v, want one at 2", list)
						}
						rows, dead := orders(t, store.DB()), len(result.DeadLetters)
						if whole := rows == "A-1 A-2 A-3" && dead == 0; !whole && (rows != "A-1 A-3" || dead != 1) || whole && ending == "" {
							t.Errorf("rows %q, %d dead letters", rows, dead)
						}
					})
				}
			}
		})
	}
}

// orders returns the ids of the orders.
func orders(t *testing.T, db *sql.DB) string {
	rows, err := db.Query("SELECT id FROM orders ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(ids, " ")
}
