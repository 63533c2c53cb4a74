package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/proof/asazure"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// emulatorKey is the key that Microsoft publishes for its emulator.
const emulatorKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

var accountLine = regexp.MustCompile(`(?m)^account   (http://\S+)`)

// containerOf connects to the account of a demo that is running.
func containerOf(t testing.TB, p *process) *azcosmos.ContainerClient {
	t.Helper()
	await(t, "the account", func() bool { return accountLine.MatchString(p.out.String()) })
	endpoint := accountLine.FindStringSubmatch(p.out.String())[1]
	client, err := azcosmos.NewClientFromConnectionString("AccountEndpoint="+endpoint+";AccountKey="+emulatorKey+";", &azcosmos.ClientOptions{
		ClientOptions: policy.ClientOptions{Retry: policy.RetryOptions{MaxRetries: 1000}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewContainer("db", "docs")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// idsIn reads all ids.
func idsIn(t testing.TB, c *azcosmos.ContainerClient) map[string]int {
	t.Helper()
	ids := map[string]int{}
	pages := c.NewQueryItemsPager("SELECT c.id FROM c", azcosmos.NewPartitionKey(), nil)
	for pages.More() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			var d struct{ ID string }
			decode(t, string(item), &d)
			ids[d.ID]++
		}
	}
	return ids
}

func TestDemoCosmosOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "the demo's data")
	// 62,800 RU at 20,000 a second take 3 s; the account lets the first second's pass at once.
	began := time.Now()
	out := endDemo(t, "", "demo", "cosmos", "--events", "10000", "--ru", "20000", "--data", dir)
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("62,800 RU at 20,000 RU/s took %v", took)
	}
	if !strings.Contains(out, "10,000 = 10,000, each exactly once") || !strings.Contains(out, "           0  dead letters") || !strings.Contains(out, "62,800 RU in ") {
		t.Errorf("it says\n%s", out)
	}
	// Again: the account begins empty and is filled from the hub, which has them already.
	out = must(t, "", nil, "demo", "cosmos", "--once", "--events", "10", "--ru", "1000000", "--data", dir)
	if !strings.Contains(out, "10,000 = 10,000, each exactly once") {
		t.Errorf("the second time it says\n%s", out)
	}
}

func TestDemoCosmosCanBeLookedAt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "", nil, "demo", "cosmos", "--events", "5000", "--data", dir)
	c := containerOf(t, p)
	await(t, "more documents than were asked for at once", func() bool { return len(idsIn(t, c)) > 5004 })
	for id, n := range idsIn(t, c) {
		var i int
		if _, err := fmt.Sscanf(id, "doc-%d", &i); err != nil || i >= 6000 || n != 1 {
			t.Fatalf("document %q is there %d times", id, n)
		}
	}
	list := checkpoints(t, []string{"COSMOS_KEY=" + emulatorKey}, filepath.Join(dir, "cosmos.yaml"))
	if len(list) != 4 || list[0].Owner != "demo" {
		t.Errorf("while it runs the checkpoints are %+v", list)
	}
	p.signal(os.Interrupt)
	if code := p.wait(); code != 0 || !strings.Contains(p.out.String(), "documents in the container, each read back") {
		t.Errorf("exit code %d:\n%s%s", code, p.out.String(), p.err.String())
	}
}

