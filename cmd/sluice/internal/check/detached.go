package check

import (
	"context"
	"io"
	"net/http"
	"time"
)

// detachedFor bounds a write that goes on although its context has ended.
const detachedFor = 15 * time.Second

// detached sends writes to their end, also if their context ends meanwhile. Otherwise a write could
// be carried out after what it writes was removed.
type detached struct{ client *http.Client }

// Do implements [policy.Transporter].
//
// [policy.Transporter]: https://pkg.go.dev/github.com/Azure/azure-sdk-for-go/sdk/azcore/policy#Transporter
func (d detached) Do(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		return d.client.Do(req)
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), detachedFor)
	resp, err := d.client.Do(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &cancelBody{resp.Body, cancel}
	return resp, nil
}

// cancelBody ends the context of a request when its answer is read.
type cancelBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *cancelBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// untilDone is a context for a preparation that must not be left half-way.
func untilDone(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), detachedFor)
}
