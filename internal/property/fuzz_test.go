package property

import (
	"bytes"
	"reflect"
	"testing"
)

// What decodes encodes to something that decodes to the same, and encodes the
// same again.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `null`, `{"a":"b","c":true,"d":null}`, `{"a":{"int8":"-8"},"b":{"uint64":"18446744073709551615"},"c":{"int":"7"}}`,
		`{"a":{"float32":"1.1"},"b":{"float64":"NaN"},"c":{"float64":"-Inf"}}`, `{"a":{"bytes":"AP8="}}`,
		`{"a":{"time":"2026-01-02T03:04:05.000000006+02:00"}}`, `{"a":{"int8":"999"}}`, `{"a":1}`, `{"a":[]}`, `{"a":{"int8":"1","int16":"1"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := Decode(data)
		if err != nil {
			return
		}
		text, err := Encode(first)
		if err != nil {
			t.Fatalf("%s became %#v, which is %v", data, first, err)
		}
		second, err := Decode(text)
		if err != nil || len(second) != len(first) {
			t.Fatalf("%s became %s, which is %#v, %v", data, text, second, err)
		}
		for name, v := range first {
			if reflect.TypeOf(second[name]) != reflect.TypeOf(v) {
				t.Fatalf("%q: a %T became a %T", name, v, second[name])
			}
		}
		if again, err := Encode(second); err != nil || !bytes.Equal(again, text) {
			t.Fatalf("%s became %s, %v", text, again, err)
		}
	})
}
