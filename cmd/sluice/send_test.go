package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestSendFormats(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		files []string
		want  []string
	}{
		"lines":  {[]string{write("a.ndjson", "{\"a\":1}\n{\"a\": 2}\n")}, []string{`{"a":1}`, `{"a": 2}`}},
		"array":  {[]string{write("a.json", `[{"a":1},{"a":"]"}]`)}, []string{`{"a":1}`, `{"a":"]"}`}},
		"table":  {[]string{write("a.csv", "a,b\n1,x y\n-2.50,\n007,\"q\"\"\"\n")}, []string{`{"a":1,"b":"x y"}`, `{"a":-2.50,"b":null}`, `{"a":"007","b":"q\""}`}},
		"two":    {[]string{write("b.ndjson", "{\"a\":1}\n"), write("b.csv", "a\n2\n")}, []string{`{"a":1}`, `{"a":2}`}},
		"empty":  {[]string{write("c.ndjson", "")}, nil},
		"header": {[]string{write("c.csv", "a,b\n")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, connection := serve(t, 1)
			out := must(t, "", nil, append([]string{"send", "--to", connection, "--hub", "flights"}, c.files...)...)
			if !strings.HasPrefix(out, fmt.Sprintf("%d records acknowledged in ", len(c.want))) {
				t.Errorf("it says %s", out)
			}
			if got := lookAt(t, connection).bodies(); !slices.Equal(got, c.want) {
				t.Errorf("sent %q, want %q", got, c.want)
			}
		})
	}
}

func TestSendFromStandardInput(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	h := lookAt(t, connection)
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	env := []string{"ELSEWHERE=" + connection + ";EntityPath=flights"}
	p := startCommand(t, "", env, in, exec.Command(binary, "send", "--to", "env:ELSEWHERE", "--key-field", "a"))
	in.Close()
	for i := range 3 {
		// Each arrives though the next one is not written yet.
		fmt.Fprintf(out, "{\"a\":%d}\n", i)
		await(t, "the record", func() bool { return len(h.events()) == i+1 })
	}
	out.Close()
	if code := p.wait(); code != 0 || !strings.HasPrefix(p.out.String(), "3 records acknowledged") {
		t.Errorf("exit code %d: %s", code, p.out.String())
	}
}

// TestSendSpreads gives each partition its share of records without keys.
func TestSendSpreads(t *testing.T) {
	t.Parallel()
	srv, connection := serve(t, 4)
	must(t, "", nil, "send", "--to", connection, "--hub", "flights", writeLines(t, slices.Repeat([]string{"{}"}, 20)))
	for _, e := range lookAt(t, connection).events() {
		if e.sequence >= 5 {
			t.Errorf("event %d of partition %s", e.sequence, e.partition)
		}
	}
	if a := srv.IncomingStats("flights"); a.Messages < 4 {
		t.Errorf("%d batches", a.Messages)
	}
}

func TestSendSaysHowMuchWasAcknowledgedAlsoOnFailure(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	lines := make([]string, 50)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"a":%d}`, i)
	}
	send := func(path string) (int, string, string) {
		return invoke(t, "", nil, "send", "--to", connection, "--hub", "flights", "--key-field", "a", path)
	}
	code, out, errs := send(writeLines(t, append(slices.Clone(lines), `{"b":1}`, `{"a":1}`)))
	if code != 1 || !strings.HasPrefix(out, "50 records acknowledged") || !strings.Contains(errs, ".ndjson: line 51: key field a is missing") {
		t.Errorf("a record without its key: exit code %d: %s%s", code, out, errs)
	}
	large := fmt.Sprintf(`{"a":1,"b":%q}`, strings.Repeat("x", 2<<20))
	code, out, errs = send(writeLines(t, append([]string{lines[0], large}, lines[1:]...)))
	if code != 1 || !strings.HasPrefix(out, "50 records acknowledged") || !strings.Contains(errs, ".ndjson: line 2: too large (2097166 bytes)") ||
		!strings.Contains(errs, "sluice: 1 record was too large for the hub: all others were sent") {
		t.Errorf("a large record: exit code %d: %s%s", code, out, errs)
	}
	if n := len(lookAt(t, connection).events()); n != 100 {
		t.Errorf("%d events", n)
	}
}

func TestSendInterrupted(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	h := lookAt(t, connection)
	p := start(t, "", nil, "send", "--to", connection, "--hub", "flights", "--rate", "1000", writeLines(t, flights20k(t)))
	await(t, "some records", func() bool { return len(h.events()) > 500 })
	p.signal(os.Interrupt)
	code := p.wait()
	var n int
	if _, err := fmt.Sscanf(p.out.String(), "%d records acknowledged", &n); err != nil || code != 1 || !strings.Contains(p.err.String(), "interrupted") {
		t.Fatalf("exit code %d: %s%s", code, p.out.String(), p.err.String())
	}
	if there := len(h.events()); there < n || n < 500 {
		t.Errorf("%d acknowledged, %d are there", n, there)
	}
}

func TestEmulatorServes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert := filepath.Join(dir, "cert.pem")
	args := []string{"emulator", "serve", "--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0", "--tls-cert-out", cert,
		"--data", filepath.Join(dir, "hub"), "--hub", "flights=3", "--hub", "other=1", "--key", "app=" + secret}
	for round := range 3 {
		p := start(t, "", nil, args...)
		connection := connectionOf(t, p)
		if !strings.Contains(connection, "SharedAccessKeyName=app;SharedAccessKey="+secret) {
			t.Errorf("ready with %s", connection)
		}
		h := lookAt(t, connection)
		if len(h.ids) != 3 {
			t.Errorf("round %d: %d partitions", round, len(h.ids))
		}
		await(t, fmt.Sprintf("the events of round %d", round), func() bool { return len(h.events()) == round*10 })
		must(t, "", nil, "send", "--to", connection, "--hub", "flights", writeLines(t, slices.Repeat([]string{"{}"}, 10)))
		if pem, err := os.ReadFile(cert); err != nil || !strings.Contains(string(pem), "BEGIN CERTIFICATE") {
			t.Errorf("certificate: %v", err)
		}
		switch round {
		case 0:
			p.kill() // what was acknowledged is there again
		case 1:
			p.signal(os.Interrupt)
		case 2:
			p.signal(syscall.SIGTERM)
		}
		if code := p.wait(); round > 0 && code != 0 {
			t.Errorf("round %d: exit code %d: %s", round, code, p.err.String())
		}
		if strings.Contains(p.err.String(), secret) {
			t.Errorf("logs the key: %s", p.err.String())
		}
	}
}
