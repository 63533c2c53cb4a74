// Package azclient bounds what the Azure SDK does on the network: by itself it waits for
// an answer for ever, and reads any body into memory. It also has a client for single
// resources of Azure Resource Manager.
package azclient

import (
	"cmp"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/sluice-go/sluice/autoscale/internal/httpfetch"
	"github.com/sluice-go/sluice/internal/finalanswer"
)

const (
	// Timeout bounds each attempt of a request, with its response.
	Timeout = 30 * time.Second
	// MaxBody is the largest size of a response in bytes. The largest that Azure
	// sends here are pages of a table, up to 4 MiB.
	MaxBody = 16 << 20
)

// Bounded returns options with a timeout of each attempt, unless they have one, and
// with a transport that bounds responses and follows no redirects.
func Bounded(o policy.ClientOptions) policy.ClientOptions {
	o.Retry.TryTimeout = cmp.Or(o.Retry.TryTimeout, Timeout)
	if o.Transport == nil {
		o.Transport = client
	}
	o.Transport = &bounded{o.Transport}
	return o
}

// client is shared, so that connections are.
var client = &http.Client{
	Transport:     finalanswer.Transport(transport()),
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	// A connection without an answer is replaced, instead of used for the next attempt.
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second}
	return t
}

type bounded struct{ next policy.Transporter }

func (b *bounded) Do(r *http.Request) (*http.Response, error) {
	response, err := b.next.Do(r)
	if err == nil && response.Body != nil {
		response.Body = httpfetch.Limit(response.Body, MaxBody)
	}
	return response, err
}
