package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

const depth = 128

var samples = []string{
	`{}`, ` { "a" : [ 1 , -2.5e-3 , {"x":null} ] , "b":true,"b":false} `, `{"x":"\u00fc\ud83d\ude00\n","日本語":"ü"}`, `"0123456789abcdefü"`,
	`"a\"\\\/\b\f\n\r\tz"`, `"\ud800"`, `"\ud800x"`, `"\ud800\u0041"`, `"\udc00\ud800\udc00"`, `"\ud800\ud83d\ude00"`, `0`, `-0.1E+9`,
	``, ` `, `{`, `}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{}{}`, `[1,]`, `[1 2]`, `01`, `1.`, `.5`, `-`, `1e`, `+1`, `tru`, `nul`, `NaN`, `'a'`,
	`"\x"`, `"\u12g4"`, `"\`, `"\u12`, `"`, "\"\x01\"", "\"\xff\"", "\"0123456\xff89ab\"", "\xff", "\x00", strings.Repeat("[", depth+1) + strings.Repeat("]", depth+1),
}

// agrees compares the scanner with encoding/json.
func agrees(t *testing.T, data []byte) {
	t.Helper()
	s := New(data, depth)
	value, err := s.Value()
	if err == nil {
		err = s.End()
	}
	valid := json.Valid(data) && utf8.Valid(data)
	deep := bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) > depth
	if (err == nil) != valid && !(deep && err != nil) {
		t.Fatalf("%q: %v, but valid: %v", data, err, valid)
	}
	if err != nil {
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Offset > len(data) {
			t.Fatalf("%q: %v", data, err)
		}
		return
	}
	if !bytes.Equal(value, bytes.Trim(data, " \t\r\n")) {
		t.Fatalf("%q: value %q", data, value)
	}
	scalars := 0
	var members func() error
	s = New(data, depth)
	members = func() error {
		switch s.Peek() {
		case '{':
			return s.Object(func(key []byte) error {
				unquotes(t, key)
				return members()
			})
		case '[':
			return s.Array(members)
		case '"':
			scalars++
			text, err := s.Text()
			unquotes(t, text)
			return err
		}
		scalars++
		number, err := s.Value()
		if c := number[0]; (c == '-' || c >= '0' && c <= '9') != IsNumber(number) {
			t.Fatalf("%q: number %q", data, number)
		}
		return err
	}
	if err := members(); err != nil || s.End() != nil || s.Scalars() != scalars || string(s.TextFrom(0)) != string(data) || s.Offset() != len(data) {
		t.Fatalf("%q: %d scalars, want %d, %v", data, s.Scalars(), scalars, err)
	}
}

func unquotes(t *testing.T, quoted []byte) {
	t.Helper()
	var want string
	if err := json.Unmarshal(quoted, &want); err != nil {
		t.Fatalf("%q: %v", quoted, err)
	}
	text, whole := AppendUnquoted([]byte("x"), quoted)
	if string(text) != "x"+want || string(Unquote(quoted)) != want || !Equal(quoted, want) || Equal(quoted, want+"x") {
		t.Fatalf("%q: %q, want %q", quoted, text, want)
	}
	if !whole && !strings.ContainsRune(want, utf8.RuneError) {
		t.Fatalf("%q: not whole", quoted)
	}
}

func TestScanner(t *testing.T) {
	for _, text := range samples {
		agrees(t, []byte(text))
	}
	if _, err := New([]byte(strings.Repeat("[", depth)+strings.Repeat("]", depth)), depth).Value(); err != nil {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1`:               `not JSON at byte 6: the end where a comma or } should be`,
		"{\"a\":\"0123456\xff": `not JSON at byte 14: the end where a closing " should be`,
		"[\"ü01234567\xff\"]":  `not JSON at byte 12: not UTF-8`,
		"[\xff]":               `not JSON at byte 1: not UTF-8`,
		`1 x`:                  `not JSON at byte 2: 'x' after the value`,
	} {
		s := New([]byte(text), depth)
		_, err := s.Value()
		if err == nil {
			err = s.End()
		}
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	stop := errors.New("stop")
	if err := New([]byte(`[1]`), depth).Array(func() error { return stop }); err != stop {
		t.Errorf("the error of the function: %v", err)
	}
	if err := New([]byte(` 1`), depth).Object(nil); err == nil || err.Error() != "not JSON at byte 1: '1' where { should be" {
		t.Error(err)
	}
}

func TestIsNumber(t *testing.T) {
	for text, want := range map[string]bool{"0": true, "-1.5e+07": true, "": false, "01": false, "+1": false, "1 ": false, "1.": false, "0x1": false, "NaN": false} {
		if IsNumber([]byte(text)) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
}

func FuzzScanner(f *testing.F) {
	for _, text := range samples {
		f.Add([]byte(text))
	}
	f.Fuzz(agrees)
}
