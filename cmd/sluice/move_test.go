package main_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// moved is a report of sluice move, as far as the tests read it.
type moved struct {
	Applied  bool
	Consumer struct{ State, Seen string }
	Seams    []struct {
		Partition   string
		Old, Now    *int64
		End, Start  int64
		Already     bool
		DeadLetters struct {
			Read, Imported, Settled int64
			There                   int64 `json:"already_there"`
		} `json:"dead_letters"`
		Effects struct {
			Before, After int64
			First         *int64
			Unknown       string
		}
		Verdict string
		Why     []string
	} `json:"partitions"`
}

// mover runs sluice move with the flags that a test always passes.
func mover(t *testing.T, env []string, config string, always ...string) func(more ...string) (int, moved, string) {
	return func(more ...string) (int, moved, string) {
		t.Helper()
		args := append([]string{"move", "--config", config, "--every", "100ms", "--json"}, always...)
		code, out, errs := invoke(t, "", env, append(args, more...)...)
		var m moved
		if out != "" {
			decode(t, out, &m)
		}
		return code, m, errs
	}
}

// publishedDeadLetters makes the published table of dead letters, as the article has it.
func publishedDeadLetters(url string) string {
	text := strings.NewReplacer("EventHubCheckpoint", "EventHubDeadLetter", "varchar(20) NOT NULL,", "varchar(20) NOT NULL,\n  FailedAt datetime NOT NULL,\n  Error nvarchar(max) NOT NULL,").Replace(publishedTable(url))
	switch {
	case strings.HasPrefix(url, "postgres"):
		return strings.NewReplacer("datetime", "timestamp", "nvarchar(max)", "text").Replace(text)
	case !strings.HasPrefix(url, "sqlserver"):
		return strings.ReplaceAll(text, "nvarchar(max)", "longtext")
	}
	return text
}

// oldTables are the published tables, with what the published consumer left in them.
type oldTables struct {
	t       *testing.T
	db      *sql.DB
	done    map[string]int64 // by partition: the last event that is done
	letters []event
}

// leave lays out the tables: the consumer is done with the first n events of two partitions, of
// which one is a dead letter in each: named by its partition, and as the published code does by its
// key.
func leave(t *testing.T, connection, url string, n int) *oldTables {
	t.Helper()
	old := &oldTables{t: t, db: openDatabase(t, url), done: map[string]int64{}}
	old.execute(publishedTable(url))
	old.execute(publishedDeadLetters(url))
	for i, partition := range []string{"0", "1"} {
		last, failed := nth(t, connection, partition, n), nth(t, connection, partition, n/2)
		old.execute(fmt.Sprintf("INSERT INTO EventHubCheckpoint VALUES ('flights', '%s', %d, '%s')", partition, last.SequenceNumber, last.Offset))
		name := []string{partition, *failed.PartitionKey}[i]
		old.execute(fmt.Sprintf("INSERT INTO EventHubDeadLetter VALUES ('flights', '%s', %d, '%s', '2017-05-02 10:11:12', 'System.Exception: bad')", name, failed.SequenceNumber, failed.Offset))
		old.done[partition] = last.SequenceNumber
		old.letters = append(old.letters, event{partition, failed.SequenceNumber})
	}
	return old
}

func (o *oldTables) execute(statement string) {
	o.t.Helper()
	if _, err := o.db.ExecContext(o.t.Context(), statement); err != nil {
		o.t.Fatalf("%s: %v", statement, err)
	}
}

// left are the events that are not done, with the dead letters.
func (o *oldTables) left(all []event) []event {
	return slices.DeleteFunc(all, func(e event) bool {
		done, ok := o.done[e.partition]
		return ok && e.sequence <= done && !slices.Contains(o.letters, e)
	})
}

const exactAudit = "Nothing lost, nothing duplicated"

// auditIsExact runs the audit, which must find nothing.
func auditIsExact(t *testing.T, env []string, config string) {
	t.Helper()
	if out := must(t, "", env, "audit", "hub", "--config", config); !strings.Contains(out, exactAudit) {
		t.Errorf("the audit says %s", out)
	}
}

