package cosmos

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator"
)

// TestLookup: documents are read in bulk, with what they record; answers that fail are asked for
// again.
func TestLookup(t *testing.T) {
	srv := embedded(t, emulator.CosmosContainer{Partitions: 2}, nil)
	s := openSink(t, srv, nil)
	document := func(i int) Document {
		return Document{ID: fmt.Sprint(i), PartitionKey: []any{fmt.Sprintf("k%d", i%3)}, Body: fmt.Appendf(nil, `{"key":"k%d"}`, i%3), Source: &Source{Topic: "hub 1", Partition: "0", Sequence: int64(i)}}
	}
	d := deliver(t.Context(), s, 100, func(i int) (Document, bool) { return document(2 * i), i < 150 })
	for d.done.Load() < 150 {
		<-time.After(time.Millisecond)
	}
	if _, err := srv.Faults().Add(emulator.CosmosFault{Kind: emulator.CosmosFaultStatus, On: "batch", Status: 429, Times: 3}); err != nil {
		t.Fatal(err)
	}
	if _, err := srv.Faults().Add(emulator.CosmosFault{Kind: emulator.CosmosFaultStatus, On: "batch", Status: 503, Each: true, Times: 20}); err != nil {
		t.Fatal(err)
	}
	var asked []Document
	for i := range 300 {
		asked = append(asked, document(i))
	}
	stored, err := s.Lookup(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range stored {
		if got.Found != (i%2 == 0) || got.Found && (got.Source == nil || got.Source.Sequence != int64(i)) {
			t.Errorf("document %d: %+v", i, got)
		}
	}
}

func TestSupersedes(t *testing.T) {
	stored := Source{Topic: "hub 1", Partition: "0", Epoch: 3, Sequence: 7}
	for _, c := range []struct {
		event             Source
		supersedes, known bool
	}{
		{Source{Topic: "hub 1", Partition: "0", Sequence: 6}, true, true},
		{Source{Topic: "hub 1", Partition: "0", Epoch: 9, Sequence: 7}, true, true},
		{Source{Topic: "hub 1", Partition: "0", Sequence: 8}, false, true},
		{Source{Topic: "hub 2", Partition: "0", Sequence: 6}, false, false},
		{Source{Topic: "hub 1", Partition: "1", Sequence: 6}, false, false},
	} {
		if supersedes, known := stored.Supersedes(&c.event); supersedes != c.supersedes || known != c.known {
			t.Errorf("%+v: %t, %t", c.event, supersedes, known)
		}
	}
}

func TestExpiry(t *testing.T) {
	const hour = time.Hour
	for _, c := range []struct {
		expiry Expiry
		body   string
		want   time.Duration
	}{
		{Expiry{}, `{"ttl":5}`, 0},
		{Expiry{Enabled: true}, `{}`, 0},
		{Expiry{Enabled: true}, `{"ttl":5}`, 5 * time.Second},
		{Expiry{Enabled: true, Default: hour}, `{"a":{"ttl":5}}`, hour},
		{Expiry{Enabled: true, Default: hour}, `{"ttl":-1}`, 0},
		{Expiry{Enabled: true, Default: hour}, `{"ttl":"5"}`, hour},
		{Expiry{Enabled: true, Default: hour}, `{"ttl":9999999999}`, hour},
		{Expiry{Enabled: true, Default: hour}, `no JSON`, hour},
	} {
		if got := c.expiry.Of([]byte(c.body)); got != c.want {
			t.Errorf("%+v of %s: %v, want %v", c.expiry, c.body, got, c.want)
		}
	}
}
