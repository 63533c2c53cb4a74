package cosmos

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/autoscale/internal/azclient"
)

// managed is throughput that is changed through Azure Resource Manager. The SDK's client for
// that, armcosmos, is one package with all operations of all APIs of Cosmos DB.
type managed struct {
	settings *azclient.Resource[settings]
	accept   time.Duration
}

// newManaged returns the settings as Resource Manager's REST API documents them:
// https://learn.microsoft.com/rest/api/cosmos-db-resource-provider/sql-resources
func newManaged(cfg *Config) (*managed, error) {
	kind, names := "Microsoft.DocumentDB/databaseAccounts/sqlDatabases", []string{cfg.Account, cfg.Database}
	if cfg.Container != "" {
		kind, names = kind+"/containers", append(names, cfg.Container)
	}
	path, err := azclient.Path(kind, cfg.Subscription, cfg.ResourceGroup, names...)
	if err != nil {
		return nil, err
	}
	resource, err := azclient.NewResource[settings](cfg.Credential, cfg.Manager, path+"/throughputSettings/default", "2024-11-15")
	if err != nil {
		return nil, err
	}
	return &managed{resource, cfg.Accept}, nil
}

// settings is the JSON of Resource Manager.
type settings struct {
	Properties struct {
		Resource resource `json:"resource"`
	} `json:"properties"`
}

type resource struct {
	Throughput int32        `json:"throughput,omitempty"`
	Autoscale  *autoscaling `json:"autoscaleSettings,omitempty"`
	Minimum    string       `json:"minimumThroughput,omitempty"`
	Pending    string       `json:"offerReplacePending,omitempty"`
}

type autoscaling struct {
	Max int32 `json:"maxThroughput"`
}

// ReadThroughput implements [throughput].
func (m *managed) ReadThroughput(ctx context.Context, _ *azcosmos.ThroughputOptions) (r azcosmos.ThroughputResponse, err error) {
	s, err := m.settings.Get(ctx)
	if err != nil {
		return r, err
	}
	return s.response(), nil
}

func (s *settings) response() (r azcosmos.ThroughputResponse) {
	found := s.Properties.Resource
	r.IsReplacePending = found.Pending == "true"
	if n, err := strconv.ParseInt(found.Minimum, 10, 32); err == nil {
		least := int32(n)
		r.MinThroughput = &least
	}
	switch {
	case found.Autoscale != nil && found.Autoscale.Max > 0:
		p := azcosmos.NewAutoscaleThroughputProperties(found.Autoscale.Max)
		r.ThroughputProperties = &p
	case found.Throughput > 0:
		p := azcosmos.NewManualThroughputProperties(found.Throughput)
		r.ThroughputProperties = &p
	}
	return r
}

// ReplaceThroughput implements [throughput]. It waits for the change, and returns nil
// too if that is accepted and goes on.
func (m *managed) ReplaceThroughput(ctx context.Context, p azcosmos.ThroughputProperties, _ *azcosmos.ThroughputOptions) (r azcosmos.ThroughputResponse, err error) {
	var s settings
	if ru, ok := p.AutoscaleMaxThroughput(); ok {
		s.Properties.Resource.Autoscale = &autoscaling{ru}
	} else if ru, ok := p.ManualThroughput(); ok {
		s.Properties.Resource.Throughput = ru
	}
	change, err := m.settings.Put(ctx, s)
	if err != nil {
		return r, err
	}
	waiting, cancel := context.WithTimeout(ctx, m.accept)
	defer cancel()
	done, err := change.Wait(waiting, time.Second)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return r, nil
	}
	return done.response(), err
}