// TestMoveFromTables: positions and dead letters of the published consumer are moved; a second run
// changes nothing, also after the dead letters were redriven.
func TestMoveFromTables(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		_, connection := serve(t, 3)
		env, config := environment(connection, url), quick(t, url)
		must(t, "", env, "send", "--hub", "flights", "--key-field", "origin", writeLines(t, flights20k(t)[:300]))
		old := leave(t, connection, url, 20)
		run := mover(t, env, config, "--from-table", "env:DATABASE_URL")

		if code, m, errs := run(); code != 0 || m.Applied || len(m.Seams) != 2 || m.Seams[1].DeadLetters.Imported != 1 || m.Consumer.State != "unknown" {
			t.Errorf("dry run: exit code %d, %+v, %s", code, m, errs)
		}
		if c := checkpoints(t, env, config); c[0].Position != nil || c[0].DeadLetters != 0 {
			t.Errorf("a dry run has set %+v", c[0])
		}
		report := filepath.Join(t.TempDir(), "move.json")
		code, m, errs := run("--apply", "--report", report)
		if code != 0 || !m.Applied {
			t.Fatalf("exit code %d, %s", code, errs)
		}
		for _, s := range m.Seams {
			if *s.Old != old.done[s.Partition] || s.Start != *s.Old+1 || s.DeadLetters.Read != 1 || s.DeadLetters.Imported != 1 || s.Verdict != "unknown" || len(s.Why) != 1 {
				t.Errorf("moved %+v", s)
			}
		}
		if kept, err := os.ReadFile(report); err != nil || !bytes.Contains(kept, []byte(`"direction": "to sluice"`)) {
			t.Errorf("the report is %s, %v", kept, err)
		}
		letters, events := deadLetters(t, env, config)
		if len(events) != 2 || letters[0].Error != "System.Exception: bad" || !slices.Contains(events, old.letters[0]) || !slices.Contains(events, old.letters[1]) {
			t.Errorf("dead letters %+v, want %v", letters, old.letters)
		}
		if code, m, errs := run("--apply"); code != 0 || !m.Seams[0].Already || m.Seams[0].DeadLetters.There != 1 || m.Seams[0].DeadLetters.Imported != 0 {
			t.Errorf("again: exit code %d, %+v, %s", code, m, errs)
		}
		must(t, "", env, "run", config, "--until-caught-up")
		must(t, "", env, "deadletters", "retry", "--config", config, "--all")
		exactlyOnce(t, old.left(lookAt(t, connection).events()), rows(t, openDatabase(t, url)))
		auditIsExact(t, env, config)
		code, m, errs = run("--apply")
		if s := m.Seams; code != 0 || !s[1].Already || s[1].DeadLetters.Settled != 1 || s[1].Now == nil || *s[1].Now != s[1].End || *s[1].Effects.First != s[1].Start || s[1].Effects.Before != 1 {
			t.Errorf("once more: exit code %d, %+v, %s", code, m, errs)
		}
		if n := count(t, openDatabase(t, url), "SELECT count(*) FROM sluice_dead_letters"); n != 0 {
			t.Errorf("%d dead letters were imported twice", n)
		}
		backToTable(t, env, config, connection, url, old)
	})
}

