//go:build sqlserver && linux

package attack_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/attack"
)

// isOthers reports whether the server was there before: the attack crashes servers of its own only.
func isOthers() bool {
	others := os.Getenv("SLUICE_SQLSERVER_URL") != ""
	if others {
		fmt.Println("left out: the attack on SQL Server, which would crash the server of SLUICE_SQLSERVER_URL; without that variable it starts a Babelfish")
	}
	return others
}

// TestSQLServer is not beside the others, nor is the next: Babelfish needs more of a CPU than the other
// databases, and one that gets none commits too seldom for the faults to strike.
func TestSQLServer(t *testing.T) {
	if isOthers() {
		return
	}
	attacked(t, attack.SQLServer, "events=6000 rate=400 kills=2 pauses=1 fenced=1 jumps=1 crashes=1 resets=1 blackholes=1 unplugs=1 commits=6")
}

func TestSQLServerFindsWhatIsBroken(t *testing.T) {
	if isOthers() {
		return
	}
	attackedUnfenced(t, attack.SQLServer, "events=5000 rate=500 kills=1 late=12")
}
