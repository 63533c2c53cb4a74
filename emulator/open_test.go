package emulator_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/emulator"
)

// Without keys of its own, no server takes requests that a web page can have sent: with a
// foreign Origin, or with a host name that a page has resolved to this machine.
func TestForeignPages(t *testing.T) {
	hub := start(t, one("h", 1), nil)
	keyed := start(t, one("h", 1), &emulator.Config{Keys: []emulator.Key{{Name: "all", Secret: "c2VjcmV0"}}})
	account := startCosmos(t, nil)
	keyedAccount := startCosmos(t, &emulator.CosmosConfig{Keys: []string{"c2VjcmV0"}})
	for _, c := range []struct {
		addr, path, host, origin string
		want                     int
	}{
		{hub.Addr(), "/$servicebus/websocket", "localhost", "", 101},
		{hub.Addr(), "/$servicebus/websocket", "localhost", "http://localhost:3000", 101},
		{hub.Addr(), "/$servicebus/websocket", "evil.example", "http://evil.example", 403},
		{hub.Addr(), "/$servicebus/websocket", "evil.example:5672", "", 403},
		{hub.Addr(), "/$servicebus/websocket", "localhost", "http://evil.example", 403},
		{keyed.Addr(), "/$servicebus/websocket", "hub.example", "http://page.example", 101},
		{account.Addr(), "/", "localhost", "", 401},
		{account.Addr(), "/dbs", "evil.example", "", 403},
		{account.Addr(), "/dbs", "localhost", "http://evil.example", 403},
		{keyedAccount.Addr(), "/dbs", "account.example", "", 401},
	} {
		req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, "http://"+c.addr+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		for name, value := range map[string]string{
			"Origin": c.origin, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
			"Sec-WebSocket-Protocol": "amqp",
		} {
			if value != "" {
				req.Header.Set(name, value)
			}
		}
		res, err := new(http.Transport).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("host %s, origin %s: status %d, want %d", c.host, c.origin, res.StatusCode, c.want)
		}
	}
}

// A server without keys that listens for others than this machine says so.
func TestOpenAddressWarns(t *testing.T) {
	for _, c := range []struct {
		listen string
		keys   []emulator.Key
		warns  bool
	}{{"0.0.0.0:0", nil, true}, {"127.0.0.1:0", nil, false}, {"0.0.0.0:0", []emulator.Key{{Name: "all", Secret: "c2VjcmV0"}}, false}} {
		var log bytes.Buffer
		start(t, one("h", 1), &emulator.Config{Listen: c.listen, Keys: c.keys, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if text := log.String(); strings.Contains(text, "no keys are configured") != c.warns || strings.Count(text, "\n") > 1 {
			t.Errorf("%s with %d keys: %q", c.listen, len(c.keys), text)
		}
	}
}
