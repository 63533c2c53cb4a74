package main_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	official "github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"github.com/sluice-go/sluice/internal/proof/azurite"
)

// storage is a container on a server of its own.
func storage(t *testing.T, name string) (server *azurite.Server, c *container.Client) {
	t.Helper()
	server = azurite.New(t, nil)
	c, err := container.NewClientFromConnectionString(server.ConnectionString(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return server, c
}

// processFirst runs the official event processor over the hub, which stores a
// checkpoint after the first n events of each partition. It returns with the
// processor still at work; stop ends it.
func processFirst(t *testing.T, connection string, store *container.Client, partitions, n int) (stop func()) {
	t.Helper()
	client, err := azeventhubs.NewConsumerClientFromConnectionString(connection, "flights", azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := official.NewBlobStore(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	earliest := true
	processor, err := azeventhubs.NewProcessor(client, blobs, &azeventhubs.ProcessorOptions{
		LoadBalancingStrategy: azeventhubs.ProcessorStrategyGreedy, UpdateInterval: 100 * time.Millisecond,
		StartPositions: azeventhubs.StartPositions{Default: azeventhubs.StartPosition{Earliest: &earliest}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- processor.Run(ctx) }()
	stop = func() {
		cancel()
		<-over
		_ = client.Close(context.Background())
	}
	for range partitions {
		p := processor.NextPartitionClient(ctx)
		events, err := p.ReceiveEvents(ctx, n, nil)
		if err == nil {
			err = p.UpdateCheckpoint(ctx, events[n-1], nil)
		}
		if err != nil {
			stop()
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close(context.Background()) })
	}
	return stop
}

func TestCheckpointsAreImported(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		_, connection := serve(t, 2)
		server, store := storage(t, "checkpoints")
		env := environment(connection, url, "AZURE_STORAGE_CONNECTION_STRING="+server.ConnectionString())
		config := quick(t, url)
		db := openDatabase(t, url)
		must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:200]))
		take := func(more ...string) (int, string, string) {
			return invoke(t, "", env, append([]string{"checkpoints", "import", "--from-blob", "checkpoints", "--config", config}, more...)...)
		}

		if code, _, errs := take(); code != 1 || !strings.Contains(errs, "has no checkpoints of ") || strings.Count(errs, "\n") != 1 {
			t.Errorf("of an empty container: exit code %d, %s", code, errs)
		}
		stop := processFirst(t, connection, store, 2, 60)
		if code, _, errs := take(); code != 1 || strings.Count(errs, "is still read by ") != 2 {
			t.Errorf("while the other processor is at work: exit code %d, %s", code, errs)
		}
		stop()

		// It does not always manage to give its partitions back; then they
		// are its own for a minute.
		var code int
		var out, errs string
		await(t, "the other processor to have let go", func() bool {
			code, out, errs = take("--dry-run")
			return !strings.Contains(errs, "is still read by ")
		})
		if code != 0 || !strings.Contains(out, "2 checkpoints would be set") || !strings.Contains(out, "/checkpoint/1") {
			t.Errorf("dry run: exit code %d, %s%s", code, out, errs)
		}
		if c := checkpoints(t, env, config); c[0].Position != nil {
			t.Errorf("a dry run has set %+v", c[0])
		}
		if code, out, errs = take(); code != 0 || !strings.HasSuffix(out, "2 checkpoints set\n") {
			t.Fatalf("exit code %d, %s%s", code, out, errs)
		}
		for _, c := range checkpoints(t, env, config) {
			if *c.Position != 59 || *c.Lag != 40 {
				t.Errorf("partition %s is at %d, %d to go; want 59, 40", c.Partition, *c.Position, *c.Lag)
			}
		}
		must(t, "", env, "run", config, "--until-caught-up")
		if n, low := count(t, db, countRows), count(t, db, countRows+" WHERE sequence_number < 60"); n != 80 || low != 0 {
			t.Errorf("%d rows, %d of events that were done before; want 80, 0", n, low)
		}

		if code, _, errs := take(); code != 1 || strings.Count(errs, "has a checkpoint already, at 99") != 2 {
			t.Errorf("a second time: exit code %d, %s", code, errs)
		}
		var moved []struct {
			Partition, Blob, Offset string
			From, Sequence          *int64
			To, Epoch               int64
		}
		signed, err := store.GetSASURL(sas.ContainerPermissions{Read: true, List: true}, time.Now().Add(time.Hour), nil)
		if err != nil {
			t.Fatal(err)
		}
		code, out, errs = invoke(t, "", environment(connection, url), "checkpoints", "import", "--from-blob", signed, "--config", config, "--force", "--json")
		if code != 0 {
			t.Fatalf("with a signature, by force: exit code %d, %s", code, errs)
		}
		decode(t, out, &moved)
		if m := moved[1]; len(moved) != 2 || m.Partition != "1" || *m.From != 99 || m.To != 59 || *m.Sequence != 59 || m.Offset == "" || m.Epoch == 0 {
			t.Errorf("moved %+v", moved)
		}
	})
}

