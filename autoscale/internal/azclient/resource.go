package azclient

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// Resource reads and writes one resource of Azure Resource Manager, whose JSON is a T. It is
// safe for concurrent use.
type Resource[T any] struct {
	client  *arm.Client
	path    string
	version string
}

// NewResource returns the resource at a path, whose parts are escaped, with a version of its
// API. The options may be nil. It does not connect.
func NewResource[T any](credential azcore.TokenCredential, options *arm.ClientOptions, path, version string) (*Resource[T], error) {
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
func (r *Resource[T]) Get(ctx context.Context) (value T, err error) {
	request, err := r.request(ctx, http.MethodGet)
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
	request, err := r.request(ctx, http.MethodPut)
	if err != nil {
		return nil, err
	}
	if err := runtime.MarshalAsJSON(request, value); err != nil {
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

func (r *Resource[T]) request(ctx context.Context, method string) (*policy.Request, error) {
	request, err := runtime.NewRequest(ctx, method, runtime.JoinPaths(r.client.Endpoint(), r.path))
	if err != nil {
		return nil, err
	}
	request.Raw().URL.RawQuery = url.Values{"api-version": {r.version}}.Encode()
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
