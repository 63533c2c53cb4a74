// Package finalanswer makes clients of HTTP refuse the answer 101 (Switching Protocols).
//
// net/http takes it for the final answer. Its body is the connection, which neither the end of the
// request's context nor the client's timeout closes (golang/go#44988): to read it may take for
// ever.
package finalanswer

import (
	"errors"
	"net/http"
)

// ErrSwitched is the error for an answer with the status 101.
var ErrSwitched = errors.New("the server answered 101 Switching Protocols, which the request did not ask for: look at the proxies in between")

// Transport returns a transport whose answer is never 101. It closes the connection of such an
// answer.
func Transport(t http.RoundTripper) http.RoundTripper { return transport{t} }

type transport struct{ http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, errors.Join(ErrSwitched, resp.Body.Close())
	}
	return resp, err
}

// CloseIdleConnections is for [http.Client.CloseIdleConnections].
func (t transport) CloseIdleConnections() {
	if closer, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}
