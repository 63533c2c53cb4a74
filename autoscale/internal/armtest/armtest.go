// Package armtest helps tests of what uses Azure Resource Manager, on the SDK's fakes.
package armtest

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// Options are those of a client whose requests go to a fake of a client of the SDK, such as
// DatabasesClient. A GET calls Get, and a PATCH calls BeginUpdate.
func Options(client string, fake policy.Transporter) *arm.ClientOptions {
	return &arm.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: named{client, fake}, Retry: policy.RetryOptions{MaxRetries: -1},
	}}
}

// named gives requests the names of the operations, as the SDK's own clients do.
type named struct {
	client string
	next   policy.Transporter
}

func (n named) Do(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	if ctx.Value(runtime.CtxAPINameKey{}) == nil {
		operation := map[string]string{http.MethodGet: ".Get", http.MethodPatch: ".BeginUpdate"}[r.Method]
		ctx = context.WithValue(ctx, runtime.CtxAPINameKey{}, n.client+operation)
	}
	return n.next.Do(r.WithContext(ctx))
}

// Instances expects a number of instances.
func Instances(t *testing.T, target interface {
	Instances(ctx context.Context) (int, error)
}, want int) {
	t.Helper()
	if n, err := target.Instances(t.Context()); err != nil || n != want {
		t.Errorf("%d instances, %v; want %d", n, err, want)
	}
}

// Fails expects an error of one line, with a text in it.
func Fails(t *testing.T, what, want string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}
