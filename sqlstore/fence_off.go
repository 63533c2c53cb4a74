//go:build sluice_unfenced

package sqlstore

import (
	"context"
	"regexp"

	"github.com/sluice-go/sluice/driver"
)

// A build with -tags sluice_unfenced must not be used: cmd/sluice/internal/proof/attack makes one,
// to see that it finds the duplicates.

// take does not wait for a transaction of the same lease: what was committed before it counts as
// final.
func (s *Store) take(ctx context.Context, t *transaction, lease driver.Lease, update, insert write) (bool, error) {
	var owner string
	var epoch, sequence int64
	found, err := one(ctx, t, s.sql.Holder, key(lease.Group, lease.Partition), &owner, &epoch, &sequence)
	if err != nil || found && owner == clean(lease.Owner) && epoch == lease.Epoch {
		return err == nil, err
	}
	return upsert(ctx, t, s.dialect, update, insert)
}

var fence = regexp.MustCompile(`AND owner = (\?|@p\d+) AND epoch = (\?|@p\d+) AND sequence_number = (\?|@p\d+)`)

// The steps of servers' databases take any lease and position. The arguments are used all the same.
func init() {
	for _, s := range []*statements{mysqlStatements, mssqlStatements} {
		for _, query := range []*string{&s.Lock, &s.Move, &s.MoveIntact, &s.Stay} {
			if *query != "" && !fence.MatchString(*query) {
				panic("no fence in " + *query)
			}
			*query = fence.ReplaceAllString(*query, "AND $1 IS NOT NULL AND $2 IS NOT NULL AND $3 IS NOT NULL")
		}
	}
}
