// Package appservice scales an Azure App Service plan: the number of machines on which
// its apps run.
package appservice

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/internal/azclient"
	"github.com/sluice-go/sluice/autoscale/internal/azerror"
)

// Config names the plan, and how to connect. All fields but Poll and Options are
// required.
type Config struct {
	Subscription  string // its id
	ResourceGroup string
	Plan          string
	// Credential is used for Azure Resource Manager. It needs the right to read and
	// write the plan.
	Credential azcore.TokenCredential
	// Poll is the time between two checks whether a change is complete. Default: 5 s.
	Poll time.Duration
	// Options are passed to the SDK. Default: none.
	Options *arm.ClientOptions
}

// Target scales a plan. It is safe for concurrent use.
type Target struct {
	cfg  Config
	plan *azclient.Resource[plan]
}

var _ autoscale.Target = (*Target)(nil)

// New returns the plan as a target. It does not connect before the target is used.
func New(cfg *Config) (*Target, error) {
	t := &Target{cfg: *cfg}
	t.cfg.Poll = cmp.Or(cfg.Poll, 5*time.Second)
	// As Resource Manager's REST API documents it:
	// https://learn.microsoft.com/rest/api/appservice/app-service-plans
	path, err := azclient.Path("Microsoft.Web/serverfarms", cfg.Subscription, cfg.ResourceGroup, cfg.Plan)
	if err == nil {
		t.plan, err = azclient.NewResource[plan](cfg.Credential, cfg.Options, path, "2024-11-01")
	}
	if err != nil {
		return nil, fmt.Errorf("app service: %w", err)
	}
	return t, nil
}

// Instances returns the plan's capacity.
func (t *Target) Instances(ctx context.Context) (int, error) {
	p, err := t.plan.Get(ctx)
	if err != nil {
		return 0, t.fail(err)
	}
	n, err := p.capacity()
	if err != nil {
		return 0, t.fail(err)
	}
	return n, nil
}

// Scale changes the capacity, and returns when the change is complete.
func (t *Target) Scale(ctx context.Context, instances int) error {
	if instances < 0 || instances > math.MaxInt32 {
		return t.fail(fmt.Errorf("%d instances: must be 0 to 2,147,483,647", instances))
	}
	p, err := t.plan.Get(ctx)
	if err != nil {
		return t.fail(err)
	}
	if _, err := p.capacity(); err != nil {
		return t.fail(err)
	}
	// Resource Manager takes only whole plans: everything else stays as it was read.
	if err := p.setCapacity(instances); err != nil {
		return t.fail(err)
	}
	change, err := t.plan.Put(ctx, p)
	if err != nil {
		return t.fail(err)
	}
	done, err := change.Wait(ctx, t.cfg.Poll)
	if err != nil {
		return t.fail(err)
	}
	n, err := done.capacity()
	if err != nil { // an answer without the plan: what it has must be read
		if n, err = t.Instances(ctx); err != nil {
			return err
		}
	}
	if n != instances {
		return t.fail(fmt.Errorf("%d instances requested, but the plan has %d: its pricing tier may allow no more", instances, n))
	}
	return nil
}

// plan is a plan as JSON of Resource Manager. It is kept as it was read, so that a
// change of the capacity keeps every property, those of later API versions too. The
// two calls needed go through azclient: the SDK's client for them, armappservice, drops
// properties that its model does not have, and as one package with all operations of
// App Service it takes a tenth of the whole command's build.
type plan map[string]json.RawMessage

func (p plan) capacity() (int, error) {
	var sku struct {
		Capacity *int32 `json:"capacity"`
	}
	if text := p["sku"]; text != nil {
		if err := json.Unmarshal(text, &sku); err != nil {
			return 0, fmt.Errorf("read the plan's sku: %w", err)
		}
	}
	if sku.Capacity == nil {
		return 0, errors.New("the plan has no capacity: Azure scales it automatically, so it cannot be scaled from here")
	}
	return int(*sku.Capacity), nil
}

func (p plan) setCapacity(instances int) error {
	var sku map[string]json.RawMessage
	err := json.Unmarshal(p["sku"], &sku)
	if err != nil {
		return fmt.Errorf("read the plan's sku: %w", err)
	}
	sku["capacity"] = fmt.Append(nil, instances)
	p["sku"], err = json.Marshal(sku)
	return err
}

func (t *Target) fail(err error) error {
	return fmt.Errorf("app service plan %s/%s: %w", t.cfg.ResourceGroup, t.cfg.Plan, azerror.Shorten(err))
}
