package pipeline

import (
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
)

func TestParseFilter(t *testing.T) {
	order := &sluice.Event{Key: "LAX", Body: []byte(`{"type":"order","n":7}`), Properties: map[string]any{"kind": "live"}}
	for text, want := range map[string]bool{
		"body.type: order":                          true,
		"{body.type: order}":                        true,
		"{body.type: [refund, order], key: LAX}":    true,
		"{body.type: order, key: SFO}":              false,
		"{properties.kind: {not: test}}":            true,
		"{properties.kind: {not: [test, live]}}":    false,
		"body.n: 7":                                 true,
		"body.type: order\nproperties.kind: live\n": true,
	} {
		f, err := ParseFilter("--where", text, EventHubs)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := f.Matches(order)
		if got != want || err != nil || f.Excludes(order) && got {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                  "--where",
		"body.type=order":   "--where",
		"{body.type: order": "--where",
		"{bdy.type: order}": "write body,",
		"{body: order}":     "write body.PATH",
		"{}":                "has no values",
	} {
		if _, err := ParseFilter("--where", text, EventHubs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		} else {
			t.Log(err)
		}
	}
	f, err := ParseFilter("--where", "body.type: order", EventHubs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Matches(&sluice.Event{Body: []byte("no JSON")}); err == nil {
		t.Error("a body that is not JSON is decided")
	}
	f, err = ParseFilter("--where", "properties.kind: live", Kafka)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := f.Matches(&sluice.Event{Properties: map[string]any{"kind": []byte("live")}}); !ok || err != nil {
		t.Errorf("a header of Kafka: %v, %v", ok, err)
	}
}
