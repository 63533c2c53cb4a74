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

func TestSQLServer(t *testing.T) {
	if isOthers() {
		return
	}
	attacked(t, attack.SQLServer, "events=10000 rate=400 kills=3 pauses=2 fenced=1 jumps=2 crashes=2 resets=2 blackholes=1 unplugs=1 commits=12")
}

func TestSQLServerFindsWhatIsBroken(t *testing.T) {
	if isOthers() {
		return
	}
	attackedUnfenced(t, attack.SQLServer, "events=5000 rate=500 kills=1 late=12")
}
