package main_test

import (
	"fmt"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
	"github.com/sluice-go/sluice/internal/proof/azurite"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// TestUpgradeInBlobs is TestUpgrade with leases, checkpoints and dead letters in blobs: each event
// has one document or one dead letter. What the killed process had written after its last
// checkpoint is written again.
func TestUpgradeInBlobs(t *testing.T) {
	t.Parallel()
	const n, without = 5900, 100
	old, server := otherRevision(t), azurite.New(t, nil)
	w := cosmosServers(t, 0, 2, "STORAGE="+server.ConnectionString(), "PARTITIONS=balanced")
	config := w.edited("leases:\n  sql: ${DATABASE_URL:-sqlite:cosmos.db}", "leases:\n  blob:\n    container: sluice\n    connection: ${STORAGE}\nlease: {for: 15s, renew: 3s}\ncheckpoint_every: 1s")
	var lines []string
	for i := range n {
		if lines = append(lines, fmt.Sprintf(`{"id":"doc-%010d","key":"k-%d"}`, i, i%97)); i%(n/without) == 0 && i/(n/without) < without {
			lines = append(lines, `{"key":"no id"}`)
		}
	}
	u := &upgrade{t, w.env, config, w.writes, map[*process]string{}}
	u.andBack(old, start(t, "", w.env, "send", "--hub", "docs", "--rate", "100", writeLines(t, lines)))

	w.whole(n)
	letters, _ := deadLetters(t, w.env, config)
	found := map[event]int{}
	for _, l := range letters {
		found[event{l.Partition, l.Sequence}]++
	}
	if len(letters) != without || len(found) != without {
		need.Verdict(t)
		t.Errorf("%d dead letters of %d events, want %d", len(letters), len(found), without)
	}
	// A checkpoint never goes back, whichever revision moves it.
	committed := map[string]map[int64]int64{} // by partition and epoch, the highest
	commits := u.commits(func(r history.Record) {
		if committed[r.Partition] == nil {
			committed[r.Partition] = map[int64]int64{}
		}
		switch {
		case r.Kind == history.Committed:
			committed[r.Partition][r.Epoch] = max(committed[r.Partition][r.Epoch], r.To)
		}
	})
	for partition, byEpoch := range committed {
		for epoch, to := range byEpoch {
			for later, further := range byEpoch {
				if later > epoch && further < to {
					need.Verdict(t)
					t.Errorf("partition %s: the checkpoint is at %d in epoch %d, and at %d in the later epoch %d", partition, to, epoch, further, later)
				}
			}
		}
	}
	for _, c := range checkpoints(t, w.env, config) {
		if c.Lag == nil || *c.Lag != 0 || c.Owner != "" {
			t.Errorf("checkpoint at the end: %+v", c)
		}
	}
	t.Logf("%d events, %d written again, %d checkpoints of %d processes", len(lines), w.writes()-n, commits, len(u.logs))
}
