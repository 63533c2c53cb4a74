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

// An error about a key does not contain the key, wherever in the flag it is.
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

// The error of what the emulator cannot do is one line that names it.
func TestEmulatorMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "--hub NAME=PARTITIONS"},
		{[]string{"--hub", "flights"}, 2, "--hub flights: write NAME=PARTITIONS"},
		{[]string{"--hub", "flights=many"}, 2, "--hub flights=many: write NAME=PARTITIONS"},
		{[]string{"--hub", "flights=0"}, 1, "flights"},
		{[]string{"--hub", "flights=1", "--hub", "Flights=2"}, 1, "Flights"},
		{[]string{"--hub", "flights=1", "--control", "0.0.0.0:0"}, 1, "must be an address on loopback"},
		{[]string{"--hub", "flights=1", "--max-message-bytes", "2000000"}, 1, "at most 1048576"},
		{[]string{"--hub", "flights=1", "--retention", "-1h"}, 1, "-1h"},
		{[]string{"--hub", "flights=1", "--retention", "1 day"}, 2, "--retention"},
		{[]string{"--hub", "flights=1", "--retention-bytes", "10"}, 1, "1048576"},
		{[]string{"--hub", "flights=1", "--listen", "-"}, 1, "neither a plain nor a TLS address"},
		{[]string{"--hub", "flights=1", "--tls-cert-out", "cert.pem"}, 1, "no TLS address"},
	} {
		code, out, err := invoke(t, t.TempDir(), nil, append([]string{"emulator", "serve", "--listen", "127.0.0.1:0"}, c.args...)...)
		if code != c.code || out != "" || !strings.Contains(err, c.want) || strings.Count(strings.TrimSpace(err), "\n") > 0 {
			t.Errorf("%q: exit code %d, want %d, %q: %s%s", c.args, code, c.code, c.want, out, err)
		}
	}
}

// Events older than the retention go, and new ones come after them.
func TestEmulatorRetention(t *testing.T) {
	t.Parallel()
	p := start(t, "", nil, "emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "flights=1", "--retention", "1s", "--data", t.TempDir())
	connection := connectionOf(t, p)
	h := lookAt(t, connection)
	first := func() int64 {
		b, err := h.source.Bounds(t.Context(), "0")
		if err != nil {
			t.Fatal(err)
		}
		return b.First
	}
	for end := int64(3); end <= 6; end += 3 {
		must(t, "", nil, "send", "--to", connection, "--hub", "flights", writeLines(t, []string{"{}", "{}", "{}"}))
		await(t, "retention", func() bool { return first() == end })
	}
}
