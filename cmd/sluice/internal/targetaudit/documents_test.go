package targetaudit

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

const cosmosFile = `leases: {sql: "${DATABASE_URL}"}
target:
  cosmos:
    endpoint: ${COSMOS_ENDPOINT}
    key: ${COSMOS_KEY}
    database: db
    container: docs
    id: body.id
    partition_key: body.key
`

// cosmosWorld is a pipeline into a container.
type cosmosWorld struct {
	*world
	account   *emulator.Cosmos
	container *azcosmos.ContainerClient
}

func newCosmosWorld(t *testing.T, file string) *cosmosWorld {
	t.Helper()
	account, err := emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "docs", KeyPaths: []string{"/key"}, Partitions: 2}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { account.Close() })
	client, err := azcosmos.NewClientFromConnectionString(account.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	container, err := client.NewContainer("db", "docs")
	if err != nil {
		t.Fatal(err)
	}
	return &cosmosWorld{newWorld(t, file, "COSMOS_ENDPOINT="+account.Endpoint(), "COSMOS_KEY="+account.Key()), account, container}
}

// send appends events whose documents are n to m-1, in turn to both partitions.
func (w *cosmosWorld) send(n, m int) {
	for i := n; i < m; i++ {
		w.hub.Append(strconv.Itoa(i%2), &sluice.Event{Body: fmt.Appendf(nil, `{"id":"d%d","key":"k%d","n":%d}`, i, i%7, i), Enqueued: time.Now()})
	}
}

