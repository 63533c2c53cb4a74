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
	"net/http"
	"net/url"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

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
	cfg    Config
	client *arm.Client
}

var _ autoscale.Target = (*Target)(nil)

// New returns the plan as a target. It does not connect before the target is used.
func New(cfg *Config) (*Target, error) {
	t := &Target{cfg: *cfg}
	if cfg.Subscription == "" || cfg.ResourceGroup == "" || cfg.Plan == "" || cfg.Credential == nil {
		return nil, errors.New("app service: give a subscription's id, a resource group, a plan and a credential")
	}
	t.cfg.Poll = cmp.Or(cfg.Poll, 5*time.Second)
	var opts arm.ClientOptions
	if cfg.Options != nil {
		opts = *cfg.Options
	}
	opts.ClientOptions = azclient.Bounded(opts.ClientOptions)
	var err error
	if t.client, err = arm.NewClient("github.com/sluice-go/sluice/autoscale", "v0.0.0", cfg.Credential, &opts); err != nil {
		return nil, fmt.Errorf("app service: %w", err)
	}
	return t, nil
}

// Instances returns the plan's capacity.
func (t *Target) Instances(ctx context.Context) (int, error) {
	p, err := t.get(ctx)
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
	p, err := t.get(ctx)
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
	done, err := t.put(ctx, p)
	if err != nil {
		return t.fail(err)
	}
	if n, err := done.capacity(); err == nil && n != instances {
		return t.fail(fmt.Errorf("%d instances requested, but the plan has %d: its pricing tier may allow no more", instances, n))
	}
	return nil
}

// plan is a plan as JSON of Resource Manager. It is kept as it was read, so that a
// change of the capacity keeps every property, those of later API versions too. The
// two calls needed are made here: the SDK's client for them, armappservice, drops
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

func (t *Target) get(ctx context.Context) (plan, error) {
	request, err := t.request(ctx, http.MethodGet)
	if err != nil {
		return nil, err
	}
	response, err := t.client.Pipeline().Do(request)
	if err != nil {
		return nil, err
	}
	if !runtime.HasStatusCode(response, http.StatusOK) {
		return nil, runtime.NewResponseError(response)
	}
	var p plan
	return p, runtime.UnmarshalAsJSON(response, &p)
}

// put writes a plan, waits until the change is complete, and returns the new plan.
func (t *Target) put(ctx context.Context, p plan) (plan, error) {
	request, err := t.request(ctx, http.MethodPut)
	if err != nil {
		return nil, err
	}
	if err := runtime.MarshalAsJSON(request, p); err != nil {
		return nil, err
	}
	response, err := t.client.Pipeline().Do(request)
	if err != nil {
		return nil, err
	}
	if !runtime.HasStatusCode(response, http.StatusOK, http.StatusAccepted) {
		return nil, runtime.NewResponseError(response)
	}
	change, err := runtime.NewPoller[plan](response, t.client.Pipeline(), nil)
	if err != nil {
		return nil, err
	}
	return change.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: t.cfg.Poll})
}

// request returns a request for the plan, as Resource Manager's REST API documents it:
// https://learn.microsoft.com/rest/api/appservice/app-service-plans
func (t *Target) request(ctx context.Context, method string) (*policy.Request, error) {
	path := fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Web/serverfarms/%s",
		url.PathEscape(t.cfg.Subscription), url.PathEscape(t.cfg.ResourceGroup), url.PathEscape(t.cfg.Plan))
	request, err := runtime.NewRequest(ctx, method, runtime.JoinPaths(t.client.Endpoint(), path))
	if err != nil {
		return nil, err
	}
	request.Raw().URL.RawQuery = url.Values{"api-version": {"2024-11-01"}}.Encode()
	request.Raw().Header.Set("Accept", "application/json")
	return request, nil
}

func (t *Target) fail(err error) error {
	return fmt.Errorf("app service plan %s/%s: %w", t.cfg.ResourceGroup, t.cfg.Plan, azerror.Shorten(err))
}
