package sqlstore

import (
	"context"
	"fmt"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/roundtrips"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// roundTripsOfBatch checks how many round trips a batch takes that Tx.Insert writes in bulk, and
// one whose handler also has a statement of its own. What is sent besides the rows does not grow
// with them.
func roundTripsOfBatch(t *testing.T, open func(cfg *ServerConfig) *Store, wantInsert, wantOwn int64) {
	var wire roundtrips.Counter
	s := open(&ServerConfig{Dial: wire.Dial, MaxConns: 1})
	lease := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: 1}
	claimed, err := s.Claim(t.Context(), lease, "1")
	suite.NoError(t, "claim", err)
	from := claimed.Position
	const rows, width = 500, 200
	commit := func(own bool) (trips, bytes int64) {
		t.Helper()
		list := make([][]any, rows)
		for i := range list {
			list[i] = []any{fmt.Sprintf("%0*d", width, i), i}
		}
		to := positionAt(from.Sequence + rows)
		wire.Take()
		err := s.Commit(t.Context(), driver.Step{Lease: lease, From: from, To: to}, func(ctx context.Context, tx *Tx) error {
			if own {
				if _, err := tx.ExecContext(ctx, "DELETE FROM parents"); err != nil {
					return err
				}
			}
			return tx.Insert(ctx, "effects", []string{"key", "part"}, list)
		})
		suite.NoError(t, "commit", err)
		from = to
		return wire.Take()
	}
	// The rest of an answer that comes late, after the next request, counts as one more.
	least := func(own bool) (trips, bytes int64) {
		trips, bytes = commit(own)
		for range 2 {
			if again, sent := commit(own); again < trips {
				trips, bytes = again, sent
			}
		}
		return trips, bytes
	}
	commit(true) // opens the connection
	commit(false)
	trips, bytes := least(false)
	if trips != wantInsert {
		t.Errorf("a batch takes %d round trips, want %d", trips, wantInsert)
	}
	if each := bytes / rows; each > 3*width {
		t.Errorf("%d bytes are sent for a row of %d", each, width)
	}
	if trips, _ := least(true); trips != wantOwn {
		t.Errorf("a batch whose handler has a statement of its own takes %d round trips, want %d", trips, wantOwn)
	}
}
