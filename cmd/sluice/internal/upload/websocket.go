package upload

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/websocketdial"
	"github.com/sluice-go/sluice/sender"
)

// WebSocket is how to connect where only HTTPS is allowed. The zero value is AMQP's own port.
type WebSocket struct {
	// Enabled connects over WebSockets to port 443.
	Enabled bool
	// Proxy is the URL of a proxy, or env:NAME for one in an environment variable, which may have a
	// user and a password. Default: that of HTTPS_PROXY.
	Proxy string
}

// Check returns what is wrong with the flags.
func (w *WebSocket) Check() error {
	if w.Proxy != "" && !w.Enabled {
		return usage.Errorf("--proxy needs --websocket: AMQP's own port does not go through a proxy")
	}
	_, err := w.proxy()
	return err
}

// proxy returns the URL of the proxy, nil for the environment's. Errors do not quote the URL.
func (w *WebSocket) proxy() (*url.URL, error) {
	text := w.Proxy
	name, variable := strings.CutPrefix(text, "env:")
	if variable {
		if text = os.Getenv(name); text == "" {
			return nil, usage.Errorf("--proxy: the environment variable %s is not set", name)
		}
	}
	if text == "" {
		return nil, nil
	}
	u, err := websocketdial.ParseProxy(text)
	if err != nil {
		return nil, usage.Errorf("--proxy: %v", err)
	}
	if _, has := u.User.Password(); has && !variable {
		return nil, usage.Errorf("--proxy: the URL has a password, which other users of this machine can read on a command line: put it into an environment variable and write env:NAME")
	}
	return u, nil
}

// apply sets how the clients connect, those of a namespace that the emulator serves without
// encryption if plain.
func (w *WebSocket) apply(source *eventhub.Config, bus *sender.ServiceBusConfig, hub *sender.EventHubConfig, plain bool) error {
	if !w.Enabled {
		return nil
	}
	proxy, err := w.proxy()
	if err != nil {
		return err
	}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		if plain {
			address = strings.Replace(address, "wss://", "ws://", 1)
		}
		conn, err := websocketdial.Dial(ctx, address, nil, proxy)
		if err != nil {
			return nil, fmt.Errorf("connect over WebSockets: %w", err)
		}
		return conn, nil
	}
	source.OverWebSocket, source.Proxy = true, proxy
	bus.Client.NewWebSocketConn = func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		return dial(ctx, args.Host)
	}
	hub.Client.NewWebSocketConn = func(ctx context.Context, args azeventhubs.WebSocketConnParams) (net.Conn, error) {
		return dial(ctx, args.Host)
	}
	return nil
}