func (w *cosmosWorld) remove(documents ...int) {
	w.t.Helper()
	for _, i := range documents {
		if _, err := w.container.DeleteItem(w.t.Context(), azcosmos.NewPartitionKeyString(fmt.Sprintf("k%d", i%7)), fmt.Sprintf("d%d", i), nil); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestLostDocuments: exactly the documents that are missing are reported as lost, beside what is in
// flight and what is a dead letter, with the account's faults on.
func TestLostDocuments(t *testing.T) {
	t.Parallel()
	w := newCosmosWorld(t, cosmosFile)
	w.send(0, 600)
	w.hub.Append("1", &sluice.Event{Body: []byte(`{"key":"k"}`), Enqueued: time.Now()}) // a dead letter
	w.run()
	w.send(600, 605)
	w.says(w.audit(), "Checked 606 events: 0 lost, 0 duplicated, 600 written, 5 in flight, 1 dead letter, 0 not decidable.")

	w.remove(20, 22, 24, 101)
	for _, fault := range []emulator.CosmosFault{
		{Kind: emulator.CosmosFaultStatus, On: "batch", Status: 429, Times: 4},
		{Kind: emulator.CosmosFaultDrop, On: "batch", Times: 3},
		{Kind: emulator.CosmosFaultStatus, On: "batch", Status: 503, Each: true, Times: 3},
	} {
		if _, err := w.account.Faults().Add(fault); err != nil {
			t.Fatal(err)
		}
	}
	r := w.audit("partition 0: events 10 to 12 are lost", "partition 1: event 50 is lost")
	w.says(r, "Checked 606 events: 4 lost (partition 0: 10 to 12, partition 1: 50), 0 duplicated, 596 written, 5 in flight, 1 dead letter, 0 not decidable.")
	if r.Exact() || r.Undecided() {
		t.Errorf("%+v", r.Total)
	}
	exec(t, w.database, `DELETE FROM sluice_dead_letters`)
	w.audit("partition 0: events 10 to 12 are lost", "partition 1: event 50 is lost", "partition 1: event 300 is lost")
}

// TestConditionalDocuments: an older document is a lost event, one of another program is not
// decidable, and an event with both a document and a dead letter is duplicated.
func TestConditionalDocuments(t *testing.T) {
	t.Parallel()
	w := newCosmosWorld(t, cosmosFile+"    conditional: true\n")
	w.send(0, 40)
	w.hub.Append("0", &sluice.Event{Body: []byte(`{"id":"d4","key":"k4","again":true}`), Enqueued: time.Now()}) // 20, replaces 2
	w.hub.Append("1", &sluice.Event{Body: []byte(`{"key":"k"}`), Enqueued: time.Now()})                         // a dead letter: 20
	w.run()
	w.says(w.audit(), "Checked 42 events: 0 lost, 0 duplicated, 41 written, 0 in flight, 1 dead letter, 0 not decidable.")

	replace := func(key, id, stamp string) {
		t.Helper()
		body := fmt.Sprintf(`{"id":%q,"key":%q%s}`, id, key, stamp)
		if _, err := w.container.ReplaceItem(t.Context(), azcosmos.NewPartitionKeyString(key), id, []byte(body), nil); err != nil {
			t.Fatal(err)
		}
	}
	topic, err := w.hub.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	replace("k4", "d4", fmt.Sprintf(`,"_sluice":"2 1 0 flights %s"`, topic.Incarnation)) // event 2's again
	replace("k6", "d6", "")
	exec(t, w.database, `UPDATE sluice_dead_letters SET sequence_number = 5`)
	r := w.audit("partition 0: event 20 is lost", "partition 1: event 5 is duplicated", "partition 1: event 20 is lost")
	w.says(r, "Checked 42 events: 2 lost (partition 0: 20, partition 1: 20), 1 duplicated (partition 1: 5), 38 written, 0 in flight, 1 dead letter, 1 not decidable (the document records no event, so another program has written it).")
}

// TestSharedDocuments: without a record of the event, a document does not show which event wrote
// it.
func TestSharedDocuments(t *testing.T) {
	t.Parallel()
	w := newCosmosWorld(t, cosmosFile)
	w.send(0, 10)
	w.send(0, 4)
	w.run()
	w.says(w.audit(), "Checked 14 events: 0 lost, 0 duplicated, 14 written, 0 in flight, 0 dead letters, 0 not decidable, 4 with the id of an earlier event's document (which of them wrote it is not recorded: conditional: true records it).")
}

// TestCompressedBodies: documents are found by the bodies as the pipeline decodes them.
func TestCompressedBodies(t *testing.T) {
	t.Parallel()
	w := newCosmosWorld(t, cosmosFile)
	file := strings.Replace(source, "  start:", "  format: {compression: gzip}\n  start:", 1) + cosmosFile
	w.parse(file)
	for i := range 4 {
		var body bytes.Buffer
		z := gzip.NewWriter(&body)
		fmt.Fprintf(z, `{"id":"d%d","key":"k%d"}`, i, i)
		z.Close()
		w.hub.Append(strconv.Itoa(i%2), &sluice.Event{Body: body.Bytes()})
	}
	w.run()
	w.remove(3)
	w.says(w.audit("partition 1: event 1 is lost"), "Checked 4 events: 1 lost (partition 1: 1), 0 duplicated, 3 written, 0 in flight, 0 dead letters, 0 not decidable.")
}

// TestExpiredDocuments: a missing document whose time to live has passed may have expired, one
// whose time has not passed is lost.
func TestExpiredDocuments(t *testing.T) {
	t.Parallel()
	w := newCosmosWorld(t, cosmosFile)
	for i, at := range []time.Time{time.Now().Add(-2 * time.Hour), time.Now(), time.Now().Add(-2 * time.Hour)} {
		body := fmt.Sprintf(`{"id":"d%d","key":"k%d"}`, i, i)
		if i == 2 {
			body = `{"id":"d2","key":"k2","ttl":-1}` // never
		}
		w.hub.Append("0", &sluice.Event{Body: []byte(body), Enqueued: at})
	}
	w.hub.Append("1", &sluice.Event{Body: []byte(`{"id":"x","key":"k"}`), Enqueued: time.Now()})
	properties, err := w.container.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	hour := int32(3600)
	properties.ContainerProperties.DefaultTimeToLive = &hour
	if _, err := w.container.Replace(t.Context(), *properties.ContainerProperties, nil); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.remove(0, 1, 2)
	r := w.audit("partition 0: events 1 to 2 are lost")
	w.says(r, "Checked 4 events: 2 lost (partition 0: 1 to 2), 0 duplicated, 1 written, 0 in flight, 0 dead letters, 1 not decidable (the document may have expired: its time to live has passed).")
}

// TestDocumentsAtARate: reading keeps to the request units that it may use.
func TestDocumentsAtARate(t *testing.T) {
	t.Parallel()
	need.RealTime(t)
	w := newCosmosWorld(t, cosmosFile)
	w.send(0, 1000)
	w.run()
	stats := func() float64 {
		s, err := w.account.ContainerStats("db", "docs")
		if err != nil {
			t.Fatal(err)
		}
		return s.Spent
	}
	w.cfg.RU = 400
	before, began := stats(), time.Now()
	w.audit()
	spent, took := stats()-before, time.Since(began)
	if spent < 1000 || took < time.Duration((spent/400-1)*float64(time.Second)) {
		t.Errorf("%.0f RU in %v", spent, took)
	}
}

// TestUnreachableAccount: an account that does not answer is an error, and no loss.
func TestUnreachableAccount(t *testing.T) {
	t.Parallel()
	w := newCosmosWorld(t, cosmosFile)
	w.send(0, 4)
	w.run()
	if err := w.account.RevokeKey(w.account.Key()); err != nil {
		t.Fatal(err)
	}
	r, err := run(t.Context(), w.pipeline, hubSource{w.hub}, w.cfg)
	if r != nil || err == nil || !strings.Contains(err.Error(), "check the key and this machine's clock") || strings.Contains(err.Error(), "\n") || errors.Is(err, audit.ErrUndecided) {
		t.Errorf("%v", err)
	}
}