// backToTable moves the positions back into the table of the published consumer: each partition has
// its row then, and those of other topics stay.
func backToTable(t *testing.T, env []string, config, connection, url string, old *oldTables) {
	old.execute("INSERT INTO EventHubCheckpoint VALUES ('trains', '0', 7, '700')")
	back := mover(t, env, config, "--back", "--to-table", "env:DATABASE_URL")
	if code, m, errs := back(); code != 0 || m.Applied || len(m.Seams) != 3 {
		t.Errorf("back, planned: exit code %d, %+v, %s", code, m, errs)
	}
	if n := count(t, old.db, "SELECT count(*) FROM EventHubCheckpoint"); n != 3 {
		t.Errorf("a dry run left %d rows, want 3", n)
	}
	for range 2 { // a second time changes nothing
		code, m, errs := back("--apply")
		if code != 0 || !m.Applied || m.Seams[0].Verdict != "unknown" || !strings.Contains(m.Seams[0].Why[0], "shows no owners") {
			t.Fatalf("back: exit code %d, %+v, %s", code, m, errs)
		}
		for _, s := range m.Seams {
			last := nth(t, connection, s.Partition, int(s.End)+1)
			if n := count(t, old.db, fmt.Sprintf("SELECT count(*) FROM EventHubCheckpoint WHERE Topic = 'flights' AND PartitionID = '%s' AND SequenceNumber = %d AND %s = '%s'", s.Partition, s.End, publishedOffset(url), last.Offset)); n != 1 {
				t.Errorf("partition %s: %d rows at event %d, offset %s", s.Partition, n, s.End, last.Offset)
			}
		}
	}
	if n := count(t, old.db, "SELECT count(*) FROM EventHubCheckpoint"); n != 4 {
		t.Errorf("%d rows, want three and that of another topic", n)
	}
	if strings.HasPrefix(url, "sqlite:") { // an offset that is not kept is noticed: the consumer starts there
		old.execute("CREATE TRIGGER mangled AFTER UPDATE ON EventHubCheckpoint BEGIN UPDATE EventHubCheckpoint SET Offset = '1'; END")
		if code, _, errs := back("--apply"); code != 1 || !strings.Contains(errs, "another program writes there") {
			t.Errorf("with another offset: exit code %d, %s", code, errs)
		}
		old.execute("DROP TRIGGER mangled")
	}
	old.execute("UPDATE EventHubCheckpoint SET SequenceNumber = SequenceNumber + 1 WHERE Topic = 'flights'")
	if code, _, errs := back("--apply"); code != 1 || !strings.Contains(errs, "it has continued since") {
		t.Errorf("after the other consumer: exit code %d, %s", code, errs)
	}
}

// TestMoveUnderKill: kill -9 at random, then the command is run again.
func TestMoveUnderKill(t *testing.T) {
	t.Parallel()
	url := databases["sqlite"](t)
	_, connection := serve(t, 2)
	env, config := environment(connection, url), quick(t, url)
	must(t, "", env, "send", "--hub", "flights", "--key-field", "origin", writeLines(t, flights20k(t)[:200]))
	old := leave(t, connection, url, 30)
	args := []string{"move", "--config", config, "--every", "100ms", "--from-table", url, "--apply"}
	random, kills := need.Rand(t), 0
	for range 3 {
		victim := start(t, "", env, args...)
		select {
		case <-victim.done:
		case <-time.After(time.Duration(100+random.IntN(300)) * time.Millisecond):
			victim.kill()
			kills++
		}
	}
	out := must(t, "", env, args...)
	must(t, "", env, "run", config, "--until-caught-up")
	must(t, "", env, "deadletters", "retry", "--config", config, "--all")
	must(t, "", env, args...)
	exactlyOnce(t, old.left(lookAt(t, connection).events()), rows(t, openDatabase(t, url)))
	auditIsExact(t, env, config)
	t.Logf("%d runs were killed\n%s", kills, out)
}

