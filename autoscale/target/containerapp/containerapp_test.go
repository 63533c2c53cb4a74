package containerapp_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/appcontainers/armappcontainers/v3"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/appcontainers/armappcontainers/v3/fake"

	"github.com/sluice-go/sluice/autoscale/internal/armtest"
	"github.com/sluice-go/sluice/autoscale/target/containerapp"
)

// azure is the SDK's fake with one app.
type azure struct {
	*testing.T
	app       armappcontainers.ContainerApp
	polls     int    // that a change takes
	conflicts int    // that are answered before a change is accepted
	fails     string // the code with which changes end
	most      int32  // replicas; 0: no bound
	changes   int
}

func newAzure(t *testing.T, least, most *int32) *azure {
	return &azure{T: t, app: armappcontainers.ContainerApp{Location: to.Ptr("westeurope"), Properties: &armappcontainers.ContainerAppProperties{
		Configuration: &armappcontainers.Configuration{ActiveRevisionsMode: to.Ptr(armappcontainers.ActiveRevisionsModeSingle)},
		Template: &armappcontainers.Template{
			Containers: []*armappcontainers.Container{{Name: to.Ptr("worker"), Image: to.Ptr("contoso/worker:1")}},
			Scale:      &armappcontainers.Scale{MinReplicas: least, MaxReplicas: most},
		},
	}}}
}

func (a *azure) scale() *armappcontainers.Scale { return a.app.Properties.Template.Scale }

func (a *azure) Get(_ context.Context, group, name string, _ *armappcontainers.ContainerAppsClientGetOptions) (r azfake.Responder[armappcontainers.ContainerAppsClientGetResponse], e azfake.ErrorResponder) {
	if group != "shop" || name != "workers" {
		e.SetResponseError(http.StatusNotFound, "ResourceNotFound")
		return r, e
	}
	r.SetResponse(http.StatusOK, armappcontainers.ContainerAppsClientGetResponse{ContainerApp: a.app}, nil)
	return r, e
}

// BeginUpdate merges the change, as a merge patch does.
func (a *azure) BeginUpdate(_ context.Context, _, _ string, u armappcontainers.ContainerApp, _ *armappcontainers.ContainerAppsClientBeginUpdateOptions) (r azfake.PollerResponder[armappcontainers.ContainerAppsClientUpdateResponse], e azfake.ErrorResponder) {
	if a.conflicts > 0 {
		a.conflicts--
		e.SetResponseError(http.StatusConflict, "ContainerAppOperationInProgress")
		return r, e
	}
	p := u.Properties
	if p == nil || p.Configuration != nil || p.Template == nil || p.Template.Containers != nil || p.Template.Scale == nil || p.Template.Scale.Rules != nil || u.Tags != nil {
		a.Errorf("the change is %+v, want bounds of the scale alone", u)
		return r, e
	}
	a.changes++
	for range a.polls {
		r.AddNonTerminalResponse(http.StatusAccepted, nil)
	}
	if a.fails != "" {
		r.SetTerminalError(http.StatusBadRequest, a.fails)
		return r, e
	}
	if n := p.Template.Scale.MinReplicas; n != nil {
		a.scale().MinReplicas = n
	}
	if n := p.Template.Scale.MaxReplicas; n != nil {
		a.scale().MaxReplicas = n
	}
	if a.most > 0 && *a.scale().MaxReplicas > a.most {
		a.scale().MinReplicas, a.scale().MaxReplicas = &a.most, &a.most
	}
	r.SetTerminalResponse(http.StatusOK, armappcontainers.ContainerAppsClientUpdateResponse{ContainerApp: a.app}, nil)
	return r, e
}

func (a *azure) target(replicas containerapp.Replicas, app string) *containerapp.Target {
	a.Helper()
	server := &fake.ContainerAppsServer{Get: a.Get, BeginUpdate: a.BeginUpdate}
	t, err := containerapp.New(&containerapp.Config{
		Subscription: "00000000-0000-0000-0000-000000000000", ResourceGroup: "shop", App: app, Replicas: replicas,
		Credential: &azfake.TokenCredential{}, Options: armtest.Options("ContainerAppsClient", fake.NewContainerAppsServerTransport(server)),
	})
	if err != nil {
		a.Fatal(err)
	}
	return t
}

