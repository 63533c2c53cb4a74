// Package containerapp scales an app of Azure Container Apps: its number of replicas, or a
// bound of it.
package containerapp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/internal/azclient"
	"github.com/sluice-go/sluice/autoscale/internal/azerror"
)

// MaxReplicas is the largest number of replicas that Azure allows.
const MaxReplicas = 1000

// Replicas says what is changed of an app.
type Replicas string

const (
	// Exact sets minimum and maximum to the same number, so that Azure's own scale rules
	// have no effect.
	Exact Replicas = "exact"
	// Min sets the minimum. Azure's scale rules add replicas, up to the maximum.
	Min Replicas = "min"
	// Max sets the maximum. Azure's scale rules decide below it.
	Max Replicas = "max"
)

// Bounds returns the smallest and the largest number of instances.
func (r Replicas) Bounds() (least, most int) {
	if r == Min {
		return 0, MaxReplicas
	}
	return 1, MaxReplicas
}

// Config names the app, and how to connect. All fields but Replicas, Poll and Options are
// required.
type Config struct {
	Subscription  string // its id
	ResourceGroup string
	App           string
	// Replicas says what is changed. Default: Exact.
	Replicas Replicas
	// Credential is used for Azure Resource Manager. It needs the right to read and
	// write the app, as the role Container Apps Contributor has.
	Credential azcore.TokenCredential
	// Poll is the time between two checks whether a change is complete, and between two
	// attempts while Azure carries out another change. Default: 5 s.
	Poll time.Duration
	// Options are passed to the SDK. Default: none.
	Options *arm.ClientOptions
}

// Target scales an app. It is safe for concurrent use.
type Target struct {
	cfg Config
	app *azclient.Resource[app]
}

var _ autoscale.Target = (*Target)(nil)

// New returns the app as a target. It does not connect before the target is used.
func New(cfg *Config) (*Target, error) {
	t := &Target{cfg: *cfg}
	t.cfg.Replicas = cmp.Or(cfg.Replicas, Exact)
	t.cfg.Poll = cmp.Or(cfg.Poll, 5*time.Second)
	if t.cfg.Replicas != Exact && t.cfg.Replicas != Min && t.cfg.Replicas != Max {
		return nil, fmt.Errorf("container app: replicas %q: write exact, min or max", t.cfg.Replicas)
	}
	// https://learn.microsoft.com/rest/api/resource-manager/containerapps/container-apps
	path, err := azclient.Path("Microsoft.App/containerApps", cfg.Subscription, cfg.ResourceGroup, cfg.App)
	if err == nil {
		t.app, err = azclient.NewResource[app](cfg.Credential, cfg.Options, path, "2025-01-01")
	}
	if err != nil {
		return nil, fmt.Errorf("container app: %w", err)
	}
	return t, nil
}

// Instances returns the number of replicas that is set, or the bound of it. With [Exact], an
// app whose minimum and maximum differ is an error: Azure's own rules scale it.
func (t *Target) Instances(ctx context.Context) (int, error) {
	s, err := t.read(ctx)
	if err != nil {
		return 0, t.fail(err)
	}
	if t.cfg.Replicas == Min {
		return s.min(), nil
	}
	return s.max(), nil
}

// read returns the app's replicas, or why it cannot be scaled.
func (t *Target) read(ctx context.Context) (scale, error) {
	a, err := t.app.Get(ctx)
	if err != nil {
		return scale{}, err
	}
	if a.Properties.Template == nil { // the defaults of an app must not be taken for its bounds
		return scale{}, errors.New("the answer has no template of an app: check that the endpoint is Azure Resource Manager")
	}
	s := a.Properties.Template.Scale
	switch mode := a.Properties.Configuration.Mode; {
	case mode != "" && !strings.EqualFold(mode, "Single"):
		return s, fmt.Errorf("it is in revision mode %.40q: a change would make a revision beside those that run; change that to single (az containerapp revision set-mode --mode single)", mode)
	case t.cfg.Replicas == Exact && s.min() != s.max():
		return s, fmt.Errorf("it has %d to %d replicas, so that Azure scales it by its own rules: set both to the same number (az containerapp update --min-replicas N --max-replicas N), or choose replicas min or max", s.min(), s.max())
	}
	return s, nil
}

// Scale changes the replicas, and returns when the change is complete. While another change
// is in progress, it tries again. Each change makes a new revision, as any change of an app's
// scale does in Container Apps, which replaces the former one when it is ready.
func (t *Target) Scale(ctx context.Context, instances int) error {
	least, most := t.cfg.Replicas.Bounds()
	if instances < least || instances > most {
		return t.fail(fmt.Errorf("%d replicas: must be %d to %d", instances, least, most))
	}
	err := azclient.RetryConflict(ctx, t.cfg.Poll, func() error {
		now, err := t.read(ctx)
		if err != nil {
			return err
		}
		var wanted app
		wanted.Properties.Template = &template{}
		if wanted.Properties.Template.Scale, err = t.wanted(now, instances); err != nil {
			return err
		}
		// A merge patch: containers, secrets and scale rules stay as they are.
		change, err := t.app.Patch(ctx, wanted)
		if err != nil {
			return err
		}
		_, err = change.Wait(ctx, t.cfg.Poll)
		return err
	})
	if err != nil {
		return t.fail(err)
	}
	switch n, err := t.Instances(ctx); {
	case err != nil:
		return err
	case n != instances:
		return t.fail(fmt.Errorf("%d replicas requested, but the app has %d", instances, n))
	}
	return nil
}

// wanted returns what to change.
func (t *Target) wanted(now scale, instances int) (s scale, err error) {
	switch t.cfg.Replicas {
	case Min:
		if instances > now.max() {
			return s, fmt.Errorf("at least %d replicas, but its maximum is %d: raise that, or lower max", instances, now.max())
		}
		s.Min = &instances
	case Max:
		if instances < now.min() {
			return s, fmt.Errorf("at most %d replicas, but its minimum is %d: lower that, or raise min", instances, now.min())
		}
		s.Max = &instances
	default:
		s.Min, s.Max = &instances, &instances
	}
	return s, nil
}

// app is what is read and changed of the JSON of Resource Manager.
type app struct {
	Properties struct {
		Configuration struct {
			Mode string `json:"activeRevisionsMode,omitempty"`
		} `json:"configuration,omitzero"`
		Template *template `json:"template"`
	} `json:"properties"`
}

type template struct {
	Scale scale `json:"scale"`
}

type scale struct {
	Min *int `json:"minReplicas,omitempty"`
	Max *int `json:"maxReplicas,omitempty"`
}

func (s scale) min() int {
	if s.Min == nil {
		return 0 // Azure's default
	}
	return *s.Min
}

func (s scale) max() int {
	if s.Max == nil {
		return 10 // Azure's default
	}
	return *s.Max
}

func (t *Target) fail(err error) error {
	return fmt.Errorf("container app %s/%s: %w", t.cfg.ResourceGroup, t.cfg.App, azerror.Shorten(err))
}
