package sqlstore

import (
	"context"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/postgres"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/roundtrips"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// TestPostgresRoundTrips: begin; lock; check and move; commit. A statement of the handler's is one
// more. COPY is one or two, because its answer may come while its rows are still being sent.
func TestPostgresRoundTrips(t *testing.T) {
	var wire roundtrips.Counter
	address := pgtest.Database(t)
	openPostgres(t, address, nil) // makes the tables
	c, err := (&ServerConfig{MaxConns: 1}).withDefaults()
	suite.NoError(t, "config", err)
	pc, err := postgres.Parse(address, postgres.Settings{LeaseFor: c.LeaseFor, RequestTimeout: c.patience()})
	suite.NoError(t, "parse", err)
	pc.ConnConfig.DialFunc = wire.Dial
	connector := newPostgresConnector(pc, c)
	schema, err := connector.prepare(t.Context(), c.Schema, false)
	suite.NoError(t, "prepare", err)
	s, err := openServer(t.Context(), "counted", connector, newPostgresDialect(schema), c)
	suite.NoError(t, "open", err)
	t.Cleanup(func() { s.Close() })
	lease := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: 1}
	claimed, err := s.Claim(t.Context(), lease, "1")
	suite.NoError(t, "claim", err)
	from := claimed.Position
	for _, own := range []bool{false, true} {
		for n := range 2 { // the first one prepares the statements
			to := positionAt(max(from.Sequence, -1) + 1)
			wire.Take()
			suite.NoError(t, "commit", s.Commit(t.Context(), driver.Step{Lease: lease, From: from, To: to}, func(ctx context.Context, tx *Tx) error {
				if !own {
					return nil
				}
				return postgresPut(ctx, tx, "x")
			}))
			trips, _ := wire.Take()
			want := int64(4)
			if own {
				want = 5
			}
			if n > 0 && trips != want {
				t.Errorf("a step with a statement of the handler's %t takes %d round trips, want %d", own, trips, want)
			}
			from = to
		}
	}
}
