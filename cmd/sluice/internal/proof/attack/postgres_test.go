//go:build postgres && linux

package attack_test

import (
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/attack"
)

func TestAttack(t *testing.T) {
	attacked(t, attack.PostgreSQL, "events=200000 rate=1500 kills=30 pauses=14 fenced=1 jumps=6 crashes=3 resets=12 blackholes=9 unplugs=6 commits=60")
}

func TestAttackFindsWhatIsBroken(t *testing.T) {
	attackedUnfenced(t, attack.PostgreSQL, "events=20000 rate=1500 kills=2 pauses=3 late=20")
}
