// Package websocketdial connects to Azure's messaging services over WebSockets, for networks
// that allow only HTTPS, also through a proxy.
package websocketdial

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/coder/websocket"
)

// ParseProxy returns the URL of a proxy. Its errors do not quote the text, which may hold a
// password.
func ParseProxy(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" {
		return nil, errors.New("not the URL of a proxy: write it like http://proxy.example.com:3128")
	}
	return u, nil
}

// Dial connects to the address of a service, such as wss://HOST/$servicebus/websocket. Read
// and Write of the connection transfer the payload of binary messages. A nil config is the
// system's roots. A nil proxy means that of HTTPS_PROXY and NO_PROXY.
func Dial(ctx context.Context, address string, config *tls.Config, proxy *url.URL) (net.Conn, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config.Clone()}
	if proxy != nil {
		transport.Proxy = http.ProxyURL(proxy)
	}
	ws, response, err := websocket.Dial(ctx, address, &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: limitedTransport{transport}},
		Subprotocols: []string{"amqp"},
	})
	if err != nil {
		transport.CloseIdleConnections() // else an answer that refuses keeps one open
		return nil, dialError(response, err)
	}
	ws.SetReadLimit(-1) // AMQP has limits of its own, and limitedTransport those of frames
	return websocket.NetConn(context.WithoutCancel(ctx), ws, websocket.MessageBinary), nil
}

// dialError shortens the library's text, which repeats the address, to the cause.
func dialError(response *http.Response, err error) error {
	var failed *url.Error
	switch {
	case response != nil && response.StatusCode == http.StatusProxyAuthRequired:
		return errors.New("the proxy demands a user and a password: write them into its URL")
	case response != nil && response.StatusCode != http.StatusSwitchingProtocols:
		return fmt.Errorf("the answer is HTTP status %d: check the host, and that the proxy lets WebSockets through", response.StatusCode)
	case errors.As(err, &failed):
		text := failed.Err.Error()
		if strings.EqualFold(text, http.StatusText(http.StatusProxyAuthRequired)) {
			return errors.New("the proxy demands a user and a password: write them into its URL")
		}
		return failed.Err
	}
	return cmp.Or(errors.Unwrap(err), err)
}
