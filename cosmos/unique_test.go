package cosmos

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
)

// A document with the values of another one at a unique key is refused with the paths of the key,
// also if writes are conditional. Upserts may succeed later, so the attempt has failed and no more.
func TestUniqueKeys(t *testing.T) {
	srv := embedded(t, emulator.CosmosContainer{}, nil)
	credential, err := azcosmos.NewKeyCredential(srv.Key())
	if err != nil {
		t.Fatal(err)
	}
	client, err := azcosmos.NewClientWithKey(srv.Endpoint(), credential, nil)
	if err != nil {
		t.Fatal(err)
	}
	db, err := client.NewDatabase("db")
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.CreateContainer(t.Context(), azcosmos.ContainerProperties{
		ID: "people", PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/key"}},
		UniqueKeyPolicy: &azcosmos.UniqueKeyPolicy{UniqueKeys: []azcosmos.UniqueKey{{Paths: []string{"/mail"}}, {Paths: []string{"/name/first", "/name/last"}}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const keys = "the unique key /mail, or /name/first with /name/last"
	for i, c := range []struct {
		mode        Mode
		conditional bool
		operation   Operation
		id          string
		want        string
		rejected    bool
	}{
		{Bulk, false, Upsert, "b", "another document of the partition key has the same value at " + keys, false},
		{Point, false, Upsert, "b", "another document of the partition key has the same value at " + keys, false},
		{Bulk, true, Upsert, "b", "another document of the partition key has the same value at " + keys, false},
		{Bulk, false, Create, "b", "a document with this id exists already, or one with the same value at " + keys, true},
		{Bulk, true, Create, "b", "a document with this id exists already, or one with the same value at " + keys, true},
		{Bulk, false, Upsert, "a", "", false},
	} {
		key := fmt.Sprint(i)
		s, err := New(srv.Endpoint(), srv.Key(), "db", "people", &Config{Mode: c.mode, Conditional: c.conditional})
		if err != nil {
			t.Fatal(err)
		}
		write := func(id string, operation Operation, sequence int64) error {
			d := Document{ID: id, PartitionKey: []any{key}, Body: fmt.Appendf(nil, `{"key":%q,"mail":"m","name":{"first":%q}}`, key, id), Operation: operation}
			if c.conditional {
				d.Source = &Source{Topic: "t", Partition: "0", Epoch: 1, Sequence: sequence}
			}
			return submit(t, s, d)[0].Err
		}
		if err := write("a", Upsert, 1); err != nil {
			t.Fatal(err)
		}
		err = write(c.id, c.operation, 2)
		text := fmt.Sprint(err)
		retry := new(driver.RetryError)
		switch {
		case (err == nil) != (c.want == "") || !strings.Contains(text, c.want):
			t.Errorf("%+v: %v", c, err)
		case err != nil && (errors.Is(err, driver.ErrRejected) != c.rejected || errors.Is(err, driver.ErrOutage) || errors.As(err, &retry)):
			t.Errorf("%+v: %v has the wrong mark", c, err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A deleted document is gone. Deleting it again succeeds, as a repetition after a crash must.
func TestDelete(t *testing.T) {
	srv := embedded(t, emulator.CosmosContainer{}, nil)
	for _, mode := range []Mode{Bulk, Point} {
		s := openSink(t, srv, &Config{Mode: mode})
		kept, gone := document(1), document(2)
		for _, r := range submit(t, s, kept, gone) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		before := stats(t, srv).Documents
		remove := Document{ID: gone.ID, PartitionKey: gone.PartitionKey, Operation: Delete}
		for range 2 {
			if r := submit(t, s, remove)[0]; r.Err != nil || r.Cost == 0 {
				t.Errorf("mode %d: %+v", mode, r)
			}
		}
		if after := stats(t, srv).Documents; after != before-1 {
			t.Errorf("mode %d: %d documents of %d", mode, after, before)
		}
		if r := submit(t, s, gone)[0]; r.Err != nil {
			t.Errorf("mode %d: written again: %v", mode, r.Err)
		}
		remove.Source = &Source{Partition: "0"}
		if r := submit(t, s, remove)[0]; !errors.Is(r.Err, driver.ErrRejected) || !strings.Contains(r.Err.Error(), "a Delete cannot be conditional") {
			t.Errorf("mode %d: %v", mode, r.Err)
		}
	}
}