// TestScale changes what Replicas says, and nothing else.
func TestScale(t *testing.T) {
	for _, c := range []struct {
		replicas      containerapp.Replicas
		min, max      int32 // before
		first, next   int
		wantMin, want int32 // after
	}{
		{"", 2, 2, 2, 5, 5, 5},
		{containerapp.Exact, 5, 5, 5, 1, 1, 1},
		{containerapp.Min, 0, 10, 0, 3, 3, 10},
		{containerapp.Min, 3, 10, 3, 0, 0, 10},
		{containerapp.Max, 1, 10, 10, 4, 1, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAzure(t, &c.min, &c.max)
			a.polls = 2
			target := a.target(c.replicas, "workers")
			armtest.Instances(t, target, c.first)
			if err := target.Scale(t.Context(), c.next); err != nil {
				t.Error(err)
			}
			armtest.Instances(t, target, c.next)
			if s := a.scale(); *s.MinReplicas != c.wantMin || *s.MaxReplicas != c.want || a.changes != 1 {
				t.Errorf("%s to %d: %d to %d replicas after %d changes, want %d to %d", c.replicas, c.next, *s.MinReplicas, *s.MaxReplicas, a.changes, c.wantMin, c.want)
			}
		})
	}
}

// TestDefaults: an app whose scale is not set has Azure's defaults, 0 to 10 replicas.
func TestDefaults(t *testing.T) {
	a := newAzure(t, nil, nil)
	armtest.Instances(t, a.target(containerapp.Min, "workers"), 0)
	armtest.Instances(t, a.target(containerapp.Max, "workers"), 10)
	_, err := a.target(containerapp.Exact, "workers").Instances(t.Context())
	armtest.Fails(t, "exact", "container app shop/workers: it has 0 to 10 replicas, so that Azure scales it by its own rules", err)
}

// TestForeignAnswer: an answer without the app's template has no replicas, and not Azure's
// defaults.
func TestForeignAnswer(t *testing.T) {
	for _, replicas := range []containerapp.Replicas{containerapp.Min, containerapp.Max} {
		a := newAzure(t, nil, nil)
		target := a.target(replicas, "workers")
		a.app.Properties.Template = nil
		_, err := target.Instances(t.Context())
		armtest.Fails(t, "no template", "container app shop/workers: the answer has no template of an app", err)
		a.app.Properties = nil
		_, err = target.Instances(t.Context())
		armtest.Fails(t, "no properties", "the answer has no template of an app", err)
	}
}

func TestConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAzure(t, to.Ptr[int32](1), to.Ptr[int32](1))
		a.conflicts = 2
		target, began := a.target("", "workers"), time.Now()
		if err := target.Scale(t.Context(), 2); err != nil || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		armtest.Instances(t, target, 2)
		a.conflicts = 1000
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		armtest.Fails(t, "conflicts for ever", "HTTP 409 (Conflict, ContainerAppOperationInProgress)", target.Scale(ctx, 3))
	})
}

func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAzure(t, to.Ptr[int32](1), to.Ptr[int32](4))
		armtest.Fails(t, "above the maximum", "at least 5 replicas, but its maximum is 4", a.target(containerapp.Min, "workers").Scale(t.Context(), 5))
		a.scale().MinReplicas = to.Ptr[int32](3)
		armtest.Fails(t, "below the minimum", "at most 2 replicas, but its minimum is 3", a.target(containerapp.Max, "workers").Scale(t.Context(), 2))
		a.scale().MaxReplicas = to.Ptr[int32](3)
		target := a.target("", "workers")
		for _, n := range []int{0, 1001} {
			armtest.Fails(t, "beyond the bounds", "must be 1 to 1000", target.Scale(t.Context(), n))
		}
		a.fails, a.polls = "Failed", 1
		armtest.Fails(t, "the change fails", "HTTP 400 (Bad Request, Failed)", target.Scale(t.Context(), 4))
		a.fails, a.most = "", 3
		target = a.target("", "workers") // the SDK's fake keeps a change that has failed
		armtest.Fails(t, "fewer than requested", "4 replicas requested, but the app has 3", target.Scale(t.Context(), 4))
		a.app.Properties.Configuration.ActiveRevisionsMode = to.Ptr(armappcontainers.ActiveRevisionsModeMultiple)
		before := a.changes
		armtest.Fails(t, "several revisions", `it is in revision mode "Multiple"`, target.Scale(t.Context(), 2))
		if a.changes != before {
			t.Error("an app with several revisions was changed")
		}
		_, err := a.target("", "none").Instances(t.Context())
		armtest.Fails(t, "no such app", "container app shop/none: HTTP 404 (Not Found, ResourceNotFound)", err)
		_, err = containerapp.New(&containerapp.Config{App: "workers"})
		armtest.Fails(t, "nothing", "give a subscription's id", err)
	})
}
