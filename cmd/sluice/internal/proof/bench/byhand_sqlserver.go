//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	mssql "github.com/microsoft/go-mssqldb"
)

// sqlServerWriter copies rows.
type sqlServerWriter struct {
	db      *sql.DB
	raw     bool
	table   string
	columns []string
}

func openSQLServer(ctx context.Context, url string, partitions int, raw bool) (*sqlServerWriter, error) {
	db, err := sql.Open("sqlserver", url)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(partitions)
	db.SetMaxIdleConns(partitions)
	w := &sqlServerWriter{db: db, raw: raw, table: "readings", columns: columns}
	if raw {
		w.table, w.columns = "raw", rawColumns
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE progress (part nvarchar(20) NOT NULL PRIMARY KEY, sequence_number bigint)")
	for p := 0; p < partitions && err == nil; p++ {
		_, err = db.ExecContext(ctx, "INSERT INTO progress VALUES (@p1, -1)", fmt.Sprint(p))
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return w, nil
}

func (w *sqlServerWriter) write(ctx context.Context, partition string, events []*azeventhubs.ReceivedEventData) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := w.copy(ctx, tx, partition, events); err != nil {
		return err
	}
	last := events[len(events)-1].SequenceNumber
	if _, err := tx.ExecContext(ctx, "UPDATE progress SET sequence_number = @p1 WHERE part = @p2", last, partition); err != nil {
		return err
	}
	return tx.Commit()
}

func (w *sqlServerWriter) copy(ctx context.Context, tx *sql.Tx, partition string, events []*azeventhubs.ReceivedEventData) error {
	stmt, err := tx.PrepareContext(ctx, mssql.CopyIn(w.table, mssql.BulkOptions{}, w.columns...))
	if err != nil {
		return err
	}
	defer stmt.Close()
	for _, e := range events {
		values, err := row(partition, e, w.raw)
		if err != nil {
			return err
		}
		if _, err := stmt.ExecContext(ctx, values...); err != nil {
			return err
		}
	}
	_, err = stmt.ExecContext(ctx)
	return err
}

func (w *sqlServerWriter) close() { w.db.Close() }
