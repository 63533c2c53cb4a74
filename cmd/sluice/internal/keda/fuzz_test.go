package keda

import (
	"strings"
	"testing"

	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/autoscale/source/lag"
)

// FuzzTrigger: the metadata of a ScaledObject either gives a value between 0 and one
// instance for each partition, or an error in one line of bounded length.
func FuzzTrigger(f *testing.F) {
	f.Add("flights", "targetLag", "100")
	f.Add("", "activationLag", "1e400")
	f.Add("orders\n", "targetLag", "NaN")
	f.Add("", "unknown", "")
	f.Add("flights", "targetLagFromEnv", "100")
	f.Add("flights", "resourceFromEnv", "flights")
	resources := map[string]*resource{"flights": newResource(config.Lag{Name: "flights", Target: 1000})}
	f.Fuzz(func(t *testing.T, name, key, value string) {
		trigger, err := readTrigger(resources, map[string]string{resourceKey: name, key: value})
		if err != nil {
			if text := oneLine(err); strings.Contains(text, "\n") || len(text) > maxError+len("…") {
				t.Errorf("%q", text)
			}
			return
		}
		for _, m := range []lag.Measurement{{}, {Events: 1, Partitions: 1}, {Events: 1 << 60, Partitions: 32}} {
			if v := trigger.value(m); !(v >= 0 && v <= trigger.target*float64(m.Partitions)) {
				t.Errorf("%+v is the value %v", m, v)
			}
			if m.Events == 0 && trigger.active(m) {
				t.Error("active without an event")
			}
		}
	})
}