// The JSON of EventProcessorHost and of Functions, one beside a checkpoint of
// the current kind, which counts.
func TestOlderCheckpointsAreImported(t *testing.T) {
	t.Parallel()
	url := databases["sqlite"](t)
	_, connection := serve(t, 4)
	server, store := storage(t, "azure-webjobs-eventhub")
	env := environment(connection, url, "AZURE_STORAGE_CONNECTION_STRING="+server.ConnectionString())
	config := quick(t, url)
	must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:200]))
	const host = "127.0.0.1"
	put := func(name, content string, metadata map[string]*string) {
		t.Helper()
		_, err := store.NewBlockBlobClient("eh/"+name).Upload(t.Context(), streaming.NopCloser(bytes.NewReader([]byte(content))), &blockblob.UploadOptions{Metadata: metadata})
		if err != nil {
			t.Fatal(err)
		}
	}
	lower, one := strings.ToLower(host+"/flights/$Default/"), "11"
	put(lower+"0", `{"Offset":"4000","SequenceNumber":7,"PartitionId":"0","Owner":"","Token":"","Epoch":3}`, nil)
	put("$Default/1", `{"partitionId":"1","owner":"","token":"","epoch":1528209623048,"sequenceNumber":9,"offset":"4100"}`, nil)
	put("$Default/0", `{"Offset":"1","SequenceNumber":1,"PartitionId":"0"}`, nil)
	put("$Default/2", `{"Offset":"","SequenceNumber":0,"PartitionId":"2","Owner":"h"}`, nil)
	put(lower+"3", `{"Offset":"1","SequenceNumber":1,"PartitionId":"3"}`, nil)
	put(lower+"checkpoint/3", "", map[string]*string{"sequencenumber": &one, "offset": &one})
	put("other.servicebus.windows.net/flights/$default/checkpoint/2", "", map[string]*string{"sequencenumber": &one})

	take := func(more ...string) (int, string, string) {
		return invoke(t, "", env, append([]string{"checkpoints", "import", "--from-blob", store.URL(), "--prefix", "eh/", "--config", config}, more...)...)
	}
	owned, err := lease.NewBlobClient(store.NewBlobClient("eh/$Default/1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := owned.AcquireLease(t.Context(), -1, nil); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := take(); code != 1 || !strings.Contains(errs, "partition 1 is still read by an EventProcessorHost") {
		t.Errorf("while EventProcessorHost is at work: exit code %d, %s", code, errs)
	}
	if _, err := owned.ReleaseLease(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	code, out, errs := take()
	if code != 0 || !strings.Contains(out, "3 checkpoints set") || !strings.Contains(out, "no checkpoint was found for partition 2:") {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	var got []string
	for _, c := range checkpoints(t, env, config) {
		at := "unset"
		if c.Position != nil {
			at = fmt.Sprint(*c.Position)
		}
		got = append(got, at)
	}
	if want := "7 9 unset 11"; strings.Join(got, " ") != want {
		t.Errorf("the checkpoints are at %v, want %s", got, want)
	}
}

// What is wrong is said in one line, without secrets.
func TestImportMistakes(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 1)
	const secret = "c2VjcmV0c2VjcmV0"
	env := environment(connection, databases["sqlite"](t))
	for name, c := range map[string]struct {
		blob, storage string
		code          int
		says          string
	}{
		"a name alone":    {"checkpoints", "", 2, "AZURE_STORAGE_CONNECTION_STRING"},
		"no account":      {"checkpoints", "AccountKey=" + secret, 1, "Access keys"},
		"another account": {"https://a.blob.core.windows.net/c", "AccountName=b;AccountKey=" + secret, 1, "not of the account"},
		"nobody there":    {"http://127.0.0.1:1/account/c?sig=" + secret, "", 1, "connection refused"},
		"no container":    {"https://a.blob.core.windows.net?sig=" + secret, "", 1, "names no container"},
	} {
		env := env
		if c.storage != "" {
			env = append(env, "AZURE_STORAGE_CONNECTION_STRING="+c.storage)
		}
		code, _, errs := invoke(t, "", env, "checkpoints", "import", "--from-blob", c.blob, "--config", example(t))
		if code != c.code || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 || strings.Contains(errs, secret) {
			t.Errorf("%s: exit code %d, %s", name, code, errs)
		}
	}
}
