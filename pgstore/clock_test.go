package pgstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

// TestClock shadows the server's clock by a function of the store's schema.
func TestClock(t *testing.T) {
	schema := schemas(t)
	storetest.TestClock(t, func(t testing.TB, by time.Duration) storetest.ClockHarness[pgx.Tx] {
		s := open(t, schema(t)+",pg_catalog", calm)
		_, err := s.Pool().Exec(t.Context(), fmt.Sprintf(`CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
			AS 'SELECT pg_catalog.clock_timestamp() + %d * interval ''1 second'''`, int(by.Seconds())))
		suite.NoError(t, "another clock", err)
		return storetest.ClockHarness[pgx.Tx]{TxHarness: txHarness(s, nil), Leases: s.Leases()}
	})
}
