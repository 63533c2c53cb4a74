package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// documents counts the made-up documents that a hub holds, by number, and
// checks that each says what its number demands.
func documents(t testing.TB, h *hub, prefix string, keys int64, size int) map[int64]int {
	t.Helper()
	times := map[int64]int{}
	for _, body := range h.bodies() {
		var d struct{ ID, Key, Payload string }
		decode(t, body, &d)
		var n int64
		if _, err := fmt.Sscanf(d.ID, prefix+"%d", &n); err != nil {
			t.Fatalf("document with id %q", d.ID)
		}
		if d.ID != fmt.Sprintf("%s%010d", prefix, n) || d.Key != fmt.Sprintf("key-%d", n%keys) || len(body) != size {
			t.Fatalf("document %d is %s", n, body)
		}
		times[n]++
	}
	return times
}

func TestSendGenerated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args   []string
		count  int
		prefix string
		keys   int64
		size   int
	}{
		{[]string{"--generate", "20001"}, 20_001, "doc-", 70_000, 1000},
		{[]string{"--generate", "1"}, 1, "doc-", 70_000, 1000},
		{[]string{"--generate", "5000", "--replicas", "3", "--batch", "10", "--key-count", "11", "--size", "333", "--id-prefix", "a:"}, 5000, "a:", 11, 333},
		{[]string{"--generate", "500", "--rate", "2000"}, 500, "doc-", 70_000, 1000},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			_, connection := serve(t, 4)
			out := must(t, "", []string{"EVENTHUB_CONNECTION_STRING=" + connection}, append([]string{"send", "--hub", "flights"}, c.args...)...)
			noun := "records"
			if c.count == 1 {
				noun = "record"
			}
			if !strings.HasPrefix(out, fmt.Sprintf("%d %s acknowledged in ", c.count, noun)) || strings.Count(out, "\n") != 1 {
				t.Errorf("it says %s", out)
			}
			got := documents(t, lookAt(t, connection), c.prefix, c.keys, c.size)
			for n := range int64(c.count) {
				if got[n] != 1 {
					t.Fatalf("document %d is there %d times", n, got[n])
				}
			}
			if len(got) != c.count {
				t.Errorf("%d documents", len(got))
			}
		})
	}
}

func TestSendGeneratedInterrupted(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	h := lookAt(t, connection)
	p := start(t, "", nil, "send", "--to", connection, "--hub", "flights", "--generate", "100000000", "--rate", "5000", "--replicas", "3")
	await(t, "some documents", func() bool { return len(h.events()) > 500 })
	p.signal(os.Interrupt)
	code := p.wait()
	var n int
	if _, err := fmt.Sscanf(p.out.String(), "%d records acknowledged", &n); err != nil || code != 1 || !strings.HasSuffix(p.err.String(), "sluice: interrupted\n") {
		t.Fatalf("exit code %d: %s%s", code, p.out.String(), p.err.String())
	}
	if there := len(h.events()); there < n || n < 500 {
		t.Errorf("%d acknowledged, %d are there", n, there)
	}
}

// TestSendGeneratedToAHubThatIsKilled: what was acknowledged is there, and the
// sending ends by itself, telling how much that was.
func TestSendGeneratedToAHubThatIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serveArgs := []string{"emulator", "serve", "--listen", "127.0.0.1:0", "--data", dir, "--hub", "flights=4"}
	hubProcess := start(t, "", nil, serveArgs...)
	connection := connectionOf(t, hubProcess)
	h := lookAt(t, connection)
	p := start(t, "", nil, "send", "--to", connection, "--hub", "flights", "--generate", "100000000", "--replicas", "2", "--batch", "50")
	await(t, "some documents", func() bool { return len(h.events()) > 2000 })
	hubProcess.kill()
	code := p.wait()
	var n int
	if _, err := fmt.Sscanf(p.out.String(), "%d records acknowledged", &n); err != nil || code != 1 || n == 0 {
		t.Fatalf("exit code %d: %s%s", code, p.out.String(), p.err.String())
	}
	// It was sending to a partition, or about to begin a batch for one.
	if errs := p.err.String(); !strings.Contains(errs, "sluice: hub flights: sending stopped") || !strings.Contains(errs, " partition ") {
		t.Errorf("it says %s", errs)
	}
	again := start(t, "", nil, serveArgs...)
	defer again.kill()
	there := documents(t, lookAt(t, connectionOf(t, again)), "doc-", 70_000, 1000)
	if len(there) < n {
		t.Errorf("%d acknowledged, %d documents are there", n, len(there))
	}
}

