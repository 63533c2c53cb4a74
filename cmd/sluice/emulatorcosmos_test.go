package main_test

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// The Cosmos account joins the hub emulator: a second line has what clients need, and its control
// endpoint splits partitions.
func TestEmulatorCosmos(t *testing.T) {
	t.Parallel()
	p := start(t, "", nil, "emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "docs=1", "--cosmos", "127.0.0.1:0", "--cosmos-container", "db/docs:/key",
		"--cosmos-ru", "50000", "--cosmos-control", "127.0.0.1:0", "--cosmos-key", "c2VjcmV0")
	await(t, "the emulator", func() bool { return strings.Count(p.out.String(), "\n") == 3 })
	lines := strings.Split(p.out.String(), "\n")
	control, ok := strings.CutPrefix(lines[0], "cosmos-control ")
	connection, ready := strings.CutPrefix(lines[2], "ready ")
	if !ok || !ready || !strings.HasPrefix(lines[1], "ready Endpoint=sb://") {
		t.Fatalf("the emulator printed %q", p.out.String())
	}
	client, err := azcosmos.NewClientFromConnectionString(connection, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewContainer("db", "docs")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.UpsertItem(t.Context(), azcosmos.NewPartitionKeyString("a"), []byte(`{"id": "1", "key": "a"}`), nil); err != nil {
		t.Error(err)
	}
	if ranges, err := c.ReadFeedRanges(t.Context(), nil); err != nil || len(ranges) != 5 {
		t.Errorf("%d ranges; %v", len(ranges), err)
	}
	res, err := http.Post(control+"/split", "application/json", strings.NewReader(`{"database": "db", "container": "docs"}`))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res, err = http.Get(control + "/stats/db/docs"); err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(text), `"documents":1,`) || strings.Count(string(text), `"min"`) != 6 {
		t.Errorf("after the split: %s, %v", text, err)
	}
	p.signal(os.Interrupt)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
}

// An error of the account's flags is one line.
func TestEmulatorCosmosMistakes(t *testing.T) {
	t.Parallel()
	serve := []string{"emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "docs=1"}
	at := []string{"--cosmos", "127.0.0.1:0"}
	for want, args := range map[string][]string{
		"--cosmos ADDRESS":             {"--cosmos-container", "db/docs:/key"},
		"write DATABASE/NAME:/KEY":     append(at, "--cosmos-container", "docs:/key"),
		"begins with /":                append(at, "--cosmos-container", "db/docs:key"),
		"at most three paths":          append(at, "--cosmos-container", "db/docs:/a,/b,/c,/d"),
		"--cosmos-ru -1":               append(at, "--cosmos-ru", "-1"),
		"--cosmos-partitions 5000":     append(at, "--cosmos-partitions", "5000"),
		"--cosmos-key: not base64":     append(at, "--cosmos-key", secret+"%"),
		"--cosmos-ru x: write a whole": append(at, "--cosmos-ru", "x"),
	} {
		code, out, err := invoke(t, "", nil, append(serve[:len(serve):len(serve)], args...)...)
		if code != 2 || !strings.Contains(err, want) || strings.Count(err, "\n") != 1 || out != "" || strings.Contains(err, secret) {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, err)
		}
	}
}
