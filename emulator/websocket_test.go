package emulator_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/coder/websocket"

	"github.com/sluice-go/sluice/emulator"
)

// dialer returns how the Event Hubs library is to open WebSockets, and counts them.
func dialer(srv *emulator.Server, secure bool, subprotocol string, opened *int) func(context.Context, azeventhubs.WebSocketConnParams) (net.Conn, error) {
	return func(ctx context.Context, p azeventhubs.WebSocketConnParams) (net.Conn, error) {
		*opened++
		// The library knows the standard port only.
		_, path, _ := strings.Cut(strings.TrimPrefix(p.Host, "wss://"), "/")
		url := "ws://" + srv.Addr() + "/" + path
		if secure {
			url = "wss://" + srv.TLSAddr() + "/" + path
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: srv.CertPool()}}}
		ws, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{subprotocol}, HTTPClient: client})
		if err != nil {
			return nil, err
		}
		return websocket.NetConn(context.Background(), ws, websocket.MessageBinary), nil
	}
}

// The Go library over WebSockets, with and without TLS: also events that need many frames, and a
// connection that is dropped.
func TestWebSockets(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, subprotocol := range []string{"amqp", "AMQPWSB10"} {
			srv := start(t, one("h", 1), &emulator.Config{TLSListen: "127.0.0.1:0", Keys: []emulator.Key{{Name: "root", Secret: "cm9vdA=="}}})
			opened := 0
			dial := dialer(srv, secure, subprotocol, &opened)
			p, err := azeventhubs.NewProducerClientFromConnectionString(srv.TLSConnectionString(), "h", &azeventhubs.ProducerClientOptions{
				NewWebSocketConn: dial, RetryOptions: azeventhubs.RetryOptions{RetryDelay: time.Millisecond},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close(context.Background())
			big := bytes.Repeat([]byte("0123456789"), 100_000)
			send(t, p, to0(), string(big))
			srv.DropConnections()
			send(t, p, to0(), "small")
			c, err := azeventhubs.NewConsumerClientFromConnectionString(srv.TLSConnectionString(), "h", "$Default", &azeventhubs.ConsumerClientOptions{NewWebSocketConn: dial})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			pc := partition(t, c, "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest})
			for _, want := range [][]byte{big, []byte("small")} {
				if e := receive(t, pc, 1)[0]; !bytes.Equal(e.Body, want) {
					t.Errorf("got %d bytes, want %d", len(e.Body), len(want))
				}
			}
			if opened != 3 {
				t.Errorf("%d WebSockets were opened, want 3", opened)
			}
		}
	}
}

// A page of another origin can't use a server that asks for no key; where there are keys, it needs
// one anyway.
func TestOrigins(t *testing.T) {
	for _, keys := range [][]emulator.Key{nil, {{Name: "root", Secret: "cm9vdA=="}}} {
		srv := start(t, one("h", 1), &emulator.Config{Keys: keys})
		ws, res, err := websocket.Dial(testContext(t), "ws://"+srv.Addr()+"/$servicebus/websocket", &websocket.DialOptions{
			Subprotocols: []string{"amqp"}, HTTPHeader: http.Header{"Origin": {"http://elsewhere.example"}},
		})
		if keys == nil && (err == nil || res.StatusCode != http.StatusForbidden) || keys != nil && err != nil {
			t.Errorf("with %d keys: %v", len(keys), err)
		}
		if err == nil {
			ws.CloseNow()
		}
	}
}
