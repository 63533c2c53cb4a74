package web_test

import (
	"testing"

	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/internal/proof/need"
)

func TestWarn(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	w := newWorld(t, 1, nil)
	client, base := w.serve()
	ticks := watchLive(t, client, base, "")
	w.dashboard.Warn("nothing of this name", []health.Warning{{Text: "elsewhere"}})
	w.dashboard.Warn("flights", []health.Warning{{Kind: health.WarningPartitionsAdded, Text: "the hub has grown"}})
	awaitTick(t, ticks, "the warning", func(k *tick) bool { return len(k.Trouble) == 1 && k.Trouble[0].Text == "the hub has grown" })
	w.dashboard.Warn("flights", nil)
	awaitTick(t, ticks, "its end", func(k *tick) bool { return len(k.Trouble) == 0 })
}
