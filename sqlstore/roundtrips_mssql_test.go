package sqlstore

import (
	"testing"

	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
)

// The session's reset, begin, lock and mark; the columns, two by which the driver looks at them, INSERT BULK,
// the rows; check and move, commit.
func TestSQLServerRoundTrips(t *testing.T) {
	roundTripsOfBatch(t, func(cfg *ServerConfig) *Store { return openMSSQL(t, sqlservertest.Database(t), cfg) }, 10, 11)
}
