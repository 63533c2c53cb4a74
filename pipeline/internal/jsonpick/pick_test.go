package jsonpick

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-go/sluice/internal/jsonscan"
)

func paths(t testing.TB, texts ...string) []Path {
	t.Helper()
	var list []Path
	for _, text := range texts {
		p, err := ParsePath(text)
		if err != nil {
			t.Fatalf("path %q: %v", text, err)
		}
		list = append(list, p)
	}
	return list
}

func TestPick(t *testing.T) {
	doc := ` { "a" : {"b":[10,[20,{"c":-1.50e+3}]], "b2":"x"} , "t":true,"f":false,"n":null,
		"s":"sm\u00f6rg\n", "a.b":"dotted", "":"empty", "dup":{"x":1,"y":2}, "dup":{"y":3}, "esc\u0061ped": "k"} `
	for _, c := range []struct {
		path string
		kind Kind
		raw  string
	}{
		{"", Object, strings.TrimSpace(doc)},
		{".a", Object, `{"b":[10,[20,{"c":-1.50e+3}]], "b2":"x"}`},
		{".a.b", Array, `[10,[20,{"c":-1.50e+3}]]`},
		{".a.b[0]", Number, `10`},
		{".a.b[1][1].c", Number, `-1.50e+3`},
		{".a.b[2]", Missing, ``},
		{".a.b.c", Missing, ``},
		{".a.b2", String, `"x"`},
		{".a.b2[0]", Missing, ``},
		{".t", True, `true`},
		{".f", False, `false`},
		{".n", Null, `null`},
		{".n.x", Missing, ``},
		{".s", String, `"sm\u00f6rg\n"`},
		{`["a.b"]`, String, `"dotted"`},
		{`[""]`, String, `"empty"`},
		{".dup.x", Missing, ``},
		{".dup.y", Number, `3`},
		{".escaped", String, `"k"`},
		{".missing", Missing, ``},
		{"[0]", Missing, ``},
	} {
		var got [1]Value
		if err := New(paths(t, c.path)...).Pick([]byte(doc), got[:]); err != nil {
			t.Fatalf("%s: %v", c.path, err)
		}
		if got[0].Kind != c.kind || string(got[0].Raw) != c.raw {
			t.Errorf("%s = %s %s, want %s %s", c.path, got[0].Kind, got[0].Raw, c.kind, c.raw)
		}
	}
}

func TestPickSeveral(t *testing.T) {
	p := New(paths(t, ".a", ".a.b", ".c[1]", ".a")...)
	got := make([]Value, 4)
	for range 2 { // the values of an earlier document must not stay
		for doc, want := range map[string][4]string{
			`{"a":{"b":1},"c":[1,2]}`: {`{"b":1}`, `1`, `2`, `{"b":1}`},
			`{"c":[0,7]}`:             {"", "", "7", ""},
			`3`:                       {},
		} {
			if err := p.Pick([]byte(doc), got); err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				if string(v.Raw) != want[i] {
					t.Errorf("%s: value %d is %q, want %q", doc, i, v.Raw, want[i])
				}
			}
		}
	}
}

func TestPickErrors(t *testing.T) {
	for doc, want := range map[string]string{
		``:                              `not JSON at byte 0: the end where a value should be`,
		`{"a":1`:                        `not JSON at byte 6: the end where a comma or } should be`,
		`{"a" 1}`:                       `not JSON at byte 5: '1' where a colon should be`,
		`{a:1}`:                         `not JSON at byte 1: 'a' where a key in double quotes should be`,
		`[1,]`:                          `not JSON at byte 3: ']' where a value should be`,
		`[1 2]`:                         `not JSON at byte 3: '2' where a comma or ] should be`,
		`01`:                            `not JSON at byte 1: '1' after the value`,
		`1.`:                            `not JSON at byte 2: the end where a digit should be`,
		`-`:                             `not JSON at byte 1: the end where a digit should be`,
		`1e+`:                           `not JSON at byte 3: the end where a digit should be`,
		`nul`:                           `not JSON at byte 3: the end where the rest of null should be`,
		`"a`:                            `not JSON at byte 2: the end where a closing " should be`,
		"\"0123456789\nabcdefghij\"":    `not JSON at byte 11: a control character in a string`,
		"\"a\nb\"":                      `not JSON at byte 2: a control character in a string`,
		`"\x"`:                          `not JSON at byte 2: 'x' where an escape should be`,
		`"\u12g4"`:                      `not JSON at byte 5: 'g' where a hexadecimal digit should be`,
		"{\"a\":\"\xff\"}":              `not JSON at byte 6: not UTF-8`,
		`<xml/>`:                        `not JSON at byte 0: '<' where a value should be`,
		strings.Repeat("[", maxDepth+1): `not JSON at byte 10000: nested too deep`,
	} {
		err := New(Path{}).Pick([]byte(doc), make([]Value, 1))
		var syntax *jsonscan.SyntaxError
		if !errors.As(err, &syntax) || err.Error() != want {
			t.Errorf("%.20q: %v, want %s", doc, err, want)
		}
	}
}

