//go:build !sluice_unfenced

package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
)

// The fence is left out by -tags sluice_unfenced. Such a build must not
// be used; cmd/sluice/internal/proof/attack makes one, to see that it finds the duplicates.

// fence restricts a step to a checkpoint that is still its lease's and stands
// where the step begins.
const fence = ` AND owner = $5 AND epoch = $6 AND sequence_number = $7`

// overrule takes a checkpoint's row from a transaction that does not end.
func (s *Store) overrule(ctx context.Context, conn *pgx.Conn, _ *driver.Lease, sql string, args, dest []any) error {
	return s.forcibly(ctx, conn, sql, args, dest)
}
