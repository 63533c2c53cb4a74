package appservice_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/appservice/armappservice/v5"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/appservice/armappservice/v5/fake"

	"github.com/sluice-go/sluice/autoscale/target/appservice"
)

// azure is the SDK's own fake of the resource manager, with one plan.
type azure struct {
	plan    armappservice.Plan
	polls   int // that a change takes
	changed int
	refuse  bool
	most    int32
}

func (a *azure) get(_ context.Context, group, name string, _ *armappservice.PlansClientGetOptions) (r azfake.Responder[armappservice.PlansClientGetResponse], e azfake.ErrorResponder) {
	if group != "shop" || name != "workers" {
		e.SetResponseError(http.StatusNotFound, "ResourceNotFound")
		return
	}
	r.SetResponse(http.StatusOK, armappservice.PlansClientGetResponse{Plan: a.plan}, nil)
	return
}

func (a *azure) put(_ context.Context, _, _ string, plan armappservice.Plan, _ *armappservice.PlansClientBeginCreateOrUpdateOptions) (r azfake.PollerResponder[armappservice.PlansClientCreateOrUpdateResponse], e azfake.ErrorResponder) {
	if a.refuse {
		e.SetResponseError(http.StatusConflict, "Conflict")
		return
	}
	a.changed++
	a.plan = plan
	if a.most > 0 {
		*a.plan.SKU.Capacity = min(*a.plan.SKU.Capacity, a.most)
	}
	for range a.polls {
		r.AddNonTerminalResponse(http.StatusAccepted, nil)
	}
	r.SetTerminalResponse(http.StatusOK, armappservice.PlansClientCreateOrUpdateResponse{Plan: a.plan}, nil)
	return
}

func (a *azure) target(t *testing.T, plan string) *appservice.Target {
	t.Helper()
	server := &fake.PlansServer{Get: a.get, BeginCreateOrUpdate: a.put}
	target, err := appservice.New(&appservice.Config{
		Subscription: "00000000-0000-0000-0000-000000000000", ResourceGroup: "shop", Plan: plan, Credential: &azfake.TokenCredential{}, Poll: time.Second,
		Options: &arm.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: fake.NewPlansServerTransport(server), Retry: policy.RetryOptions{MaxRetries: -1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func newAzure() *azure {
	return &azure{plan: armappservice.Plan{
		Location: to.Ptr("westeurope"), Kind: to.Ptr("app"), Tags: map[string]*string{"team": to.Ptr("billing")},
		SKU: &armappservice.SKUDescription{Name: to.Ptr("P1v3"), Tier: to.Ptr("PremiumV3"), Capacity: to.Ptr(int32(2))},
	}}
}

func TestScale(t *testing.T) {
	a := newAzure()
	target := a.target(t, "workers")
	for _, want := range []int{3, 5, 1} {
		if err := target.Scale(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if n, err := target.Instances(t.Context()); err != nil || n != want {
			t.Errorf("%d instances, %v; want %d", n, err, want)
		}
	}
	if a.changed != 3 || *a.plan.SKU.Name != "P1v3" || *a.plan.Tags["team"] != "billing" || *a.plan.Location != "westeurope" {
		t.Errorf("after %d changes the plan is %+v", a.changed, a.plan)
	}
}

func TestScaleWaits(t *testing.T) {
	a := newAzure()
	a.polls = 1
	if err := a.target(t, "workers").Scale(t.Context(), 4); err != nil || *a.plan.SKU.Capacity != 4 {
		t.Errorf("%v, capacity %d", err, *a.plan.SKU.Capacity)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	a.polls = 1000
	if err := a.target(t, "workers").Scale(ctx, 5); err == nil {
		t.Error("a change that goes on is taken for done")
	}
}

func TestFailures(t *testing.T) {
	a := newAzure()
	expect := func(what, want string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	_, err := a.target(t, "none").Instances(t.Context())
	expect("no such plan", "app service plan shop/none: HTTP 404 (Not Found, ResourceNotFound)", err)
	a.most = 3
	expect("more than there can be", "asked for 10 instances and has 3", a.target(t, "workers").Scale(t.Context(), 10))
	a.refuse = true
	expect("refused", "HTTP 409 (Conflict)", a.target(t, "workers").Scale(t.Context(), 1))
	a.plan.SKU.Capacity = nil
	expect("no capacity", "no capacity", a.target(t, "workers").Scale(t.Context(), 1))
	if _, err := appservice.New(&appservice.Config{Plan: "workers"}); err == nil {
		t.Error("a plan without a subscription is taken")
	}
}
