package outbox

import (
	"fmt"
	"testing"
)

// TestProperties: what programs write as plain JSON is read, and nothing behind it is dropped.
func TestProperties(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"order","n":7,"x":1.5}`: "map[n:7 type:order x:1.5] <nil>",
		`{"type":"order"} `:              "map[type:order] <nil>",
		`{"type":"order"} {"type":"x"}`:  "map[] column properties: there is more than one JSON object",
		`{"type":"order"}}`:              "map[] column properties: there is more than one JSON object",
	} {
		properties, err := decodeProperties(text)
		if got := fmt.Sprint(properties, " ", err); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