func TestText(t *testing.T) {
	for raw, want := range map[string]string{
		`"plain"`:              "plain",
		`"\"\\\/\b\f\n\r\t"`:   "\"\\/\b\f\n\r\t",
		`"\u0041\u00e9\u20AC"`: "Aé€",
		`"\ud83d\ude00!"`:      "😀!",
		`"\ufffd"`:             "\ufffd",
		`"� \n"`:               "� \n",
		`"\u0000"`:             "\x00",
		`"\ud83dx"`:            "half",
		`"\ude00\ud83d"`:       "half",
		`"\ud83d\u0041"`:       "half",
		`"\ud83d"`:             "half",
	} {
		got, err := Value{String, []byte(raw)}.Text()
		if err != nil {
			got = []byte("half")
		}
		if string(got) != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

func TestParsePath(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		".a":                     ".a",
		`.a.b_1-x[0]["c.d"]`:     `.a.b_1-x[0]["c.d"]`,
		`["a"]`:                  ".a",
		`["\u0041]"]`:            `["A]"]`,
		".größe":                 ".größe",
		"a":                      `error: "a": a step begins with . or [`,
		".":                      `error: a key must follow the dot (letters, digits, _ and -; any other key is written ["key"])`,
		".a..b":                  `error: a key must follow the dot (letters, digits, _ and -; any other key is written ["key"])`,
		".a b":                   `error: " b": a step begins with . or [`,
		"[x]":                    `error: [x]: an index is a number from 0 to 1048576, a key is written in double quotes`,
		"[-1]":                   `error: [-1]: an index is a number from 0 to 1048576, a key is written in double quotes`,
		"[1":                     `error: [1: ] is missing`,
		`["a`:                    `error: ["a: not a key in double quotes`,
		`["a"`:                   `error: ["a": ] is missing`,
		strings.Repeat(".a", 65): `error: more than 64 steps`,
	} {
		p, err := ParsePath(text)
		got := p.String()
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// find finds by encoding/json what a picker should.
func find(v any, path Path) (any, bool) {
	for _, step := range path {
		ok := false
		switch t := v.(type) {
		case map[string]any:
			if !step.Array {
				v, ok = t[step.Key]
			}
		case []any:
			if step.Array && step.Index < len(t) {
				v, ok = t[step.Index], true
			}
		}
		if !ok {
			return nil, false
		}
	}
	return v, true
}

func FuzzPick(f *testing.F) {
	for _, doc := range []string{
		`{"a":{"b":[1,2.5,{"c":null}]},"d":"x\u00e9\ud800","a":[true,false]}`,
		`[[[]],{"":0},"\"",-0.1e-9]`, `{"a":1}x`, `"`, "\xff", `{"a":{"b":1},"a":{"b":[1]}}`, ` 1 `, `{"\u0061":2}`,
		`"0123456789abcdef\u0000\n"`,
	} {
		f.Add(doc, ".a.b[0]", ".d")
	}
	f.Fuzz(func(t *testing.T, doc, first, second string) {
		var list []Path
		for _, text := range []string{first, second, "", ".a", "[0]"} {
			p, err := ParsePath(text)
			if err != nil {
				continue
			}
			if again, err := ParsePath(p.String()); err != nil || !reflect.DeepEqual(again, p) {
				t.Fatalf("path %q becomes %q becomes %q, %v", text, p, again, err)
			}
			list = append(list, p)
		}
		got := make([]Value, len(list))
		err := New(list...).Pick([]byte(doc), got)
		if valid := json.Valid([]byte(doc)) && utf8.ValidString(doc); valid != (err == nil) {
			t.Fatalf("valid %t, but %v", valid, err)
		}
		if err != nil {
			return
		}
		var whole any
		if json.Unmarshal([]byte(doc), &whole) != nil {
			return // a number that float64 can't hold
		}
		for i, p := range list {
			want, ok := find(whole, p)
			if ok != (got[i].Kind != Missing) {
				t.Fatalf("%s: %s, but encoding/json finds it: %t", p, got[i].Kind, ok)
			}
			if !ok {
				continue
			}
			var have any
			if err := json.Unmarshal(got[i].Raw, &have); err != nil || !reflect.DeepEqual(have, want) {
				t.Fatalf("%s: %s, want %v", p, got[i].Raw, want)
			}
			if text, ok := want.(string); ok {
				if mine, err := got[i].Text(); err == nil && string(mine) != text {
					t.Fatalf("%s: text %q, want %q", p, mine, text)
				} else if err != nil && !strings.ContainsRune(text, utf8.RuneError) {
					t.Fatalf("%s: %v, want %q", p, err, text)
				}
			}
		}
	})
}

func BenchmarkPick(b *testing.B) {
	flight := `{"date":"2001/01/14 21:55","delay":0,"distance":480,"origin":"SAN","destination":"SMF"}`
	large := flight[:len(flight)-1] + `,"note":"` + strings.Repeat("All work and no play. ", 30) + `","legs":[` +
		strings.Repeat(`{"n":1,"gate":"A12","ok":true},`, 7) + `{"n":9}]}`
	for name, text := range map[string]string{"flight": flight, "1KB": large} {
		doc := []byte(text)
		b.Run(name, func(b *testing.B) {
			p := New(paths(b, ".date", ".delay", ".distance", ".origin", ".destination")...)
			got := make([]Value, 5)
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Pick(doc, got); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/encodingjson", func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				var v struct {
					Date                string
					Delay, Distance     int64
					Origin, Destination string
				}
				if err := json.Unmarshal(doc, &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