// layouts are what other processors leave in a container, by their own code's names and forms: the
// last event of partition 0 is done, and of partition 1 all but the last ten. Sources:
// azure-sdk-for-net BlobCheckpointStoreInternal.cs, azure-sdk-for-java BlobCheckpointStore.java,
// azure-sdk-for-python _blobstoragecs.py, azure-sdk-for-js blobCheckpointStore.ts (all: names in
// lower case, metadata); azure-event-hubs-dotnet AzureStorageCheckpointLeaseManager.cs (JSON in
// group/partition; Functions: behind namespace/hub); azure-event-hubs-go storage/storage.go with
// Dapr's prefix; and plasne/fixed-partitioned-event-hub EventHubFixedPartitionProcessor.cs (the
// offset as the content).
var layouts = map[string]struct {
	folder  string
	content func(sequence int64, offset string) (content string, metadata map[string]string)
}{
	".NET": {"127.0.0.1/flights/$default/checkpoint/", func(n int64, _ string) (string, map[string]string) {
		return "", map[string]string{"sequencenumber": fmt.Sprint(n), "offset": "no offset", "clientidentifier": "host"}
	}},
	"Java, Python, JavaScript": {"127.0.0.1/flights/$default/checkpoint/", func(n int64, offset string) (string, map[string]string) {
		return "", map[string]string{"sequencenumber": fmt.Sprint(n), "offset": offset}
	}},
	"EventProcessorHost": {"$Default/", func(n int64, offset string) (string, map[string]string) {
		return fmt.Sprintf(`{"Offset":%q,"SequenceNumber":%d,"Owner":"h","Token":"t","Epoch":3}`, offset, n), nil
	}},
	"Functions": {"127.0.0.1/flights/$Default/", func(n int64, offset string) (string, map[string]string) {
		return fmt.Sprintf(`{"Offset":%q,"SequenceNumber":%d,"Owner":"h","Token":"t","Epoch":3}`, offset, n), nil
	}},
	"Dapr": {"dapr-flights-$Default-", func(n int64, offset string) (string, map[string]string) {
		return fmt.Sprintf(`{"epoch":12,"owner":"h","checkpoint":{"offset":%q,"sequenceNumber":%d},"state":"available"}`, offset, n), nil
	}},
	"fixed partitions": {"127.0.0.1/flights/$Default/ownership/", func(_ int64, offset string) (string, map[string]string) { return offset, nil }},
}

func putBlob(t *testing.T, store *container.Client, name, content string, metadata map[string]string) {
	t.Helper()
	pointers := map[string]*string{}
	for name, value := range metadata {
		pointers[name] = &value
	}
	if _, err := store.NewBlockBlobClient(name).Upload(t.Context(), streaming.NopCloser(strings.NewReader(content)), &blockblob.UploadOptions{Metadata: pointers}); err != nil {
		t.Fatal(err)
	}
}

// TestMoveFromLayouts: what each kind of processor leaves is moved, and the audit finds nothing.
func TestMoveFromLayouts(t *testing.T) {
	t.Parallel()
	server, store := storage(t, "checkpoints")
	_, connection := serve(t, 2)
	sent := environment(connection, "")
	must(t, "", sent, "send", "--hub", "flights", writeLines(t, flights20k(t)[:100]))
	ends := map[string]*azeventhubs.ReceivedEventData{"0": nth(t, connection, "0", 50), "1": nth(t, connection, "1", 40)}
	for name, l := range layouts {
		url := databases["sqlite"](t)
		env := environment(connection, url, "AZURE_STORAGE_CONNECTION_STRING="+server.ConnectionString())
		config, folder := quick(t, url), strings.ReplaceAll(name, " ", "-")+"/"
		for partition, e := range ends {
			content, metadata := l.content(e.SequenceNumber, e.Offset)
			putBlob(t, store, folder+l.folder+partition, content, metadata)
		}
		code, m, errs := mover(t, env, config, "--from-blob", "checkpoints", "--prefix", folder)("--apply")
		if code != 0 || m.Consumer.State != "stopped" || len(m.Seams) != 2 || m.Seams[0].Start != 50 || m.Seams[1].Start != 40 || m.Seams[0].Verdict != "proved" {
			t.Errorf("%s: exit code %d, %+v, %s", name, code, m, errs)
			continue
		}
		must(t, "", env, "run", config, "--until-caught-up")
		if n := count(t, openDatabase(t, url), countRows+" WHERE hub_partition = '1' AND sequence_number >= 40"); n != 10 {
			t.Errorf("%s: %d rows, want 10", name, n)
		}
		auditIsExact(t, env, config)
	}
}

