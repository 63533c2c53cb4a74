//go:build linux

package attack_test

import (
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/attack"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// MariaDB ends the session of an owner that is paused for a lease, so that its fence refuses only
// what comes sooner, after a jump.
func TestMariaDB(t *testing.T) {
	need.MariaDB(t)
	t.Parallel()
	attacked(t, attack.MariaDB, "events=20000 rate=1000 kills=4 pauses=8 jumps=2 crashes=2 resets=2 blackholes=2 unplugs=1 commits=12")
}

func TestMariaDBFindsWhatIsBroken(t *testing.T) {
	need.MariaDB(t)
	t.Parallel()
	attackedUnfenced(t, attack.MariaDB, "events=10000 rate=1000 kills=1 late=20")
}
