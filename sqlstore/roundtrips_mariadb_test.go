package sqlstore

import (
	"testing"

	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
)

// Begin, lock; savepoint, LOAD DATA, its file, its warnings; move, commit. A statement of the
// handler's own has the transaction marked before it, and the mark checked after it.
func TestMariaDBRoundTrips(t *testing.T) {
	roundTripsOfBatch(t, func(cfg *ServerConfig) *Store { return openMariaDB(t, mariadbtest.Database(t), cfg) }, 8, 11)
}
