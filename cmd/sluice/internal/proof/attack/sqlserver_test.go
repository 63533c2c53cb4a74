//go:build sqlserver && linux

package attack_test

import (
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/attack"
)

func TestSQLServer(t *testing.T) {
	attacked(t, attack.SQLServer, "events=40000 rate=1000 kills=6 pauses=5 fenced=1 jumps=3 crashes=3 resets=4 blackholes=3 unplugs=2 commits=24")
}

func TestSQLServerFindsWhatIsBroken(t *testing.T) {
	attackedUnfenced(t, attack.SQLServer, "events=10000 rate=1000 kills=1 pauses=2 jumps=6")
}
