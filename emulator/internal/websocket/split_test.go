package websocket

import (
	"io"
	"net"
	"testing"
	"time"
)

// Requests for the WebSocket are streams, in every form that clients write them.
func TestSplit(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	streams, requests := Split(l, "/$servicebus/websocket", time.Minute)
	defer requests.Close()
	defer streams.Close()
	arrived := make(chan string)
	for name, branch := range map[string]net.Listener{"stream": streams, "request": requests} {
		go func() {
			for {
				nc, err := branch.Accept()
				if err != nil {
					return
				}
				nc.Close()
				arrived <- name
			}
		}()
	}
	for first, want := range map[string]string{
		"AMQP\x03\x01\x00\x00":                    "stream",
		"GET /$servicebus/websocket":              "stream",
		"GET /$ServiceBus/WebSocket/":             "stream",
		"GET /$servicebus/websocket?a=b":          "stream",
		"GET https://h:1/$servicebus/websocket":   "stream", // as the client for Java writes it
		"GET /$servicebus/websockets":             "request",
		"GET /q":                                  "request",
		"GET https://h/q":                         "request",
		"GET /" + string(make([]byte, maxTarget)): "request",
		"PUT /$servicebus/websocket":              "request",
	} {
		nc, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(nc, first+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if got := <-arrived; got != want {
			t.Errorf("%.50q is a %s, want a %s", first, got, want)
		}
		nc.Close()
	}
}
