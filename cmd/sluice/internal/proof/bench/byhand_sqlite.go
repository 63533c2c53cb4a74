//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	_ "modernc.org/sqlite"
)

// chunk is how many rows one INSERT carries.
const chunk = 50

// sqliteWriter inserts rows, some in each statement.
type sqliteWriter struct {
	db  *sql.DB
	raw bool
}

func openSQLite(path string, raw bool) (*sqliteWriter, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`CREATE TABLE progress (partition TEXT PRIMARY KEY, sequence_number INTEGER)`); err != nil {
		db.Close()
		return nil, err
	}
	return &sqliteWriter{db, raw}, nil
}

func (w *sqliteWriter) write(ctx context.Context, partition string, events []*azeventhubs.ReceivedEventData) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	stmt, err := tx.PrepareContext(ctx, w.insert(chunk))
	if err != nil {
		return err
	}
	defer stmt.Close()
	var values []any
	for i, e := range events {
		r, err := row(partition, e, w.raw)
		if err != nil {
			return err
		}
		values = append(values, r...)
		switch {
		case (i+1)%chunk == 0:
			_, err = stmt.ExecContext(ctx, values...)
			values = values[:0]
		case i+1 == len(events):
			_, err = tx.ExecContext(ctx, w.insert((i+1)%chunk), values...)
		}
		if err != nil {
			return err
		}
	}
	last := events[len(events)-1].SequenceNumber
	if _, err := tx.ExecContext(ctx, `INSERT INTO progress VALUES (?, ?) ON CONFLICT (partition) DO UPDATE SET sequence_number = excluded.sequence_number`, partition, last); err != nil {
		return err
	}
	return tx.Commit()
}

func (w *sqliteWriter) insert(rows int) string {
	table, n := "readings", len(columns)
	if w.raw {
		table, n = "raw", len(rawColumns)
	}
	tuple := ", (?" + strings.Repeat(", ?", n-1) + ")"
	return fmt.Sprintf("INSERT INTO %s VALUES %s", table, strings.Repeat(tuple, rows)[2:])
}

func (w *sqliteWriter) close() { w.db.Close() }
