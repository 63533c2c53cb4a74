package records_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
	"github.com/sluice-go/sluice/cmd/sluice/internal/textfile"
)

func FuzzReader(f *testing.F) {
	for _, s := range []string{
		"", "{}\n{}", "[1,{},[]]", "a,b\n1,\"x\"\n", "[\"\\\"]", "\xef\xbb\xbf[", "[}]", "a,a\n", "{}{}", "{\n}\n{\n}", "[1]\n[2]\n",
		"{\"type\":\"FeatureCollection\",\"features\":[{},{}]}", "{\"features\":[{\"type\":\"Feature\"}],\"type\":\"FeatureCollection\"}",
		"\xff\xfea\x00\n\x001\x00\n\x00", "a\n\xfc\n", "a\n\x00\n", "a;b\n1;2\n", "\x1f\x8b\x08", "\x28\xb5\x2f\xfd", "{}\n{\n{}\n", "{\\rtf",
		zipped(f, "a,b\n1,2\n"), zstandard(f, "{}\n"), string(capturedFile(f, &capturedEvent{Body: []byte("{}")})),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) { checkReader(t, text, nil) })
}

// FuzzConfig is FuzzReader with encodings and delimiters.
func FuzzConfig(f *testing.F) {
	f.Add("a\n\x80\n", "windows-1252", int32(0))
	f.Add("a\x00\n\x00\x00\xd8\n\x00", "utf-16le", int32(';'))
	f.Fuzz(func(t *testing.T, text, encoding string, delimiter int32) {
		cfg := &records.Config{Encoding: textfile.Encoding(encoding)}
		if _, err := textfile.ParseEncoding(encoding); err != nil {
			cfg.Encoding = ""
		}
		if d, err := records.ParseDelimiter(string(rune(delimiter))); err == nil {
			cfg.Delimiter = d
		}
		checkReader(t, text, cfg)
	})
}

// checkReader fails unless what a reader returns is JSON in UTF-8 without NUL bytes and within the
// limit, and each error has one line.
func checkReader(t *testing.T, text string, cfg *records.Config) {
	t.Helper()
	r := records.NewReader(strings.NewReader(text), "in", cfg)
	for n := 0; ; n++ {
		rec, err := r.Next()
		var rejected *records.RejectedError
		switch {
		case errors.As(err, &rejected):
		case err != nil:
			if n > 0 && strings.Contains(err.Error(), "which cannot be read") {
				t.Fatalf("after %d records: %v", n, err)
			}
			if again := err.Error(); strings.ContainsAny(again, "\n\x00") {
				t.Fatalf("an error of several lines: %q", again)
			}
			return
		case rec.Event != nil: // with any body
		case !json.Valid(rec.Body):
			t.Fatalf("record %d is not JSON: %q", n, rec.Body)
		case bytes.IndexByte(rec.Body, 0) >= 0, !utf8.Valid(rec.Body):
			t.Fatalf("record %d is not text: %q", n, rec.Body)
		case len(rec.Body) > records.MaxSize:
			t.Fatalf("record %d has %d bytes", n, len(rec.Body))
		}
		if n > 1<<20 {
			t.Fatal("more records than characters")
		}
	}
}

// The same input in other pieces has the same records.
func FuzzPieces(f *testing.F) {
	f.Add("{\"a\":1}\n{\"a\":2}", 3)
	f.Add("[1,2]\n", 1)
	f.Add("a,b\n1,2\n", 2)
	f.Fuzz(func(t *testing.T, text string, size int) {
		if len(text) > 1<<16 || size < 1 {
			return
		}
		want, err := read(text, nil)
		if err != nil {
			return
		}
		got, err := readFrom(&pieces{text, size}, nil)
		if g, w := strings.Join(got, "|"), strings.Join(want, "|"); err == nil && g != w {
			t.Fatalf("in pieces: %s\nwhole:     %s", g, w)
		}
	})
}

// pieces returns a text in pieces.
type pieces struct {
	text string
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, io.EOF
	}
	n := copy(b, p.text[:min(p.size, len(p.text))])
	p.text = p.text[n:]
	return n, nil
}