func TestSendGeneratedKeepsOnThroughAnOutage(t *testing.T) {
	t.Parallel()
	const count = 40_000
	srv, connection := serve(t, 2)
	h := lookAt(t, connection)
	p := start(t, "", nil, "send", "--to", connection, "--hub", "flights", "--generate", fmt.Sprint(count), "--rate", "20000")
	for i := range 3 {
		await(t, "some more documents", func() bool { return len(h.events()) > (i+1)*8000 })
		srv.DropConnections()
	}
	if code := p.wait(); code != 0 || !strings.HasPrefix(p.out.String(), fmt.Sprintf("%d records acknowledged", count)) {
		t.Fatalf("exit code %d: %s%s", code, p.out.String(), p.err.String())
	}
	if got := documents(t, lookAt(t, connection), "doc-", 70_000, 1000); len(got) != count {
		t.Errorf("%d documents of %d", len(got), count)
	}
}

func TestSendGeneratedMisused(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--generate 0":                         "--generate 0: must be 1 to 100000000000",
		"--generate -5":                        "--generate -5: must be 1 to",
		"--generate x":                         "generate",
		"--generate 5 a.json":                  "--generate and files exclude each other",
		"--generate 5 --key-field key":         "--key-field: generated documents have a key already",
		"--generate 5 --session-field key":     "--session-field: generated documents have a key, but no session",
		"--generate 5 --replicas 0":            "--replicas 0: must be 1 to 256",
		"--generate 5 --replicas 257":          "--replicas 257: must be 1 to 256",
		"--generate 5 --batch 0":               "--batch 0: must be positive",
		"--generate 5 --key-count 0":           "--key-count 0: must be positive",
		"--generate 5 --key-count 2000000":     "2000000 keys: must be 1 to 1000000",
		"--generate 5 --size 10":               "documents of 10 bytes: must be ",
		"--generate 5 --size 0":                "--size 0: must be positive",
		"--generate 5 --id-prefix a/b":         `id prefix "a/b"`,
		"--generate 5 --rate -1":               "--rate -1: must be positive",
		"--replicas 3 a.json":                  "--replicas needs --generate",
		"--key-count 3":                        "--key-count needs --generate",
		"--generate 9223372036854775808":       "generate",
		"--generate 5 --id-prefix=":            "--id-prefix: must not be empty",
		"--generate 100000000001 --replicas 1": "--generate 100000000001: must be 1 to 100000000000",
	} {
		code, out, errs := invoke(t, "", []string{"EVENTHUB_CONNECTION_STRING=Endpoint=sb://x"}, append([]string{"send", "--hub", "h"}, strings.Fields(args)...)...)
		if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
}

func TestHelpTellsTheSchemeOfTheDocuments(t *testing.T) {
	t.Parallel()
	h := must(t, "", nil, "send", "--help")
	var d map[string]string
	_, example, _ := strings.Cut(h, "Document 42 is ")
	example, _, _ = strings.Cut(example, ":\n")
	if err := json.Unmarshal([]byte(example), &d); err != nil {
		t.Fatalf("%v in %s", err, h)
	}
	_, connection := serve(t, 1)
	must(t, "", nil, "send", "--to", connection, "--hub", "flights", "--generate", "43")
	for _, body := range lookAt(t, connection).bodies() {
		var got map[string]string
		if decode(t, body, &got); got["id"] == d["id"] && got["key"] == d["key"] {
			return
		}
	}
	t.Errorf("no document is like %v", d)
}
