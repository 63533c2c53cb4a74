package sqlstore

import (
	"context"
	"database/sql"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/keyed"
)

// CheckSQLiteKey returns a [*driver.NoKeyError] for a table of SQLite that [Tx.Upsert] cannot write
// to by a key. It changes nothing.
func CheckSQLiteKey(ctx context.Context, db *sql.DB, table string, columns []string, k driver.Keyed) error {
	return checkKey(ctx, sqliteDialect{}, db, table, columns, k)
}

// CheckMySQLKey is [CheckSQLiteKey] for MySQL and MariaDB.
func CheckMySQLKey(ctx context.Context, db *sql.DB, table string, columns []string, k driver.Keyed) error {
	return checkKey(ctx, mysqlDialect{}, db, table, columns, k)
}

// CheckSQLServerKey is [CheckSQLiteKey] for SQL Server and Azure SQL.
func CheckSQLServerKey(ctx context.Context, db *sql.DB, table string, columns []string, k driver.Keyed) error {
	return checkKey(ctx, mssqlDialect{}, db, table, columns, k)
}

func checkKey(ctx context.Context, d dialect, db *sql.DB, table string, columns []string, k driver.Keyed) error {
	w, err := keyed.New(table, columns, nil, k)
	if err != nil {
		return err
	}
	return d.keyFits(ctx, db, w)
}
