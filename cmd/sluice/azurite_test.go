package main_test

import (
	"testing"

	"github.com/sluice-go/sluice/internal/proof/azurite"
)

// TestLeasesInBlobs keeps leases, checkpoints and dead letters in a container:
// two processes share the partitions, one is killed, the other takes over.
func TestLeasesInBlobs(t *testing.T) {
	t.Parallel()
	const n = 40_000
	server := azurite.New(t, nil)
	w := cosmosServers(t, 0, 2, "STORAGE="+server.ConnectionString(), "PARTITIONS=2")
	config := w.edited("leases:\n  sql: ${DATABASE_URL:-sqlite:cosmos.db}", "leases:\n  blob:\n    container: sluice\n    connection: ${STORAGE}\nlease: {for: 15s, renew: 3s}\ncheckpoint_every: 1s",
		"rate:\n  ru: ${COSMOS_RU}", "rate:\n  events: 8000")
	must(t, "", w.env, "check", "--connect", config)
	w.send(n)
	victim, heir := start(t, "", w.env, "run", config), start(t, "", w.env, "run", config)
	await(t, "a part of the documents", func() bool { return w.writes() > 5_000 })
	victim.kill()
	must(t, "", w.env, "run", config, "--until-caught-up")
	heir.stop()
	w.whole(n)
	t.Logf("%d documents written again", w.writes()-n)
	for _, c := range checkpoints(t, w.env, config) {
		if c.Position == nil || *c.Position < 0 {
			t.Errorf("checkpoint %+v", c)
		}
	}
}
