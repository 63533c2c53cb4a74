package cosmos

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// same compares with encoding/json, which nests deeper and takes what is not
// UTF-8.
func same(t *testing.T, data []byte) {
	t.Helper()
	var want map[string]json.RawMessage
	valid := json.Unmarshal(data, &want) == nil && want != nil && utf8.Valid(data)
	got := map[string]json.RawMessage{}
	ok := members(data, func(name, value []byte) {
		var s string
		if err := json.Unmarshal(append(append([]byte{'"'}, name...), '"'), &s); err != nil {
			t.Errorf("%q: the name %q: %v", data, name, err)
		}
		got[s] = bytes.Clone(value)
	})
	if ok && !valid {
		t.Fatalf("%q is no JSON object", data)
	}
	if valid && !ok && deep(data) <= maxDepth {
		t.Fatalf("%q is a JSON object", data)
	}
	if ok && !reflect.DeepEqual(got, want) {
		t.Fatalf("%q: %s, want %s", data, got, want)
	}
}

// deep is how deep data nests at most.
func deep(data []byte) int { return bytes.Count(data, []byte("{")) + bytes.Count(data, []byte("[")) }

var jsonSamples = []string{
	`{}`, ` { } `, `{"a":1}`, `{"a":[1,2,{"b":null}],"c":{"d":[]}}`, `{"a":"\u00fC\n\"\\\/"}`, `{"ü":"😀"}`,
	`{"a":-0.5e+10,"b":0,"c":1E5,"d":true,"e":false}`, "{\n\t\"a\" : \r1 , \"b\":2}",
	``, ` `, `null`, `[]`, `1`, `{`, `}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":1}{}`, `{"a":1} x`, `{"a":01}`, `{"a":1.}`, `{"a":.5}`,
	`{"a":-}`, `{"a":1e}`, `{"a":tru}`, `{"a":"\x"}`, `{"a":"\u12"}`, "{\"a\":\"\x01\"}", "{\"a\":\"\xff\"}", `{"a":[1,]}`, `{"a":[}`, `{'a':1}`,
	`{"a":1}},{"operationType":"Delete","id":"x"`, `{"a":"`, `{"a":"\`, `{"a":nul`, `{"a":+1}`, `{"a":0x1}`, `{"a":1,"a":2}`, `{"a":NaN}`,
}

func TestMembers(t *testing.T) {
	for _, s := range jsonSamples {
		same(t, []byte(s))
	}
	nested := func(n int) []byte {
		return []byte(`{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`)
	}
	if !members(nested(maxDepth-1), nil) || members(nested(maxDepth), nil) || members(nested(1e6), nil) {
		t.Error("the limit of depth")
	}
}

func TestElements(t *testing.T) {
	var got []string
	if !elements([]byte(` [ {"a":1} , 2,"x" ] `), func(v []byte) { got = append(got, string(v)) }) || !reflect.DeepEqual(got, []string{`{"a":1}`, "2", `"x"`}) {
		t.Error(got)
	}
	for _, s := range []string{``, `{}`, `[`, `[1`, `[1,`, `[1,]`, `[1]x`} {
		if elements([]byte(s), nil) {
			t.Errorf("%s is an array", s)
		}
	}
}

func TestAppendText(t *testing.T) {
	for _, s := range []string{"", "plain", `"quoted" \ back`, "line\nfeed\x00", "ü😀", "bad\xff\xfe end", "\u2028", "\uFFFD"} {
		var got, want string
		data, err := json.Marshal(s)
		if err != nil || json.Unmarshal(data, &want) != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(appendText(nil, s), &got); err != nil || got != want {
			t.Errorf("%q: %s, %v", s, appendText(nil, s), err)
		}
	}
}

func FuzzMembers(f *testing.F) {
	for _, s := range jsonSamples {
		f.Add([]byte(s))
	}
	f.Fuzz(same)
}

func BenchmarkMembers(b *testing.B) {
	body := []byte(`{"id":"12345","key":"k1","payload":"` + strings.Repeat("x", 700) + `","n":[1,2,3],"o":{"a":true}}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if !members(body, func([]byte, []byte) {}) {
			b.Fatal("invalid")
		}
	}
}
