package pipeline

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/sender"
)

// The properties of .NET's types are a time, and text, for columns and filters.
func TestDotNetPropertiesInColumns(t *testing.T) {
	at := time.Date(2024, 1, 2, 1, 10, 31, 935545600, time.UTC)
	for _, c := range []struct {
		value any
		typ   columnType
		want  any
	}{
		{driver.DateTimeOffset(638397546319355456), typeTimestamp, at},
		{driver.DateTimeOffset(638397546319355456), typeText, "2024-01-02T01:10:31.9355456Z"},
		{driver.TimeSpan(937845000000), typeText, "26:03:04.5"},
		{driver.URI("https://example.com/a"), typeText, "https://example.com/a"},
	} {
		v, err := ofProperty(c.value)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.typ.convert(v)
		value := got.value()
		if moment, ok := value.(time.Time); ok && moment.Equal(at) {
			value = at
		}
		if err != nil || value != c.want {
			t.Errorf("%v as %s: %v, %v, want %v", c.value, c.typ, value, err, c.want)
		}
	}
}

// A pipeline that sends events on keeps the types of .NET, through the broker and both receivers.
func TestDotNetPropertiesAreSentOn(t *testing.T) {
	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	properties := map[string]any{"at": driver.DateTimeOffset(638397546319355456), "took": driver.TimeSpan(-937845000000), "at_url": driver.URI("https://example.com/a"), "n": int32(1)}
	p, err := Parse("p.yaml", []byte(edit(t, sound[strings.Index(sound, "  insert:"):], "  eventhub: {hub: next}\n", "batch: 1000\n", "", "database: ${DATABASE_URL}", "leases: {sql: '${DATABASE_URL}'}")), environment())
	if err != nil {
		t.Fatal(err)
	}
	messages, err := targetOf[*messageTarget](p).messages(t.Context(), &sluice.Event{Body: []byte("{}"), Properties: properties})
	if err != nil {
		t.Fatal(err)
	}
	out, err := sender.OpenEventHub(srv.ConnectionString(), "flights", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close(t.Context())
	if _, err := sender.New(out, nil).SendAll(t.Context(), slices.Values([]sender.Message{*messages[0]})); err != nil {
		t.Fatal(err)
	}
	for _, receiver := range []eventhub.Receiver{eventhub.OwnReceiver, eventhub.SDKReceiver} {
		source, err := eventhub.New(srv.ConnectionString(), "flights", &eventhub.Config{Receiver: receiver})
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close(t.Context())
		reader, err := source.Open(t.Context(), "0", driver.Origin, driver.NoEpoch)
		if err != nil {
			t.Fatal(err)
		}
		events, err := reader.Read(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		got := maps.Clone(events[0].Properties)
		maps.DeleteFunc(got, func(name string, _ any) bool { return properties[name] == nil })
		if !reflect.DeepEqual(got, properties) {
			t.Errorf("%s: %#v, want %#v", receiver, got, properties)
		}
	}
}
