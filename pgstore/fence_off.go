//go:build sluice_unfenced

package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
)

// No condition; the arguments need types all the same.
const fence = ` AND num_nonnulls($5::text, $6::bigint, $7::bigint) = 3`

const glimpseSQL = `
SELECT ` + checkpointColumns + `, 0::bigint FROM @sluice_checkpoints
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4`

// overrule leaves the transaction alone, and takes what was committed before it as
// the final state.
func (s *Store) overrule(ctx context.Context, conn *pgx.Conn, lease *driver.Lease, sql string, args, dest []any) error {
	if lease == nil {
		return s.forcibly(ctx, conn, sql, args, dest)
	}
	return conn.QueryRow(ctx, s.sql.text(glimpseSQL), args[:4]...).Scan(dest...)
}
