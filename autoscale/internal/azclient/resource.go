package azclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/sluice-go/sluice/autoscale/internal/azerror"
)

// Resource reads and writes one resource of Azure Resource Manager, whose JSON is a T. It is
// safe for concurrent use.
type Resource[T any] struct {
	client  *arm.Client
	path    string
	version string
}

// Path returns the path of a resource below a resource group. The kind is a provider and types,
// such as Microsoft.Sql/servers/databases, with a name for each type. A name that is missing, or
// that leads to another path, is an error.
func Path(kind, subscription, group string, names ...string) (string, error) {
	provider, types, _ := strings.Cut(kind, "/")
	parts := []string{"subscriptions", subscription, "resourceGroups", group, "providers", provider}
	for i, part := range strings.Split(types, "/") {
		parts = append(parts, part, names[i])
	}
	var path strings.Builder
	for _, part := range parts {
		switch part {
		case "":
			return "", fmt.Errorf("give a subscription's id, a resource group and the names of %s", kind)
		case ".", "..":
			return "", fmt.Errorf("%q is not a name in Azure", part)
		}
		path.WriteString("/" + url.PathEscape(part))
	}
	return path.String(), nil
}

// NewResource returns the resource at a path (see [Path]), with a version of its API. The options
// may be nil. It does not connect.
func NewResource[T any](credential azcore.TokenCredential, options *arm.ClientOptions, path, version string) (*Resource[T], error) {
	if credential == nil {
		return nil, errors.New("give a credential")
	}
	var o arm.ClientOptions
	if options != nil {
		o = *options
	}
	o.ClientOptions = Bounded(o.ClientOptions)
	client, err := arm.NewClient("github.com/sluice-go/sluice/autoscale", "v0.0.0", credential, &o)
	if err != nil {
		return nil, err
	}
	return &Resource[T]{client, path, version}, nil
}

// Get reads the resource.
func (r *Resource[T]) Get(ctx context.Context) (T, error) { return r.Query(ctx, nil) }

// Query reads the resource with more parameters than the version of the API.
func (r *Resource[T]) Query(ctx context.Context, parameters url.Values) (value T, err error) {
	request, err := r.request(ctx, http.MethodGet, parameters)
	if err != nil {
		return value, err
	}
	response, err := r.client.Pipeline().Do(request)
	if err != nil {
		return value, err
	}
	if !runtime.HasStatusCode(response, http.StatusOK) {
		return value, runtime.NewResponseError(response)
	}
	return value, runtime.UnmarshalAsJSON(response, &value)
}

// Put writes the resource. The change is then accepted and may still be in progress.
func (r *Resource[T]) Put(ctx context.Context, value T) (*Change[T], error) {
	return r.change(ctx, http.MethodPut, value)
}

// Patch changes what part holds, and keeps all else of the resource. The change is then accepted
// and may still be in progress.
func (r *Resource[T]) Patch(ctx context.Context, part any) (*Change[T], error) {
	return r.change(ctx, http.MethodPatch, part)
}

func (r *Resource[T]) change(ctx context.Context, method string, body any) (*Change[T], error) {
	request, err := r.request(ctx, method, nil)
	if err != nil {
		return nil, err
	}
	if err := runtime.MarshalAsJSON(request, body); err != nil {
		return nil, err
	}
	response, err := r.client.Pipeline().Do(request)
	if err != nil {
		return nil, err
	}
	if !runtime.HasStatusCode(response, http.StatusOK, http.StatusAccepted) {
		return nil, runtime.NewResponseError(response)
	}
	poller, err := runtime.NewPoller[T](response, r.client.Pipeline(), nil)
	if err != nil {
		return nil, err
	}
	return &Change[T]{poller}, nil
}

func (r *Resource[T]) request(ctx context.Context, method string, parameters url.Values) (*policy.Request, error) {
	request, err := runtime.NewRequest(ctx, method, runtime.JoinPaths(r.client.Endpoint(), r.path))
	if err != nil {
		return nil, err
	}
	query := url.Values{"api-version": {r.version}}
	maps.Copy(query, parameters)
	request.Raw().URL.RawQuery = query.Encode()
	request.Raw().Header.Set("Accept", "application/json")
	return request, nil
}

// Change is a change of a resource that was accepted.
type Change[T any] struct{ poller *runtime.Poller[T] }

// Wait waits until the change is complete, looking at intervals of every, and returns the
// resource as it then is.
func (c *Change[T]) Wait(ctx context.Context, every time.Duration) (T, error) {
	return c.poller.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: every})
}

// maxConflicts is how often a change is tried that Azure refuses with HTTP 409.
const maxConflicts = 24

// RetryConflict calls change again, at intervals of every, while its error is HTTP 409: Azure is
// still carrying out another change of the resource. It returns the last error of change if ctx
// ends, or after 24 calls.
func RetryConflict(ctx context.Context, every time.Duration, change func() error) error {
	for n := 1; ; n++ {
		err := change()
		if n == maxConflicts || !azerror.HasStatus(err, http.StatusConflict) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(every):
		}
	}
}
