package jsonpick

import (
	"bytes"
	"encoding/binary"
	"testing"
	"unicode/utf16"
)

// wide returns a text in UTF-16 and UTF-32 in one byte order.
func wide(text string, order binary.AppendByteOrder) (of16, of32 []byte) {
	for _, u := range utf16.Encode([]rune(text)) {
		of16 = order.AppendUint16(of16, u)
	}
	for _, r := range text {
		of32 = order.AppendUint32(of32, uint32(r))
	}
	return of16, of32
}

func TestUTF8(t *testing.T) {
	const mark = "\ufeff"
	for _, text := range []string{`{"a":"größe 😀"}`, `"ü"`, `[1]`, `12`, ` {"ü": 1}`, "\n\"😀\""} {
		docs := map[string][]byte{"UTF-8": []byte(text), "UTF-8 with a mark": []byte(mark + text)}
		for name, order := range map[string]binary.AppendByteOrder{"little": binary.LittleEndian, "big": binary.BigEndian} {
			docs["UTF-16 "+name], docs["UTF-32 "+name] = wide(text, order)
			docs["UTF-16 with a mark, "+name], docs["UTF-32 with a mark, "+name] = wide(mark+text, order)
		}
		for name, doc := range docs {
			got, err := UTF8(doc)
			if err != nil || string(got) != text {
				t.Errorf("%s in %s = %q, %v", text, name, got, err)
			}
			var root [1]Value
			if err := New(Path{}).Pick(doc, root[:]); err != nil || string(root[0].Raw) != string(bytes.TrimSpace([]byte(text))) {
				t.Errorf("%s in %s: picked %q, %v", text, name, root[0].Raw, err)
			}
		}
	}
	for _, doc := range []string{"", "1", "{}", "\x00", "\x00\x00", "\x00\x00\x00\x00", "\xff", "\xff1", "no JSON"} {
		if got, err := UTF8([]byte(doc)); err != nil || string(got) != doc {
			t.Errorf("%q = %q, %v, want the same", doc, got, err)
		}
	}
	for _, doc := range []string{"{\x00}", "\xff\xfe{", "\xff\xfe\x00\xd8", "\xff\xfe\x00\xd8{\x00", "{\x00\x00\x00}", "\x00\x00\xfe\xff\x00\x11\x00\x00", "\x00\x00\xfe\xff\x00\x00\xd8\x00"} {
		if got, err := UTF8([]byte(doc)); err == nil {
			t.Errorf("%q = %q, want an error", doc, got)
		}
	}
}
