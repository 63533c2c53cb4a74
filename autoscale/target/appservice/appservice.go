// Package appservice scales an Azure App Service plan: the number of machines
// that its apps run on.
package appservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/appservice/armappservice/v5"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/internal/azfail"
)

// Config names the plan, and says how it is reached. All but Poll and Options
// is required.
type Config struct {
	Subscription  string // its id
	ResourceGroup string
	Plan          string
	// Credential is whom Azure's resource manager asks. It needs the right to
	// read and write the plan.
	Credential azcore.TokenCredential
	// Poll is how often it is asked whether a change is done. Default: 5 s.
	Poll time.Duration
	// Options are the SDK's. Default: none.
	Options *arm.ClientOptions
}

// Target is a plan. It is safe for concurrent use.
type Target struct {
	cfg   Config
	plans *armappservice.PlansClient
}

var _ autoscale.Target = (*Target)(nil)

// New returns the plan as a target. It is first asked for when the target is
// used.
func New(cfg *Config) (*Target, error) {
	t := &Target{cfg: *cfg}
	if cfg.Subscription == "" || cfg.ResourceGroup == "" || cfg.Plan == "" || cfg.Credential == nil {
		return nil, errors.New("app service: needs a subscription's id, a resource group, a plan and a credential")
	}
	t.cfg.Poll = cmp.Or(cfg.Poll, 5*time.Second)
	var err error
	if t.plans, err = armappservice.NewPlansClient(cfg.Subscription, cfg.Credential, cfg.Options); err != nil {
		return nil, fmt.Errorf("app service: %w", err)
	}
	return t, nil
}

// Instances is the plan's capacity.
func (t *Target) Instances(ctx context.Context) (int, error) {
	plan, err := t.plan(ctx)
	if err != nil {
		return 0, t.fail(err)
	}
	return int(*plan.SKU.Capacity), nil
}

// Scale changes the capacity, and waits until that is done.
func (t *Target) Scale(ctx context.Context, instances int) error {
	if instances < 0 || instances > math.MaxInt32 {
		return t.fail(fmt.Errorf("%d instances are out of the question", instances))
	}
	plan, err := t.plan(ctx)
	if err != nil {
		return t.fail(err)
	}
	// The manager takes a whole plan only: all else stays as it was read.
	plan.SKU.Capacity = to.Ptr(int32(instances))
	change, err := t.plans.BeginCreateOrUpdate(ctx, t.cfg.ResourceGroup, t.cfg.Plan, *plan, nil)
	if err != nil {
		return t.fail(err)
	}
	done, err := change.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: t.cfg.Poll})
	if err != nil {
		return t.fail(err)
	}
	if s := done.SKU; s != nil && s.Capacity != nil && int(*s.Capacity) != instances {
		return t.fail(fmt.Errorf("it was asked for %d instances and has %d: its tier may allow no more", instances, *s.Capacity))
	}
	return nil
}

func (t *Target) plan(ctx context.Context) (*armappservice.Plan, error) {
	r, err := t.plans.Get(ctx, t.cfg.ResourceGroup, t.cfg.Plan, nil)
	if err != nil {
		return nil, err
	}
	if r.SKU == nil || r.SKU.Capacity == nil {
		return nil, errors.New("it has no capacity: plans that Azure scales by itself can't be scaled from here")
	}
	return &r.Plan, nil
}

func (t *Target) fail(err error) error {
	return fmt.Errorf("app service plan %s/%s: %w", t.cfg.ResourceGroup, t.cfg.Plan, azfail.Brief(err))
}
