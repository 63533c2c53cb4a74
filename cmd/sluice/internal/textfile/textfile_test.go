package textfile_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sluice-go/sluice/cmd/sluice/internal/textfile"
)

func open(in io.Reader, encoding textfile.Encoding) (string, error) {
	r, err := textfile.Open(in, encoding)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	return string(text), err
}

// TestSignatures names formats that begin like text only if they are not text.
func TestSignatures(t *testing.T) {
	for _, text := range []string{"PAR1,PAR2\n", "ORC\n", "GIF87a,b\n", "MZ,b\n", "BZh\n", "RIFF\n", "PK,b\n", "Obj,b\n", "%,b\n", "{\\", "7z\n", ""} {
		if got, err := open(strings.NewReader(text), ""); err != nil || got != text {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"PAR1\x15\x00": "Parquet", "ORC\x08\x03": "ORC", "GIF89a\x01\x00": "a GIF image", "MZ\x90\x00": "a program of Windows",
		"RIFF\x00\x00": "a RIFF file (WebP, WAV)", "7z\xbc\xaf\x27\x1c": "a 7z archive", "%PDF-1.4": "a PDF document",
	} {
		var refused *textfile.Error
		if _, err := open(strings.NewReader(text), ""); !errors.As(err, &refused) || refused.Cause != want+", which cannot be read" || refused.Next == "" {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestEncodingNames(t *testing.T) {
	for _, e := range textfile.Encodings {
		if got, err := textfile.ParseEncoding(strings.ToUpper(string(e))); err != nil || got != e {
			t.Errorf("%s: got %s, %v", e, got, err)
		}
	}
	if got, err := textfile.ParseEncoding("ISO-8859-1"); err != nil || got != textfile.Latin1 {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := textfile.ParseEncoding("ebcdic"); err == nil {
		t.Error("no error for ebcdic")
	}
}

// UTF-16 is decoded as package utf16 decodes it, except halves of pairs.
func FuzzUTF16(f *testing.F) {
	f.Add("a,b\n1,é😀\n", true, false)
	f.Add("\xd8\x3d\xde\x00\xd8\x3d\n\x00", false, true)
	f.Fuzz(func(t *testing.T, raw string, big, slow bool) {
		encoding := textfile.UTF16LE
		if big {
			encoding = textfile.UTF16BE
		}
		var units []uint16
		for i := 0; i+1 < len(raw); i += 2 {
			a, b := uint16(raw[i]), uint16(raw[i+1])
			if big {
				a, b = b, a
			}
			units = append(units, b<<8|a)
		}
		var in io.Reader = strings.NewReader(raw)
		if slow {
			in = iotest.OneByteReader(in)
		}
		got, err := open(in, encoding)
		if err != nil {
			return
		}
		if len(units) > 0 && units[0] == 0xfeff {
			units = units[1:]
		}
		want := string(utf16.Decode(units))
		if len(raw)%2 == 1 {
			want += "\ufffd"
		}
		if got = strings.ReplaceAll(got, "\xff", "\ufffd"); got != want {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
	})
}

// Windows-1252 and Latin-1 decode each byte to one character, or mark it.
func TestSingleBytes(t *testing.T) {
	var all strings.Builder
	for c := 1; c < 256; c++ {
		all.WriteByte(byte(c))
	}
	for encoding, invalid := range map[textfile.Encoding]int{textfile.Latin1: 32, textfile.Windows1252: 5} {
		// Behind the beginning, so that it is not refused.
		got, err := open(strings.NewReader(strings.Repeat("x", 1<<17)+all.String()), encoding)
		if err != nil {
			t.Fatal(err)
		}
		got = got[1<<17:]
		if n := strings.Count(got, "\xff"); n != invalid || utf8.RuneCountInString(got) != 255 {
			t.Errorf("%s: %d marks, %d characters", encoding, n, utf8.RuneCountInString(got))
		}
	}
}
