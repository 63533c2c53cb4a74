//go:build linux

package attack_test

import (
	"os"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/attack"
	"github.com/sluice-go/sluice/internal/proof/need"
)

func TestAttack(t *testing.T) {
	need.Postgres(t)
	t.Parallel()
	attacked(t, attack.PostgreSQL, "events=90000 rate=1500 kills=15 pauses=12 fenced=1 jumps=3 crashes=2 resets=6 blackholes=4 unplugs=3 commits=30")
}

func TestAttackFindsWhatIsBroken(t *testing.T) {
	need.Postgres(t)
	t.Parallel()
	attackedUnfenced(t, attack.PostgreSQL, "events=20000 rate=1500 kills=2 pauses=3 late=20")
}

// posting is an attack on a pipeline that posts the batches of each partition in order.
func posting(t *testing.T, words string) attack.Config {
	t.Helper()
	c := config(t, attack.EventHubs, attack.PostgreSQL, program, plan(t, words+" "+os.Getenv("SLUICE_ATTACK")))
	c.Posts, c.Pipeline = true, example(t, "http.yaml", c.Engine, "")
	return c
}

// TestPosted: batches to an HTTP service, each partition's in order and one at a time, of which the
// service stores each event once.
func TestPosted(t *testing.T) {
	need.Postgres(t)
	t.Parallel()
	mustPass(t, posting(t, "events=15000 rate=500 kills=12 pauses=5 crashes=2 resets=6 blackholes=4 unplugs=3 commits=24"))
}

func TestPostedFindsWhatIsBroken(t *testing.T) {
	need.Postgres(t)
	t.Parallel()
	c := posting(t, "events=10000 rate=2000 kills=1")
	c.Forgets = true
	r, err := attack.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Lost == 0 {
		t.Error("the receiver has forgotten events, and the attack has not found that")
	}
}
