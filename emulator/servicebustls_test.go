package emulator_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"

	"github.com/sluice-go/sluice/emulator"
)

// One TLS address serves AMQP, AMQP over WebSockets and the administration API, as port
// 443 does on Azure.
func TestBusOneTLSAddress(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{Listen: "-", TLSListen: "localhost:0"})
	trusted := &tls.Config{RootCAs: srv.CertPool()}
	client := func(options *azservicebus.ClientOptions) *azservicebus.Client {
		c, err := azservicebus.NewClientFromConnectionString(srv.TLSConnectionString(), options)
		must(t, err)
		t.Cleanup(func() { c.Close(context.Background()) })
		return c
	}
	a := busAdmin(t, srv, srv.AdminConnectionString())
	if _, err := a.CreateQueue(testContext(t), "made", nil); err != nil {
		t.Fatal(err)
	}
	sendText(t, busSender(t, client(&azservicebus.ClientOptions{TLSConfig: trusted}), "made"), "by AMQP")
	transport := &http.Transport{TLSClientConfig: trusted}
	t.Cleanup(transport.CloseIdleConnections)
	overWebSockets := client(&azservicebus.ClientOptions{NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		// The library leaves out the port.
		ws, _, err := websocket.Dial(ctx, "wss://"+srv.TLSAddr()+"/$ServiceBus/WebSocket", &websocket.DialOptions{Subprotocols: []string{"amqp"}, HTTPClient: &http.Client{Transport: transport}})
		if err != nil {
			return nil, err
		}
		return websocket.NetConn(context.Background(), ws, websocket.MessageBinary), nil
	}})
	receiveText(t, busReceiver(t, overWebSockets, "made", nil), "by AMQP")
	if _, err := a.DeleteQueue(testContext(t), "made", nil); err != nil {
		t.Fatal(err)
	}
}

// A connection to the shared address that sends nothing, or half a request, holds up
// neither other clients nor Close.
func TestBusSharedAddressWithSilentClients(t *testing.T) {
	emulator.SetFirstBytes(t, time.Hour) // nothing else ends a silent connection before Close does
	srv, err := emulator.StartServiceBus(nil, nil, &emulator.ServiceBusConfig{Listen: "-", TLSListen: "127.0.0.1:0"})
	must(t, err)
	defer srv.Close()
	for _, first := range []string{"", "G", "GET /$serv"} {
		c, err := tls.Dial("tcp", srv.TLSAddr(), &tls.Config{RootCAs: srv.CertPool(), ServerName: "localhost"})
		must(t, err)
		defer c.Close()
		_, err = io.WriteString(c, first)
		must(t, err)
	}
	if pager := busAdmin(t, srv, srv.AdminConnectionString()).NewListQueuesPager(nil); pager.More() {
		_, err := pager.NextPage(testContext(t))
		must(t, err)
	}
	start := time.Now()
	must(t, srv.Close())
	if took := time.Since(start); took > time.Minute {
		t.Fatalf("Close took %s", took)
	}
}