// TestMoveThereAndBack: from the official processor, refused while it runs; it continues after the
// way back.
func TestMoveThereAndBack(t *testing.T) {
	t.Parallel()
	server, store := storage(t, "checkpoints")
	_, connection := serve(t, 2)
	url := databases["sqlite"](t)
	env := environment(connection, url, "AZURE_STORAGE_CONNECTION_STRING="+server.ConnectionString())
	config := quick(t, url)
	send := func(n int) { must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:n])) }
	send(100)
	there := mover(t, env, config, "--from-blob", "checkpoints")
	back := mover(t, env, config, "--back", "--to-blob", "checkpoints")

	stop := processFirst(t, connection, store, 2, 30)
	if code, _, errs := there("--apply"); code != 1 || !strings.Contains(errs, "the other consumer still runs: 2 partitions are read by ") {
		t.Errorf("while it runs: exit code %d, %s", code, errs)
	}
	stop()
	if code, m, errs := there("--within", "90s", "--apply"); code != 0 || m.Seams[0].Start != 30 || m.Seams[1].Verdict != "proved" {
		t.Fatalf("exit code %d, %+v, %s", code, m, errs)
	}
	must(t, "", env, "run", config, "--until-caught-up")
	auditIsExact(t, env, config)
	running := start(t, "", env, "run", config)
	await(t, "an owner", func() bool { return checkpoints(t, env, config)[0].Owner != "" })
	if code, _, errs := back("--apply"); code != 1 || !strings.Contains(errs, "is owned by ") || !strings.Contains(errs, "stop the pipeline first") {
		t.Errorf("while the pipeline runs: exit code %d, %s", code, errs)
	}
	running.stop()
	if code, m, errs := back(); code != 0 || m.Applied || m.Seams[0].Start != 50 {
		t.Errorf("planned: exit code %d, %+v, %s", code, m, errs)
	}
	if code, m, errs := back("--apply"); code != 0 || m.Seams[0].Start != 50 || m.Seams[1].Verdict != "proved" {
		t.Errorf("back: exit code %d, %+v, %s", code, m, errs)
	}
	send(20)
	read := processRest(t, connection, store, map[string]int64{"0": 59, "1": 59})
	if read["0"][0] != 50 || read["1"][0] != 50 {
		t.Errorf("the processor continued with %v", read)
	}
	putBlob(t, store, "127.0.0.1/flights/$default/checkpoint/0", "", map[string]string{"sequencenumber": "99"})
	if code, _, errs := there("--apply", "--force"); code != 1 || !strings.Contains(errs, "the checkpoint is at 99, but the newest event of flights is 59") {
		t.Errorf("from another hub: exit code %d, %s", code, errs)
	}
}

