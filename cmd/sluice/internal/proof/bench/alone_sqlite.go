//go:build unix

package main

import (
	"context"
	"strings"
	"time"
)

// sqliteLoader inserts rows, some in each statement. All partitions share one connection, because
// one transaction at a time writes.
type sqliteLoader struct {
	*sqliteWriter
	rows   [][]any
	values []any
}

func openSQLiteLoaders(_ context.Context, j *job) (list []loader, err error) {
	w, err := openSQLite(strings.TrimPrefix(j.Database, "sqlite:"), false)
	if err != nil {
		return nil, err
	}
	for p := range j.Partitions {
		rows, err := rowsOf(j, p)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			row[timeColumn] = row[timeColumn].(time.Time).UTC().Format(time.RFC3339Nano)
		}
		list = append(list, &sqliteLoader{w, rows, make([]any, 0, chunk*len(columns))})
	}
	return list, nil
}

func (l *sqliteLoader) load(ctx context.Context, first, n int) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	stmt, err := tx.PrepareContext(ctx, l.insert(chunk))
	if err != nil {
		return err
	}
	defer stmt.Close()
	for i := 0; i < n; i += chunk {
		l.values = l.values[:0]
		for k := i; k < min(n, i+chunk); k++ {
			l.rows[k][numberColumn] = int64(first + k)
			l.values = append(l.values, l.rows[k]...)
		}
		if len(l.values) == cap(l.values) {
			_, err = stmt.ExecContext(ctx, l.values...)
		} else {
			_, err = tx.ExecContext(ctx, l.insert(len(l.values)/len(columns)), l.values...)
		}
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}
