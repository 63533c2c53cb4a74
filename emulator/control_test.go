package emulator_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/emulator"
)

func TestControl(t *testing.T) {
	srv := start(t, one("h", 1), &emulator.Config{Control: "127.0.0.1:0"})
	call := func(method, path, body string, status int, want string) {
		t.Helper()
		req, err := http.NewRequestWithContext(testContext(t), method, "http://"+srv.ControlAddr()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		got, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != status || !strings.Contains(string(got), want) {
			t.Errorf("%s %s %.200s: got %s %s, %v, want %d %s", method, path, body, res.Status, got, err, status, want)
		}
	}
	call("GET", "/faults", "", 200, "[]")
	call("POST", "/faults", `{"kind": "server-busy", "on": "send", "hub": "h", "partition": "0", "times": 1, "delay": "1ms"}`, 200, `{"id":1}`)
	l := sender(t, session(t, srv), "h")
	event := &amqp.Message{Data: [][]byte{{1}}}
	if err := l.Send(testContext(t), event, nil); condition(err) != "com.microsoft:server-busy" {
		t.Errorf("got %v", err)
	}
	call("GET", "/faults", "", 200, `[{"id":1,"kind":"server-busy","on":"send","hub":"h","partition":"0","times":1,"delay":"1ms","hits":1}]`)
	call("DELETE", "/faults/1", "", 204, "")
	call("DELETE", "/faults/1", "", 404, "no such fault")
	call("DELETE", "/faults/x", "", 404, "no such fault")
	call("POST", "/faults", `{"kind": "drop", "on": "send"}`, 200, `{"id":2}`)
	call("DELETE", "/faults", "", 204, "")
	call("GET", "/faults", "", 200, "[]")
	if err := l.Send(testContext(t), event, nil); err != nil {
		t.Error(err)
	}
	call("POST", "/hubs/trim", `{"hub": "h", "partition": "0", "before": 1}`, 200, "{}")
	if props, err := producer(t, srv, "h").GetPartitionProperties(testContext(t), "0", nil); err != nil || !props.IsEmpty {
		t.Errorf("after a trim: %+v, %v", props, err)
	}
	call("POST", "/hubs/recreate", `{"hub": "h"}`, 200, "{}")
	if n := stored(t, srv); n != 0 {
		t.Errorf("%d events in a new hub", n)
	}
	call("POST", "/links/detach", `{"hub": "none"}`, 200, `{"links":0}`)
	call("POST", "/connections/drop", `{}`, 200, `{"connections":`)
	if err := l.Send(testContext(t), event, nil); err == nil {
		t.Error("sent over a connection that was dropped")
	}

	call("POST", "/faults", `{"kind": "drop"}`, 400, "unknown operation")
	call("POST", "/faults", ``, 400, "JSON")
	call("POST", "/faults", `{}`, 400, "unknown kind")
	call("POST", "/faults", `[]`, 400, "JSON")
	call("POST", "/faults", `{"kind": "drop", "on": "send", "times": -1}`, 400, "must not be negative")
	call("POST", "/faults", `{"kind": "drop", "on": "send", "times": 1e99}`, 400, "JSON")
	call("POST", "/faults", `{"kind": "drop", "on": "send", "partition": "0"}`, 400, "hub")
	call("POST", "/faults", `{"kind": "drop", "on": "attach", "delay": "1s"}`, 400, "can't be delayed")
	call("POST", "/faults", `{"kind": "lose-answer", "on": "receive"}`, 400, "send only")
	call("POST", "/faults", `{"kind": "delay", "on": "send"}`, 400, "needs a delay")
	call("POST", "/faults", `{"kind": "delay", "on": "send", "delay": "-1s"}`, 400, "1h0m0s")
	call("POST", "/faults", `{"kind": "delay", "on": "send", "delay": "2h"}`, 400, "1h0m0s")
	call("POST", "/faults", `{"kind": "drop", "on": "send", "delay": "soon"}`, 400, "duration")
	call("POST", "/faults", `{"kind": "drop", "on": "send", "count": 1}`, 400, "unknown field")
	call("POST", "/faults", `{"kind": "drop", "on": "send"} {}`, 400, "more than one")
	call("POST", "/faults", `kind=drop`, 400, "JSON")
	call("POST", "/faults", `{"kind": "`+strings.Repeat("x", 70_000)+`"}`, 400, "too large")
	call("POST", "/connections/drop", `{"hub": "h"}`, 400, "unknown field")
	call("POST", "/hubs/trim", `{"hub": "none", "partition": "0"}`, 400, "none")
	call("POST", "/hubs/trim", `{"hub": "h", "partition": "1"}`, 400, `no partition \"1\"`)
	call("GET", "/faults", "", 200, "[]")
	call("POST", "/hubs/recreate", `{"hub": "none"}`, 400, "none")
	call("GET", "/connections/drop", ``, 405, "")
	call("GET", "/", ``, 404, "")
}

// The endpoint refuses requests that a browser sends for a web page, and those for
// another host.
func TestControlIsLocal(t *testing.T) {
	srv := start(t, one("h", 1), &emulator.Config{Control: "localhost:0"})
	for name, change := range map[string]func(*http.Request){
		"a page of another origin": func(r *http.Request) { r.Header.Set("Origin", "http://elsewhere.example") },
		"a page led here":          func(r *http.Request) { r.Host = "elsewhere.example" },
		"no host":                  func(r *http.Request) { r.Host = "10.0.0.1:80" },
	} {
		req, err := http.NewRequestWithContext(testContext(t), "POST", "http://"+srv.ControlAddr()+"/connections/drop", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		change(req)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", name, res.Status)
		}
	}
	for _, addr := range []string{"0.0.0.0:0", ":0", "nowhere.invalid:1"} {
		if srv, err := emulator.Start(one("h", 1), &emulator.Config{Control: addr}); err == nil {
			srv.Close()
			t.Errorf("the control endpoint is at %s", addr)
		}
	}
}
