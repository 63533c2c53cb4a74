package blobstore_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
)

// bodies are those of a container of the test's own, and the container's client.
func bodies(t *testing.T, most int64) (*blobstore.Bodies, *container.Client) {
	t.Helper()
	p := newPlace(t)
	p.open(t) // which creates the container
	cfg := blobstore.Config{ConnectionString: p.connection, Prefix: "large/"}
	b, err := blobstore.NewBodies(p.name, &blobstore.BodiesConfig{Config: cfg, MaxBytes: most})
	if err != nil {
		t.Fatal(err)
	}
	client, err := blobstore.Connect(p.name, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b, client
}

// referring stores a body, and is the event that refers to it.
func referring(t *testing.T, b *blobstore.Bodies, body []byte) *driver.Event {
	t.Helper()
	text, properties, err := b.Put(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	properties["other"] = int64(7)
	return &driver.Event{Sequence: 3, Key: "k", ContentType: "text/plain", Body: text, Properties: properties,
		Headers: []driver.Header{{Name: "other", Value: []byte("7")}, {Name: blobstore.ReferenceProperty, Value: []byte("1")}}}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	b, client := bodies(t, 0)
	if err := b.Check(t.Context()); err != nil {
		t.Error(err)
	}
	for _, body := range [][]byte{bytes.Repeat([]byte("0123456789"), 300_000), {}} {
		e := referring(t, b, body)
		again := referring(t, b, body) // has the same blob
		if !bytes.Equal(e.Body, again.Body) {
			t.Errorf("references %s and %s", e.Body, again.Body)
		}
		whole, err := b.Fetch(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(whole.Body, body) || whole.Sequence != 3 || whole.Key != "k" || whole.ContentType != "text/plain" ||
			len(whole.Properties) != 1 || whole.Properties["other"] != int64(7) || len(whole.Headers) != 1 || whole.Headers[0].Name != "other" {
			t.Errorf("fetched %d bytes, %+v", len(whole.Body), whole.Properties)
		}
		if !blobstore.IsReference(e) || blobstore.IsReference(whole) {
			t.Error("the event itself was changed")
		}
	}
	plain := &driver.Event{Body: []byte("x")}
	if whole, err := b.Fetch(t.Context(), plain); whole != plain || err != nil {
		t.Errorf("a plain event became %+v, %v", whole, err)
	}
	page, err := client.NewListBlobsFlatPager(nil).NextPage(t.Context())
	if err != nil || len(page.Segment.BlobItems) != 2 || !strings.HasPrefix(*page.Segment.BlobItems[0].Name, "large/") {
		t.Errorf("blobs: %+v, %v", page.Segment.BlobItems, err)
	}
}

// What concerns one event is an ErrBody, what concerns the container is not.
func TestBodiesThatCannotBeFetched(t *testing.T) {
	t.Parallel()
	b, client := bodies(t, 100)
	blob := func(e *driver.Event) string {
		_, name, _ := strings.Cut(string(e.Body), `"blob":"`)
		name, _, _ = strings.Cut(name, `"`)
		return name
	}
	missing, damaged, longer := referring(t, b, []byte("missing")), referring(t, b, []byte("damaged")), referring(t, b, []byte("longer"))
	if _, err := client.NewBlobClient(blob(missing)).Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for e, content := range map[*driver.Event]string{damaged: "demaged", longer: "longer than it was"} {
		if _, err := client.NewBlockBlobClient(blob(e)).Upload(t.Context(), streaming.NopCloser(strings.NewReader(content)), nil); err != nil {
			t.Fatal(err)
		}
	}
	newer := referring(t, b, []byte("newer"))
	newer.Properties[blobstore.ReferenceProperty] = "2"
	forged := func(body string) *driver.Event {
		return &driver.Event{Body: []byte(body), Properties: map[string]any{blobstore.ReferenceProperty: "1"}}
	}
	for name, c := range map[string]struct {
		event *driver.Event
		want  string
	}{
		"missing": {missing, `blob "` + blob(missing) + `" is not in http://`},
		"damaged": {damaged, "is not the body that was stored"},
		"longer":  {longer, "is not the body that was stored"},
		"large":   {referring(t, b, make([]byte, 101)), "has 101 bytes: the limit is 100"},
		"newer":   {newer, `version "2" is not known`},
		"no JSON": {forged("x"), "not a reference to a blob"},
		"no blob": {forged(`{"claim_check":{"size":1}}`), "not a reference to a blob"},
		"long":    {forged(`{"claim_check":{"blob":"` + strings.Repeat("a", 9000) + `"}}`), "not a reference to a blob"},
	} {
		if whole, err := b.Fetch(t.Context(), c.event); whole != nil || !errors.Is(err, blobstore.ErrBody) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := referring(t, b, []byte("good"))
	if _, err := client.Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Fetch(t.Context(), good); err == nil || errors.Is(err, blobstore.ErrBody) || !strings.Contains(err.Error(), "there is no such container") {
		t.Errorf("without a container: %v", err)
	}
	if _, _, err := b.Put(t.Context(), []byte("x")); err == nil || !strings.Contains(err.Error(), "store a body of 1 bytes in http://") {
		t.Errorf("without a container: %v", err)
	}
	if err := b.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no such container") {
		t.Errorf("without a container: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Fetch(ended, good); err == nil || errors.Is(err, blobstore.ErrBody) {
		t.Errorf("after the end of the context: %v", err)
	}
}

func TestImpossibleBodies(t *testing.T) {
	for want, cfg := range map[string]*blobstore.BodiesConfig{
		"must not be negative":   {MaxBytes: -1},
		"no slash at the start":  {Config: blobstore.Config{Prefix: "/x"}},
		"needs a connection str": nil,
	} {
		if _, err := blobstore.NewBodies("bodies", cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
