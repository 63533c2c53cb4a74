package upload

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// A key that is found in a record is one that Event Hubs takes, and the
// record's.
func FuzzKey(f *testing.F) {
	f.Add(`{"id":"LAX","n":7}`, "id")
	f.Add(`{"id":1.50,"id":true}`, "id")
	f.Add(`{"id":{"a":1}}`, "id")
	f.Add(`{"id":"\ud800\u0000"}`, "id")
	f.Add(`[1]`, "")
	f.Fuzz(func(t *testing.T, body, field string) {
		k, err := key([]byte(body), field, false)
		if err != nil {
			return
		}
		if k == "" || !utf8.ValidString(k) || utf8.RuneCountInString(k) > maxKey {
			t.Fatalf("field %q of %s gives the key %q", field, body, k)
		}
		var object map[string]any
		d := json.NewDecoder(strings.NewReader(body))
		d.UseNumber()
		if err := d.Decode(&object); err != nil {
			t.Fatalf("%s is no object: %v", body, err)
		}
		switch v := object[field].(type) {
		case string:
			if v != k {
				t.Fatalf("field %q of %s gives the key %q", field, body, k)
			}
		case json.Number:
			if v.String() != k {
				t.Fatalf("field %q of %s gives the key %q", field, body, k)
			}
		case bool:
			if (k == "true") != v {
				t.Fatalf("field %q of %s gives the key %q", field, body, k)
			}
		default:
			t.Fatalf("field %q of %s is a %T and gives the key %q", field, body, v, k)
		}
	})
}