func TestDemoCosmosKilledAtAnyMomentGoesOn(t *testing.T) {
	t.Parallel()
	const n = 20_000
	r := need.Rand(t)
	dir := t.TempDir()
	args := []string{"demo", "cosmos", "--events", fmt.Sprint(n), "--ru", "100000", "--data", dir}
	for range 8 {
		p := start(t, "", nil, args...)
		moment := time.NewTimer(time.Duration(r.Int64N(int64(1500 * time.Millisecond))))
		select {
		case <-moment.C:
			p.kill()
		case <-p.done:
			t.Fatal("it has ended by itself")
		}
	}
	if out := endDemo(t, "", args...); !strings.Contains(out, ", each exactly once: every document was compared") {
		t.Errorf("it says\n%s", out)
	}
	srv, err := emulator.Start([]emulator.Hub{{Name: "docs", Partitions: 4}}, &emulator.Config{Dir: filepath.Join(dir, "hub"), AsAzure: asazure.Kind()})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	source, err := eventhub.New(srv.ConnectionString(), "docs", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close(context.Background())
	sent := documents(t, &hub{t, source, []string{"0", "1", "2", "3"}}, "doc-", 70_000, 1000)
	// Document i is in partition i % 4. A kill stops the four at different
	// lengths; each holds its documents from the first on, without a gap.
	var length [4]int64
	for i, times := range sent {
		if times != 1 {
			need.Verdict(t)
			t.Errorf("the hub holds document %d %d times", i, times)
		}
		length[i%4]++
	}
	for p := range length {
		if length[p] < n/4 {
			t.Errorf("partition %d holds %d documents", p, length[p])
		}
		for k := range length[p] {
			if i := k*4 + int64(p); sent[i] == 0 {
				need.Verdict(t)
				t.Fatalf("partition %d holds %d documents, but not document %d", p, length[p], i)
			}
		}
	}
}

func TestDemoCosmosInterruptedSaysSo(t *testing.T) {
	t.Parallel()
	p := start(t, "", nil, "demo", "cosmos", "--once", "--events", "100000", "--ru", "1000", "--data", t.TempDir())
	c := containerOf(t, p)
	await(t, "some documents", func() bool { return len(idsIn(t, c)) > 10 })
	p.signal(os.Interrupt)
	if code := p.wait(); code != 1 || !strings.Contains(p.err.String(), "sluice: interrupted: start it again to continue\n") {
		t.Errorf("exit code %d:\n%s%s", code, p.out.String(), p.err.String())
	}
}

// TestDemoCosmosNoticesWhatIsNotExact meddles with the container while it is
// being filled.
func TestDemoCosmosNoticesWhatIsNotExact(t *testing.T) {
	t.Parallel()
	type meddling struct {
		do   func(t *testing.T, c *azcosmos.ContainerClient, key azcosmos.PartitionKey, doc map[string]string) error
		want string
	}
	write := func(t *testing.T, c *azcosmos.ContainerClient, doc map[string]string) error {
		body, err := json.Marshal(doc)
		if err != nil {
			return err
		}
		_, err = c.UpsertItem(t.Context(), azcosmos.NewPartitionKeyString(doc["key"]), body, nil)
		return err
	}
	for name, m := range map[string]meddling{
		"missing": {func(t *testing.T, c *azcosmos.ContainerClient, key azcosmos.PartitionKey, doc map[string]string) error {
			_, err := c.DeleteItem(t.Context(), key, doc["id"], nil)
			return err
		}, "1 document is not written"},
		"changed": {func(t *testing.T, c *azcosmos.ContainerClient, _ azcosmos.PartitionKey, doc map[string]string) error {
			doc["payload"] = "other"
			return write(t, c, doc)
		}, " is not what was sent"},
		"twice": {func(t *testing.T, c *azcosmos.ContainerClient, _ azcosmos.PartitionKey, doc map[string]string) error {
			doc["key"] = "elsewhere"
			return write(t, c, doc)
		}, "has more than one effect"},
		"never sent": {func(t *testing.T, c *azcosmos.ContainerClient, _ azcosmos.PartitionKey, doc map[string]string) error {
			doc["id"] = "doc-1"
			return write(t, c, doc)
		}, `document "doc-1", which was never sent`},
		"of no event": {func(t *testing.T, c *azcosmos.ContainerClient, _ azcosmos.PartitionKey, doc map[string]string) error {
			doc["id"] = "doc-0000999999"
			return write(t, c, doc)
		}, "which the hub does not have"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, "", nil, "demo", "cosmos", "--once", "--events", "2000", "--ru", "800", "--data", t.TempDir())
			c := containerOf(t, p)
			var ids map[string]int
			await(t, "a document", func() bool { ids = idsIn(t, c); return len(ids) > 0 })
			for id := range ids {
				var i int
				if _, err := fmt.Sscanf(id, "doc-%d", &i); err != nil {
					t.Fatal(err)
				}
				key := azcosmos.NewPartitionKeyString(fmt.Sprintf("key-%d", i))
				got, err := c.ReadItem(t.Context(), key, id, nil)
				if err != nil {
					t.Fatal(err)
				}
				var all map[string]any
				decode(t, string(got.Value), &all)
				doc := map[string]string{}
				for _, name := range []string{"id", "key", "payload"} {
					doc[name], _ = all[name].(string)
				}
				if err := m.do(t, c, key, doc); err != nil {
					t.Fatal(err)
				}
				break
			}
			if code := p.wait(); code != 1 || !strings.Contains(p.err.String(), m.want) || strings.Contains(p.out.String(), "each exactly once") {
				t.Errorf("exit code %d:\n%s%s", code, p.out.String(), p.err.String())
			}
		})
	}
}

func TestDemoCosmosMisused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	for args, want := range map[string]string{
		"--events 0":          "--events 0: must be 1 to",
		"--ru 399":            "--ru 399: must be 400",
		"--ru 10000001":       "--ru 10000001: must be 400",
		"--ru x":              "--ru",
		"x":                   "sluice demo cosmos: unknown command",
		"--log-format binary": "write text or json",
	} {
		code, out, errs := invoke(t, "", nil, append([]string{"demo", "cosmos", "--data", dir}, strings.Fields(args)...)...)
		if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a misused command has made a directory")
	}
}
