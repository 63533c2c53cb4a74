package formats

import (
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
)

func TestJSONLines(t *testing.T) {
	d := New(&Config{Encoding: JSONLines(), MaxSize: 100})
	for body, want := range map[string]string{
		"":                             `[]`,
		"{\"a\":1}":                    `[{"a":1}]`,
		"{\"a\":1}\r\n{\"a\":2}\n\n":   `[{"a":1},{"a":2}]`,
		"\ufeff{\"a\":1}\n{\"a\":[2]}": `[{"a":1},{"a":[2]}]`,
		"[{\"a\":1},{\"a\":2}]":        `[{"a":1},{"a":2}]`,
		" [\n1,\n2] ":                  "[\n1,\n2]",
		"[1]\n[2]":                     `[[1],[2]]`,
		"1\n\"x\"\nnull":               `[1,"x",null]`,
	} {
		e, err := d.Event(t.Context(), &sluice.Event{Body: []byte(body)})
		if err != nil || string(e.Body) != want {
			t.Errorf("%q: %v, %v, want %s", body, e, err, want)
		}
	}
	for body, want := range map[string]string{
		"{\"a\":1}\nx":              "line 2 is not one value of JSON",
		"{\"a\":1}{\"a\":2}":        "line 1 is not one value of JSON",
		"{\n\"a\":1}":               "line 1 is not one value of JSON",
		strings.Repeat("[1]\n", 50): "100 bytes",
	} {
		if _, err := d.Event(t.Context(), &sluice.Event{Body: []byte(body)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", body, err, want)
		}
	}
}
