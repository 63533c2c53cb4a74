//go:build mariadb && linux

package attack_test

import (
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/attack"
)

// MariaDB ends the session of an owner that is paused for a lease, so that its fence refuses only what
// comes sooner, after a jump.
func TestMariaDB(t *testing.T) {
	attacked(t, attack.MariaDB, "events=40000 rate=1000 kills=6 pauses=12 jumps=4 crashes=3 resets=4 blackholes=3 unplugs=2 commits=24")
}

func TestMariaDBFindsWhatIsBroken(t *testing.T) {
	attackedUnfenced(t, attack.MariaDB, "events=10000 rate=1000 kills=1 late=20")
}
