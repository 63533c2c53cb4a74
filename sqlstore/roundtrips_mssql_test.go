package sqlstore

import (
	"testing"

	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
)

// The session's reset, begin, lock and mark; two by which the driver looks at the columns, INSERT
// BULK, the rows; check and move, commit.
func TestSQLServerRoundTrips(t *testing.T) {
	roundTripsOfBatch(t, func(cfg *ServerConfig) *Store { return openMSSQL(t, sqlservertest.Database(t), cfg) }, 9, 10)
}
