package pipeline

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/azurite"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/sluicetest"
)

// TestClaimCheckOfTable: rows have values of bodies that are in blobs. A missing blob makes a dead
// letter, which a retry turns into a row once the blob is back. While the container is gone, the
// partition waits.
func TestClaimCheckOfTable(t *testing.T) {
	server := azurite.New(t, nil)
	storage := server.ConnectionString()
	if _, err := blobstore.Open(t.Context(), "bodies", &blobstore.Config{ConnectionString: storage}); err != nil { // creates it
		t.Fatal(err)
	}
	bodies, err := blobstore.NewBodies("bodies", &blobstore.BodiesConfig{Config: blobstore.Config{ConnectionString: storage}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := blobstore.Connect("bodies", &blobstore.Config{ConnectionString: storage})
	if err != nil {
		t.Fatal(err)
	}
	large := func(delay int) []byte {
		return []byte(fmt.Sprintf(`{"delay":%d}`, delay) + strings.Repeat(" ", 500_000))
	}
	event := func(delay int) *sluice.Event {
		body, properties, err := bodies.Put(t.Context(), large(delay))
		if err != nil {
			t.Fatal(err)
		}
		return &sluice.Event{Body: body, Properties: properties}
	}
	missing := event(2)
	_, name, _ := strings.Cut(string(missing.Body), `"blob":"`)
	name, _, _ = strings.Cut(name, `"`)
	if _, err := client.NewBlobClient(name).Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	url, db := sqliteFile(t)
	file := withClaimCheck(t, "    container: bodies\n    connection: ${STORAGE}\n    max_size: 600000\n")
	p, parts := formatted(t, file, "DATABASE_URL="+url, "STORAGE="+storage)
	hub := sluicetest.NewHub(p.Group, 1)
	hub.Append("0", event(1), missing, &sluice.Event{Body: []byte(`{"delay":3}`)}, event(4))
	rows := func() string { return query(t, db, "SELECT delay FROM flights ORDER BY 1") }
	runUntil(t, parts, hub, "the last event is a row", func() bool { return strings.HasSuffix(rows(), "4") })
	if found := letters(t, p, parts); rows() != "1\n3\n4" || len(found) != 1 || !strings.Contains(found[0].Error, `blob "`+name+`" is not in `) || string(found[0].Event.Body) != string(missing.Body) {
		t.Fatalf("rows %q, dead letters %+v", rows(), found)
	}
	event(2) // restores the blob
	if n, err := parts.DeadLetters.Redrive(t.Context(), p.Group, sluice.DeadLetterFilter{}, time.Time{}); n != 1 || err != nil {
		t.Fatalf("%d dead letters to redrive, %v", n, err)
	}
	runUntil(t, parts, hub, "the dead letter is a row", func() bool { return rows() == "1\n2\n3\n4" && len(letters(t, p, parts)) == 0 })

	// An outage: nothing becomes a dead letter.
	late := event(5)
	if _, err := client.Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	hub.Append("0", late)
	failed := make(chan struct{}, 100)
	consumer, err := parts.Consumer(t.Context(), &Options{Source: hub, Observer: driver.ObserverFunc(func(o driver.Observation) {
		if o.Kind == driver.KindFailed && o.Err != nil && strings.Contains(o.Err.Error(), "no such container") {
			select {
			case failed <- struct{}{}:
			default:
			}
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx) }()
	for range 4 { // more than the attempts of an event
		<-failed
	}
	if found := letters(t, p, parts); len(found) != 0 || rows() != "1\n2\n3\n4" {
		t.Errorf("rows %q, dead letters %+v", rows(), found)
	}
	suite.Eventually(t, "the container is there again", func() bool { _, err := client.Create(t.Context(), nil); return err == nil })
	event(5)
	suite.Eventually(t, "the event is a row", func() bool { return rows() == "1\n2\n3\n4\n5" })
	cancel()
	<-ended
}

// TestClaimCheckOfTarget: a large body of a message goes to a blob, and the next stage would fetch
// it.
func TestClaimCheckOfTarget(t *testing.T) {
	storage := azurite.New(t, nil).ConnectionString()
	if _, err := blobstore.Open(t.Context(), "bodies", &blobstore.Config{ConnectionString: storage}); err != nil { // creates it
		t.Fatal(err)
	}
	bus, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders"}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	file := strings.Replace(busFile, "    key: body.who\n    body: {n: {from: body.n, type: integer}}\n", "    claim_check: {container: bodies, connection: \"${STORAGE}\", over: 1000}\n", 1)
	url, _ := sqliteFile(t)
	p, parts := formatted(t, file, "DATABASE_URL="+url, "STORAGE="+storage, "SERVICEBUS_CONNECTION_STRING="+bus.ConnectionString())
	hub := sluicetest.NewHub(p.Group, 1)
	large := `{"n":2}` + strings.Repeat(" ", 500_000)
	hub.Append("0", &sluice.Event{Body: []byte(`{"n":1}`)}, &sluice.Event{Body: []byte(large), Properties: map[string]any{"a": "b"}})
	runUntil(t, parts, hub, "both messages are there", func() bool { counts, err := bus.Counts("orders"); return err == nil && counts.Active == 2 })
	counts, err := bus.Counts("orders")
	if err != nil || counts.Bytes > 5000 {
		t.Errorf("%+v, %v", counts, err)
	}
	if err := targetOf[*messageTarget](p).bodies.Check(t.Context()); err != nil {
		t.Error(err)
	}
	// The blob is the body: storing it again gives the same reference.
	client, err := blobstore.Connect("bodies", &blobstore.Config{ConnectionString: storage})
	if err != nil {
		t.Fatal(err)
	}
	page, err := client.NewListBlobsFlatPager(nil).NextPage(t.Context())
	if err != nil || len(page.Segment.BlobItems) != 1 || *page.Segment.BlobItems[0].Properties.ContentLength != int64(len(large)) {
		t.Errorf("blobs: %+v, %v", page.Segment.BlobItems, err)
	}
}

// TestClaimCheckWithFilter: a filter on the body decides by the body that is in the blob.
func TestClaimCheckWithFilter(t *testing.T) {
	storage := azurite.New(t, nil).ConnectionString()
	cfg := blobstore.Config{ConnectionString: storage}
	if _, err := blobstore.Open(t.Context(), "bodies", &cfg); err != nil { // creates it
		t.Fatal(err)
	}
	bodies, err := blobstore.NewBodies("bodies", &blobstore.BodiesConfig{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	url, db := sqliteFile(t)
	file := strings.Replace(withClaimCheck(t, "    container: bodies\n    connection: ${STORAGE}\n"), "target:\n", "only: {body.kind: wanted}\ntarget:\n", 1)
	p, parts := formatted(t, file, "DATABASE_URL="+url, "STORAGE="+storage)
	hub := sluicetest.NewHub(p.Group, 1)
	for i, kind := range []string{"wanted", "other", "wanted"} {
		body, properties, err := bodies.Put(t.Context(), fmt.Appendf(nil, `{"delay":%d,"kind":%q}`, i, kind))
		if err != nil {
			t.Fatal(err)
		}
		hub.Append("0", &sluice.Event{Body: body, Properties: properties})
	}
	rows := func() string { return query(t, db, "SELECT delay FROM flights ORDER BY 1") }
	runUntil(t, parts, hub, "the last event is a row", func() bool { return strings.HasSuffix(rows(), "2") })
	if found := letters(t, p, parts); rows() != "0\n2" || len(found) != 0 {
		t.Errorf("rows %q, dead letters %+v", rows(), found)
	}
}