// TestMoveFromFixedPartitions: the blobs of a fixed-partition processor, with leases; and back.
func TestMoveFromFixedPartitions(t *testing.T) {
	t.Parallel()
	server, store := storage(t, "checkpoints")
	_, connection := serve(t, 2)
	url := databases["sqlite"](t)
	env := environment(connection, url, "AZURE_STORAGE_CONNECTION_STRING="+server.ConnectionString())
	config, folder := quick(t, url), "127.0.0.1/flights/$Default/ownership/"
	must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:100]))
	putBlob(t, store, folder+"0", nth(t, connection, "0", 1).Offset, nil)
	putBlob(t, store, folder+"1", "", nil) // no checkpoint yet
	held, err := lease.NewBlobClient(store.NewBlobClient(folder+"1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.AcquireLease(t.Context(), 60, nil); err != nil {
		t.Fatal(err)
	}
	there := mover(t, env, config, "--from-blob", "checkpoints")
	if code, _, errs := there("--apply"); code != 1 || !strings.Contains(errs, "1 partition is read by a fixed-partition processor") {
		t.Errorf("with a lease: exit code %d, %s", code, errs)
	}
	if _, err := held.ReleaseLease(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if out := must(t, "", env, "checkpoints", "import", "--from-blob", "checkpoints", "--config", config, "--dry-run"); !strings.Contains(out, "1 checkpoint would be set") {
		t.Errorf("import says %s", out)
	}
	if code, m, errs := there("--apply"); code != 0 || len(m.Seams) != 1 || m.Seams[0].Start != 1 || m.Seams[0].Verdict != "proved" {
		t.Fatalf("exit code %d, %+v, %s", code, m, errs)
	}
	must(t, "", env, "run", config, "--until-caught-up")
	auditIsExact(t, env, config)
	if code, m, errs := mover(t, env, config, "--back", "--to-blob", "checkpoints")("--apply"); code != 0 || len(m.Seams) != 2 {
		t.Errorf("back: exit code %d, %+v, %s", code, m, errs)
	}
	got, err := store.NewBlobClient(folder+"0").DownloadStream(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	var content bytes.Buffer
	if _, err := content.ReadFrom(got.Body); err != nil || content.String() != nth(t, connection, "0", 50).Offset {
		t.Errorf("the blob has %q, %v", content.String(), err)
	}
}

// TestMoveFromConnect: the group of a sink of Kafka Connect, and back to it.
func TestMoveFromConnect(t *testing.T) {
	t.Parallel()
	need.RealTime(t)
	const partitions = 2
	k := newTopic(t, partitions, fakeKafka(t))
	k.fill(partitions)
	url := databases["sqlite"](t)
	env, config := k.environment(url), kafkaExample(t)
	offsets := kadm.Offsets{}
	offsets.AddOffset(k.name, 0, 20, 0)
	offsets.AddOffset(k.name, 1, 0, -1)
	if err := k.admin.CommitAllOffsets(t.Context(), "connect-flights", offsets); err != nil {
		t.Fatal(err)
	}
	if code, m, errs := mover(t, env, config, "--from-group", "connect-flights")("--apply"); code != 0 || m.Seams[0].Start != 20 || m.Seams[1].Start != 0 || m.Seams[1].Verdict != "proved" {
		t.Fatalf("exit code %d, %+v, %s", code, m, errs)
	}
	must(t, "", env, "run", config, "--until-caught-up")
	_, dead := deadLetters(t, env, config)
	left := slices.DeleteFunc(slices.Concat(k.good, k.bad), func(e event) bool { return e.partition == "0" && e.sequence < 20 })
	exactlyOnce(t, left, rows(t, openDatabase(t, url)), dead)
	k.audit(env, config, 0, exactAudit)
	code, m, errs := mover(t, env, config, "--back", "--to-group", "connect-flights")("--apply")
	at, _ := k.committed("connect-flights")
	if code != 0 || at["0"] != m.Seams[0].Start || at["0"] <= 20 || m.Seams[0].Verdict != "proved" {
		t.Errorf("back: exit code %d, offsets %v, %+v, %s", code, at, m, errs)
	}
}

// What is wrong with the flags is said in one line.
func TestMoveMistakes(t *testing.T) {
	t.Parallel()
	url := existingSQLite(t)
	_, connection := serve(t, 1)
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"nothing":         {nil, 2, "name where the checkpoints are"},
		"both ways":       {[]string{"--back", "--from-group", "g", "--to-group", "g"}, 2, "--back goes with --to-group, --to-blob or --to-table"},
		"back without":    {[]string{"--back"}, 2, "--to-group GROUP, --to-blob CONTAINER-URL or --to-table DATABASE-URL"},
		"to without back": {[]string{"--to-group", "g"}, 2, "go with --back"},
		"another table":   {[]string{"--back", "--to-group", "g", "--table", "t"}, 2, "--table and --topic go with --to-table"},
		"two ways back":   {[]string{"--back", "--to-group", "g", "--to-table", url}, 2, "or --to-table DATABASE-URL"},
		"no such table":   {[]string{"--back", "--to-table", "sqlite:/none/x.db"}, 1, "--to-table: open /none/x.db"},
		"too often":       {[]string{"--from-table", url, "--every", "1ms"}, 2, "--every 1ms: must be 100ms to 1h0m0s"},
		"a group of hubs": {[]string{"--from-group", "g"}, 2, "--from-group is for topics of Kafka"},
		"no checkpoints":  {[]string{"--back", "--to-group", "g"}, 1, "there is nothing to move back"},
		"one table":       {[]string{"--from-table", url, "--table", "eventhubdeadletter"}, 2, "name one table: name two"},
		"no table":        {[]string{"--from-table", url}, 1, "read checkpoints of another consumer: table EventHubCheckpoint"},
	} {
		code, out, errs := invoke(t, "", environment(connection, url), append([]string{"move", "--config", quick(t, url)}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 || out != "" {
			t.Errorf("%s: exit code %d, %s%s", name, code, out, errs)
		}
	}
}
