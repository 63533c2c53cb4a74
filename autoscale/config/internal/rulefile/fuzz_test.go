package rulefile_test

import (
	"strings"
	"testing"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/config/internal/rulefile"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// FuzzRead reads anything; it must not panic, and what it takes has sane limits.
func FuzzRead(f *testing.F) {
	f.Add("upper: 500\nlower: 300\nmetric: backlog\n")
	f.Add("up: avg(backlog) > 5\ndown: |\n  max(other) < 3\nstep: {up: 2}\ncooldown: {up: 0s}\n")
	f.Add("{target: ceil(backlog / 1000), min: 0, max: 20, points: 3, window: 20m, stale: 1m, cooldown: 5m}\n")
	f.Fuzz(func(t *testing.T, text string) {
		var limits autoscale.Limits
		var rule autoscale.Rule
		err := strictyaml.Read("orders.yaml", []byte(text), func(string) (string, bool) { return "", false }, func(n strictyaml.Node) {
			rule = rulefile.Read(n, []string{"backlog", "other"}, &limits)
		})
		if err != nil {
			if rule != nil || strings.TrimSpace(err.Error()) == "" {
				t.Errorf("%q: the rule is %v, the error %q", text, rule, err)
			}
			return
		}
		if rule == nil || limits.Min < 0 || limits.Max < limits.Min || limits.Max > autoscale.MaxInstances || limits.MinPoints < 1 || limits.Window <= 0 {
			t.Errorf("%q was taken as %v within %+v", text, rule, limits)
		}
	})
}
