package check

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/target/containerapp"
)

// app is an app of Azure Container Apps with a number of replicas.
type app struct {
	replicas  int
	requested []int         // in order
	takes     time.Duration // each change
	ignores   bool          // changes have no effect
	extra     int           // replicas that each change adds
	refuses   bool          // changes
}

func (a *app) answer(r *http.Request) (int, string) {
	if r.Method == http.MethodPatch {
		if a.refuses {
			return http.StatusForbidden, `{"error": {"code": "AuthorizationFailed", "message": "no role"}}`
		}
		var change struct {
			Properties struct {
				Template struct{ Scale struct{ MinReplicas int } }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
			return http.StatusBadRequest, `{}`
		}
		n := change.Properties.Template.Scale.MinReplicas
		a.requested = append(a.requested, n)
		if !a.ignores {
			a.replicas = n + a.extra
		}
		if pause(r.Context(), a.takes) != nil {
			return http.StatusServiceUnavailable, `{}`
		}
	}
	return http.StatusOK, fmt.Sprintf(`{"properties": {"template": {"scale": {"minReplicas": %d, "maxReplicas": %[1]d}}}}`, a.replicas)
}

func (a *app) target() *containerapp.Target {
	target, err := containerapp.New(&containerapp.Config{Subscription: "s", ResourceGroup: "shop", App: "workers", Credential: &azfake.TokenCredential{}, Options: manager(a.answer).options()})
	if err != nil {
		panic(err)
	}
	return target
}

func (a *app) open(scale bool) *scalingSystem {
	return OpenScaling("orders", a.target(), autoscale.Limits{Min: 1, Max: 5}, Options{Scale: scale}).(*scalingSystem)
}

// TestScaling: the number of instances is changed with Options.Scale only, by one, and set back.
func TestScaling(t *testing.T) {
	for _, c := range []struct {
		replicas int
		scale    bool
		want     string // what was requested
	}{{2, false, "[2]"}, {2, true, "[2 3 2]"}, {5, true, "[5 4 5]"}} {
		synctest.Test(t, func(t *testing.T) {
			a := &app{replicas: c.replicas, takes: 10 * time.Second}
			except := map[string]State{}
			if !c.scale {
				except["scaling.change"] = Skipped
			}
			allHold(t, a.open(c.scale), except)
			if got := fmt.Sprint(a.requested); got != c.want || a.replicas != c.replicas {
				t.Errorf("%d replicas: requested %s, want %s; there are %d", c.replicas, got, c.want, a.replicas)
			}
		})
	}
}

// TestScalingIsUndone: after an interruption in the middle of a change, the number of instances is
// what it was.
func TestScalingIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &app{replicas: 2, takes: 20 * time.Second}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Second, cancel) // 20 s for the repetition, and then in the change
		report, err := (&Runner{Systems: []System{a.open(true)}}).Run(ctx)
		if err != nil || len(left(report)) > 0 || a.replicas != 2 || fmt.Sprint(a.requested) != "[2 3 2]" {
			t.Errorf("error %v, left %v, %d replicas after requests for %v", err, left(report), a.replicas, a.requested)
		}
	})
}

// brokenScaling are assumptions about targets, broken at the target.
var brokenScaling = []broken[*scalingSystem]{
	{"more instances than the limits allow", "scaling.count", Warning, withApp(app{replicas: 6})},
	{"a repeated request adds an instance", "scaling.repeat", Undecided, withApp(app{replicas: 2, extra: 1})},
	{"the number may not be changed", "scaling.repeat", Undecided, withApp(app{replicas: 2, refuses: true})},
	{"something else scales it", "scaling.repeat", Failed, func(s *scalingSystem) { s.target = &elsewhere{} }},
	{"a change has no effect", "scaling.change", Undecided, withApp(app{replicas: 2, ignores: true})},
	{"a change has another effect", "scaling.change", Failed, func(s *scalingSystem) { s.target = &elsewhere{} }},
	{"no room for a change", "scaling.change", Undecided, withApp(app{replicas: 9})},
}

func withApp(a app) func(*scalingSystem) {
	return func(s *scalingSystem) { s.target = a.target() }
}

// elsewhere is a target that has one instance more each time it is asked.
type elsewhere struct{ instances int }

func (e *elsewhere) Instances(context.Context) (int, error) {
	e.instances++
	return e.instances, nil
}

func (*elsewhere) Scale(context.Context, int) error { return nil }

func TestScalingChecksNameWhatIsBroken(t *testing.T) {
	every(t, "scaling", brokenScaling)
	for _, row := range brokenScaling {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := (&app{}).open(true)
				s.made = &Ledger{}
				row.damage(s)
				expect(t, s, row.check, row.want)
			})
		})
	}
}
