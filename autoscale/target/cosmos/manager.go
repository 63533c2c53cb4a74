package cosmos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/autoscale/internal/azclient"
)

// managed is throughput that is changed through Azure Resource Manager. Its two calls
// are made here: the SDK's client for them, armcosmos, is one package with all
// operations of all APIs of Cosmos DB.
type managed struct {
	client *arm.Client
	path   string
	accept time.Duration
}

func newManaged(cfg *Config) (*managed, error) {
	var opts arm.ClientOptions
	if cfg.Manager != nil {
		opts = *cfg.Manager
	}
	opts.ClientOptions = azclient.Bounded(opts.ClientOptions)
	client, err := arm.NewClient("github.com/sluice-go/sluice/autoscale", "v0.0.0", cfg.Credential, &opts)
	if err != nil {
		return nil, err
	}
	path := fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.DocumentDB/databaseAccounts/%s/sqlDatabases/%s",
		url.PathEscape(cfg.Subscription), url.PathEscape(cfg.ResourceGroup), url.PathEscape(cfg.Account), url.PathEscape(cfg.Database))
	if cfg.Container != "" {
		path += "/containers/" + url.PathEscape(cfg.Container)
	}
	return &managed{client, path + "/throughputSettings/default", cfg.Accept}, nil
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
	request, err := m.request(ctx, http.MethodGet)
	if err != nil {
		return r, err
	}
	answer, err := m.client.Pipeline().Do(request)
	if err != nil {
		return r, err
	}
	if !runtime.HasStatusCode(answer, http.StatusOK) {
		return r, runtime.NewResponseError(answer)
	}
	var s settings
	if err := runtime.UnmarshalAsJSON(answer, &s); err != nil {
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
	request, err := m.request(ctx, http.MethodPut)
	if err != nil {
		return r, err
	}
	if err := runtime.MarshalAsJSON(request, s); err != nil {
		return r, err
	}
	answer, err := m.client.Pipeline().Do(request)
	if err != nil {
		return r, err
	}
	if !runtime.HasStatusCode(answer, http.StatusOK, http.StatusAccepted) {
		return r, runtime.NewResponseError(answer)
	}
	change, err := runtime.NewPoller[settings](answer, m.client.Pipeline(), nil)
	if err != nil {
		return r, err
	}
	waiting, cancel := context.WithTimeout(ctx, m.accept)
	defer cancel()
	done, err := change.PollUntilDone(waiting, &runtime.PollUntilDoneOptions{Frequency: time.Second})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return r, nil
	}
	return done.response(), err
}

// request returns a request for the settings, as Resource Manager's REST API documents
// it: https://learn.microsoft.com/rest/api/cosmos-db-resource-provider/sql-resources
func (m *managed) request(ctx context.Context, method string) (*policy.Request, error) {
	request, err := runtime.NewRequest(ctx, method, runtime.JoinPaths(m.client.Endpoint(), m.path))
	if err != nil {
		return nil, err
	}
	request.Raw().URL.RawQuery = url.Values{"api-version": {"2024-11-15"}}.Encode()
	request.Raw().Header.Set("Accept", "application/json")
	return request, nil
}
