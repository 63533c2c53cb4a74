//go:build linux

package attack_test

import (
	"os"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/attack"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// ownServer skips a test where the server was there before: the attack crashes servers of its own
// only.
func ownServer(t *testing.T) {
	t.Helper()
	need.SQLServer(t)
	if os.Getenv("SLUICE_SQLSERVER_URL") != "" {
		t.Skip("would crash the server of SLUICE_SQLSERVER_URL; without that variable it starts a Babelfish")
	}
}

// TestSQLServer is not beside the others, nor is the next: Babelfish needs more of a CPU than the
// other databases, and one that gets none commits too seldom for the faults to strike.
func TestSQLServer(t *testing.T) {
	ownServer(t)
	attacked(t, attack.SQLServer, "events=6000 rate=400 kills=2 pauses=1 fenced=1 jumps=1 crashes=1 resets=1 blackholes=1 unplugs=1 commits=6")
}

func TestSQLServerFindsWhatIsBroken(t *testing.T) {
	ownServer(t)
	attackedUnfenced(t, attack.SQLServer, "events=5000 rate=500 kills=1 late=12")
}
