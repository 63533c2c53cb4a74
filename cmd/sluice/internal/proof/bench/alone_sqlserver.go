//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"

	mssql "github.com/microsoft/go-mssqldb"
)

// sqlServerLoader copies rows, which go-mssqldb takes as Go's values only.
type sqlServerLoader struct {
	db   *sql.DB
	rows [][]any
}

func newSQLServerLoader(ctx context.Context, j *job, partition int) (loader, error) {
	db, err := sql.Open("sqlserver", j.Database)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	rows, err := rowsOf(j, partition)
	return &sqlServerLoader{db, rows}, errors.Join(err, db.PingContext(ctx))
}

func (l *sqlServerLoader) load(ctx context.Context, first, n int) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	stmt, err := tx.PrepareContext(ctx, mssql.CopyIn("readings", mssql.BulkOptions{}, columns...))
	if err != nil {
		return err
	}
	defer stmt.Close()
	for i, row := range l.rows[:n] {
		row[numberColumn] = int64(first + i)
		if _, err := stmt.ExecContext(ctx, row...); err != nil {
			return err
		}
	}
	if _, err := stmt.ExecContext(ctx); err != nil {
		return err
	}
	return tx.Commit()
}

func (l *sqlServerLoader) close() { l.db.Close() }
