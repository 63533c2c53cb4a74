package cosmos

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
)

// A patch changes what it names, in bulk and alone, and needs a document.
func TestPatch(t *testing.T) {
	for _, mode := range []Mode{Bulk, Point} {
		srv := embedded(t, emulator.CosmosContainer{}, nil)
		s := openSink(t, srv, &Config{Mode: mode})
		at := func(id string, body string, op Operation) Document {
			return Document{ID: id, PartitionKey: []any{"k"}, Body: []byte(body), Operation: op}
		}
		for _, r := range submit(t, s, at("1", `{"key":"k","n":1,"o":{"a":1}}`, Upsert), at("2", `{"key":"k","n":1}`, Upsert)) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		results := submit(t, s,
			at("1", `[{"op":"incr","path":"/n","value":2},{"op":"set","path":"/o/b","value":"x"}] `, Patch), at("2", `[{"op":"remove","path":"/n"}]`, Patch),
			at("3", `[{"op":"set","path":"/n","value":1}]`, Patch), at("1", `[{"op":"replace","path":"/no","value":1}]`, Patch),
			at("1", `{"operations":[]}`, Patch), at("1", `[]`, Patch), at("1", "["+strings.Repeat(`{"op":"incr","path":"/n","value":1},`, 10)+`{"op":"incr","path":"/n","value":1}]`, Patch))
		for i, r := range results {
			if rejected := errors.Is(r.Err, driver.ErrRejected); rejected != (i > 1) || i < 2 && r.Err != nil {
				t.Errorf("mode %d, patch %d: %+v", mode, i, r)
			}
		}
		for id, want := range map[string]string{"1": `"n":3,"o":{"a":1,"b":"x"}`, "2": `{"id":"2","key":"k","_rid"`} {
			if got := stored(t, srv, id); !strings.Contains(got, want) {
				t.Errorf("mode %d: document %s, want %s", mode, got, want)
			}
		}
	}
}

// stored reads a document with the official client.
func stored(t testing.TB, srv *emulator.Cosmos, id string) string {
	t.Helper()
	credential, err := azcosmos.NewKeyCredential(srv.Key())
	if err != nil {
		t.Fatal(err)
	}
	client, err := azcosmos.NewClientWithKey(srv.Endpoint(), credential, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewContainer("db", "docs")
	if err != nil {
		t.Fatal(err)
	}
	read, err := c.ReadItem(t.Context(), azcosmos.NewPartitionKeyString("k"), id, nil)
	if err != nil || read.RawResponse.StatusCode != http.StatusOK {
		t.Fatalf("read %s: %v", id, err)
	}
	return string(read.Value)
}

// A patch with a source is not applied over that of a newer event, whatever the sink knows of the
// document, and not twice.
func TestPatchOfEvents(t *testing.T) {
	for _, mode := range []Mode{Bulk, Point} {
		srv := embedded(t, emulator.CosmosContainer{}, nil)
		first := openSink(t, srv, &Config{Mode: mode})
		if r := submit(t, first, Document{ID: "1", PartitionKey: []any{"k"}, Body: []byte(`{"key":"k"}`)}); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
		patched := func(s *Sink, sequence int64) {
			t.Helper()
			d := Document{ID: "1", PartitionKey: []any{"k"}, Operation: Patch, Source: &Source{Topic: "t", Partition: "0", Epoch: 1, Sequence: sequence},
				Body: fmt.Appendf(nil, `[{"op":"set","path":"/at","value":%d},{"op":"incr","path":"/times","value":1}]`, sequence)}
			if r := submit(t, s, d); r[0].Err != nil {
				t.Errorf("event %d: %v", sequence, r[0].Err)
			}
		}
		second := openSink(t, srv, &Config{Mode: mode})
		for _, s := range []struct {
			sink     *Sink
			sequence int64
			time     string
			times    string
		}{
			{first, 5, `"at":5`, `"times":1`}, {first, 5, `"at":5`, `"times":1`}, {second, 4, `"at":5`, `"times":1`}, {second, 5, `"at":5`, `"times":1`},
			{second, 6, `"at":6`, `"times":2`}, {first, 7, `"at":7`, `"times":3`}, {second, 6, `"at":7`, `"times":3`},
		} {
			patched(s.sink, s.sequence)
			if got := stored(t, srv, "1"); !strings.Contains(got, s.time) || !strings.Contains(got, s.times) {
				t.Errorf("mode %d, event %d: document %s, want %s, %s", mode, s.sequence, got, s.time, s.times)
			}
		}
		missing := Document{ID: "2", PartitionKey: []any{"k"}, Operation: Patch, Source: &Source{Topic: "t", Partition: "0", Epoch: 1, Sequence: 8}, Body: []byte(`[{"op":"set","path":"/a","value":1}]`)}
		if r := submit(t, first, missing); !errors.Is(r[0].Err, driver.ErrRejected) {
			t.Errorf("no document: %v", r[0].Err)
		}
	}
}
