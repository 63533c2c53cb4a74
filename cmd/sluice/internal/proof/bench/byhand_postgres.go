//go:build unix

package main

import (
	"context"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgresWriter copies rows.
type postgresWriter struct {
	pool    *pgxpool.Pool
	raw     bool
	table   string
	columns []string
}

func openPostgres(ctx context.Context, url string, partitions int, raw bool) (*postgresWriter, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	connections := int32(min(partitions, 16))
	cfg.MaxConns, cfg.MinConns = connections, connections
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	w := &postgresWriter{pool: pool, raw: raw, table: "readings", columns: columns}
	if raw {
		w.table, w.columns = "raw", rawColumns
	}
	_, err = pool.Exec(ctx, `CREATE TABLE progress (partition text PRIMARY KEY, sequence_number bigint)`)
	for p := 0; p < partitions && err == nil; p++ {
		_, err = pool.Exec(ctx, `INSERT INTO progress VALUES ($1, -1)`, fmt.Sprint(p))
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return w, nil
}

func (w *postgresWriter) write(ctx context.Context, partition string, events []*azeventhubs.ReceivedEventData) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		rows := pgx.CopyFromSlice(len(events), func(i int) ([]any, error) { return row(partition, events[i], w.raw) })
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{w.table}, w.columns, rows); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE progress SET sequence_number = $2 WHERE partition = $1`, partition, events[len(events)-1].SequenceNumber)
		return err
	})
}

func (w *postgresWriter) close() { w.pool.Close() }
