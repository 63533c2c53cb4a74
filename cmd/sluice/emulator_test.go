package main_test

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// The control endpoint of a running emulator has faults happen; without the flag there is none.
func TestEmulatorControl(t *testing.T) {
	t.Parallel()
	p := start(t, "", nil, "emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "flights=1", "--control", "127.0.0.1:0")
	await(t, "the emulator", func() bool { return strings.Count(p.out.String(), "\n") == 2 })
	first, second, _ := strings.Cut(p.out.String(), "\n")
	url, ok := strings.CutPrefix(first, "control ")
	connection, ready := strings.CutPrefix(strings.TrimSpace(second), "ready ")
	if !ok || !ready {
		t.Fatalf("the emulator printed %q", p.out.String())
	}
	res, err := http.Post(url+"/faults", "application/json", strings.NewReader(`{"kind": "server-busy", "on": "send", "times": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	must(t, "", nil, "send", "--to", connection, "--hub", "flights", writeLines(t, []string{"{}"}))
	if res, err = http.Get(url + "/faults"); err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(text), `"hits":1`) {
		t.Errorf("got %s, %v", text, err)
	}
	p.signal(os.Interrupt)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
}

// A key that may only listen doesn't send, and one that may only send does.
func TestEmulatorRights(t *testing.T) {
	t.Parallel()
	p := start(t, "", nil, "emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "flights=1", "--max-message-bytes", "10000",
		"--key", "reader=cmVhZGVy:listen", "--key", "writer=d3JpdGVy:send")
	reader := connectionOf(t, p)
	writer := strings.NewReplacer("=reader;", "=writer;", "cmVhZGVy", "d3JpdGVy").Replace(reader)
	lines := writeLines(t, []string{"{}"})
	code, _, out := invoke(t, "", nil, "send", "--to", reader, "--hub", "flights", lines)
	if code == 0 || !strings.Contains(out, "'Send' claim(s) are required") {
		t.Errorf("sent with the right to listen: exit code %d, %s", code, out)
	}
	must(t, "", nil, "send", "--to", writer, "--hub", "flights", lines)
	code, _, out = invoke(t, "", nil, "send", "--to", writer, "--hub", "flights", writeLines(t, []string{`{"x": "` + strings.Repeat("x", 10_000) + `"}`}))
	if code == 0 || !strings.Contains(out, "too large") {
		t.Errorf("sent more than the limit: exit code %d, %s", code, out)
	}
}

// What is wrong with a key is told without the key, wherever in the flag it is.
func TestEmulatorKeyMistakes(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{
		{"app=" + secret + ":" + secret}, {"app=send:" + secret}, {"app=" + secret + ":"}, {"app=" + secret + ":listen,"}, {"app=:listen"},
		{"app=" + secret, "app=bW9yZQ=="},
	} {
		args := []string{"emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "flights=1"}
		for _, k := range keys {
			args = append(args, "--key", k)
		}
		code, out, err := invoke(t, "", nil, args...)
		if code != 2 || !strings.Contains(err, "--key app: ") && !strings.Contains(err, "--key app is") || strings.Contains(out+err, secret) {
			t.Errorf("%q: exit code %d: %s%s", keys, code, out, err)
		}
	}
}
