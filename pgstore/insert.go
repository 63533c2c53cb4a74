package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Insert writes rows to a table by COPY, the fastest way in. The table is a
// name, or schema.name; each row has a value for each column, in order. It is
// all or nothing, as any statement.
func Insert(ctx context.Context, tx pgx.Tx, table string, columns []string, rows [][]any) error {
	n, err := tx.CopyFrom(ctx, pgx.Identifier(strings.Split(table, ".")), columns, pgx.CopyFromRows(rows))
	if err == nil && n != int64(len(rows)) {
		err = fmt.Errorf("%d of %d rows were taken", n, len(rows))
	}
	if err != nil {
		return fmt.Errorf("insert into %s: %w", table, err)
	}
	return nil
}
