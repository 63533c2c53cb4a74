//go:build !sluice_unfenced

package sqlstore

import (
	"context"

	"github.com/sluice-go/sluice/driver"
)

// take makes a checkpoint the lease's, and reports whether it has. It waits for the transaction
// that has locked the checkpoint's row.
func (s *Store) take(ctx context.Context, t *transaction, _ driver.Lease, update, insert write) (bool, error) {
	return upsert(ctx, t, s.dialect, update, insert)
}
