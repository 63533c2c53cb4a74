package records_test

import (
	"bytes"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
	"github.com/sluice-go/sluice/cmd/sluice/internal/textfile"
)

func zipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zstandard(t testing.TB, text string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(w.EncodeAll([]byte(text), nil))
}

func wide(text string, big bool) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(text)) {
		if big {
			b = append(b, byte(u>>8), byte(u))
		} else {
			b = append(b, byte(u), byte(u>>8))
		}
	}
	return string(b)
}

// TestRefused reads what is not understood, at once and byte by byte: it is refused before the
// first record, by its name and with what to do.
func TestRefused(t *testing.T) {
	table := "id,name\n1,a\n"
	for _, c := range []struct{ name, in, want string }{
		{"ZIP", "PK\x03\x04\x14\x00a.csv", "in: a ZIP archive, which cannot be read: unpack it"},
		{"workbook", "PK\x03\x04\x14\x00[Content_Types].xml\x00xl/workbook.xml", "in: an Excel workbook (.xlsx), which cannot be read: export its rows as CSV"},
		{"PNG", "\x89PNG\r\n\x1a\n\x00\x00", "in: a PNG image"},
		{"PDF", "%PDF-1.7\n1 0 obj\n", "in: a PDF document"},
		{"Parquet", "PAR1\x15\x04\x15\x10\x00PAR1", "in: Parquet, which cannot be read: export"},
		{"Avro", "Obj\x01\x04\x16avro.schema", "in: Avro"},
		{"SQLite", "SQLite format 3\x00\x10", "in: a database of SQLite"},
		{"bzip2", "BZh91AY&SY\x00\xff", "in: bzip2, which cannot be read: decompress it first"},
		{"xz", "\xfd7zXZ\x00\x00", "in: xz"},
		{"tar", "a.csv" + strings.Repeat("\x00", 252) + "ustar\x00", "in: a tar archive"},
		{"gzip in gzip", zipped(t, zipped(t, table)), "in: gzip within compressed data"},
		{"ZIP in zstd", zstandard(t, "PK\x03\x04\x14\x00"), "in: a ZIP archive"},
		{"RTF", "{\\rtf1\\ansi}", "in: an RTF document"},
		{"XML", "<?xml version=\"1.0\"?><a/>", "in: XML (it begins with"},
		{"HTML", "\n<!DOCTYPE html>\n<p>", "in: HTML"},
		{"UTF-16", "\xff\xfe" + wide(table, false), "in: UTF-16 (by its byte order mark), not utf-8: pass --encoding utf-16"},
		{"UTF-16 without a mark", wide(table, true), "in: UTF-16 (by its NUL bytes), not utf-8: pass --encoding utf-16be"},
		{"UTF-16 JSON", wide(`{"a":1}`, false), "pass --encoding utf-16le"},
		{"UTF-32", "\xff\xfe\x00\x00i\x00\x00\x00", "in: UTF-32"},
		{"UTF-32 without a mark", "i\x00\x00\x00d\x00\x00\x00", "in: UTF-32"},
		{"Latin-1", "id,name\n1,M\xfcller\n", "in: not UTF-8 (byte 0xFC in line 2): pass --encoding windows-1252"},
		{"Latin-1 header", "gr\xf6\xdfe\n1\n", "in: not UTF-8 (byte 0xF6 in line 1)"},
		{"Latin-1 JSON", "{\"a\":\"\xfc\"}\n", "in: not UTF-8"},
		{"NUL byte", "a,b\n1,x\x00y\n", "in: not text (a NUL byte in line 2)"},
		{"semicolons", "id;name\n1;a\n", "in: line 1: the header has semicolons between its columns: pass --delimiter ';'"},
		{"tabs", "id\tname\n1\ta\n", "the header has tabs between its columns: pass --delimiter tab"},
		{"bars", "id|name\n1|a\n", "the header has vertical bars between its columns: pass --delimiter '|'"},
		{"semicolons and commas", "id;price, EUR;n\n1;2,50;3\n", "pass --delimiter ';'"},
		{"line for spreadsheets", "sep=;\nid;name\n", "in: line 1: sep=; is for spreadsheets only"},
		{"log", "2026-01-01 12:00:00 INFO started\n", "is neither JSON nor the header of CSV"},
		{"YAML", "---\nname: a\n", "is neither JSON nor the header of CSV"},
		{"prose", "It was a dark and stormy night.\n", "is neither JSON nor the header of CSV"},
		{"JSON strings", "\"a\"\n\"b\"\n", "is neither JSON nor the header of CSV"},
		{"JSON null", "null\nnull\n", "is neither JSON nor the header of CSV"},
		{"numbers", "1,2,3\n4,5,6\n", "in: line 1: all columns' names are numbers: the header is missing"},
		{"title above the header", "Sales, all of them\nid,name,price\n", "in: line 2: the header has 2 columns"},
		{"carriage returns", "a,b\r1,2\r", "in: line 1: its lines end with carriage returns alone"},
		{"control character", "a\x1fb\n", "it has the control character 0x1F"},
		{"JSON text sequence", "\x1e{\"a\":1}\n", "in: a JSON text sequence"},
		{"broken first line", "{\"a\":1,}\n{\"a\":2}\n", "in: line 1: not JSON"},
		{"endless line", strings.Repeat("x", 70<<10), "the first line is longer than 64 KiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec, err := records.NewReader(strings.NewReader(c.in), "in", nil).Next()
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %s, %v, want %q", rec.Body, err, c.want)
			}
			// What comes slowly may be refused before enough of it is there to name it.
			slow := records.NewReader(iotest.OneByteReader(strings.NewReader(c.in)), "in", nil)
			if rec, err = slow.Next(); err == nil {
				t.Errorf("byte by byte: got %s", rec.Body)
			}
		})
	}
}

func TestEncodings(t *testing.T) {
	text := "id,name\n1,Zoë 😀\n"
	want := `line 2 {"id":1,"name":"Zoë 😀"}`
	for _, c := range []struct {
		name, in string
		encoding textfile.Encoding
		want     string
	}{
		{"UTF-16, little", "\xff\xfe" + wide(text, false), textfile.UTF16, want},
		{"UTF-16, big", "\xfe\xff" + wide(text, true), textfile.UTF16, want},
		{"UTF-16LE", wide(text, false), textfile.UTF16LE, want},
		{"UTF-16LE with a mark", "\xff\xfe" + wide(text, false), textfile.UTF16LE, want},
		{"UTF-16BE", wide(text, true), textfile.UTF16BE, want},
		{"UTF-16 lines", wide("{\"a\":\"é\"}\n", false), textfile.UTF16LE, `line 1 {"a":"é"}`},
		{"Latin-1", "a\n\xe9\n", textfile.Latin1, `line 2 {"a":"é"}`},
		{"Windows-1252", "a\n\x80\xe9\n", textfile.Windows1252, `line 2 {"a":"€é"}`},
		{"UTF-16LE, half a unit at the end", wide("a\nx\ny", false) + "b", textfile.UTF16LE, `line 2 {"a":"x"}|line 3 REJECTED column 1: not utf-16le`},
		{"cut character at the end", "a\nx\n\xc3", "", `line 2 {"a":"x"}|line 3 REJECTED column 1: not utf-8`},
		{"gzip", zipped(t, text), "", want},
		{"zstd", zstandard(t, text), "", want},
		{"UTF-16 in gzip", zipped(t, "\xff\xfe"+wide(text, false)), textfile.UTF16, want},
		{"two streams of gzip", zipped(t, "a\n1\n") + zipped(t, "2\n"), "", `line 2 {"a":1}|line 3 {"a":2}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, in := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in))} {
				got, err := readFrom(in, &records.Config{Encoding: c.encoding})
				if g := strings.Join(got, "|"); err != nil || g != c.want {
					t.Errorf("got  %s, %v\nwant %s", g, err, c.want)
				}
			}
		})
	}
	for _, c := range []struct {
		name, in string
		encoding textfile.Encoding
		want     string
	}{
		{"ASCII as UTF-16", text[:8], textfile.UTF16LE, "UTF-8, not utf-16le: pass --encoding utf-8"},
		{"no mark", wide(text, true), textfile.UTF16, "UTF-16 without a byte order mark: pass --encoding utf-16be"},
		{"the other order", "\xfe\xff" + wide(text, true), textfile.UTF16LE, "UTF-16 (by its byte order mark), not utf-16le: pass --encoding utf-16"},
		{"UTF-8 with a mark", "\xef\xbb\xbf" + text, textfile.Latin1, "UTF-8 (by its byte order mark), not latin-1: pass --encoding utf-8"},
		{"Windows-1252 as Latin-1", "a\n\x80\n", textfile.Latin1, "not latin-1 (line 2)"},
		{"half a pair", wide("a\n", false) + "\x00\xd8", textfile.UTF16LE, "not utf-16le (line 2)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := read(c.in, &records.Config{Encoding: c.encoding}); err == nil || !strings.Contains(err.Error(), c.want) || got != nil {
				t.Errorf("got %s, %v, want %s", got, err, c.want)
			}
		})
	}
}

// A fault far behind the beginning rejects its record alone, where the ends of records are certain.
func TestRejectedInTheMiddle(t *testing.T) {
	const before = 20_000
	objects := strings.Repeat("{\"a\":1}\n", before)
	rows := "a,b\n" + strings.Repeat("1,2\n", before)
	elements := "[" + strings.Repeat("1234,", before)
	for _, c := range []struct{ name, in, want string }{
		{"lines, Latin-1", objects + "{\"a\":\"\xfc\"}\n{\"a\":3}\n", `line 20001 REJECTED not utf-8|line 20002 {"a":3}`},
		{"lines, NUL", objects + "{\"a\":\"\x00\"}\n{\"a\":3}\n", `line 20001 REJECTED a NUL byte|line 20002 {"a":3}`},
		{"lines, cut off", objects + "{\"a\":\n{\"a\":3}\n{\"a\":4}\n", `line 20001 REJECTED not JSON: unexpected end of JSON input|line 20002 {"a":3}|line 20003 {"a":4}`},
		{"lines, cut off in a text", objects + "{\"a\":\"x\n{\"a\":3}\n", `line 20001 REJECTED not JSON: unexpected end of JSON input|line 20002 {"a":3}`},
		{"lines, cut off at the end", objects + "{\"a\":", `line 20001 REJECTED not JSON: unexpected end of JSON input`},
		{"lines, a word", objects + "oops\n{\"a\":3}\n", `line 20001 REJECTED not JSON: invalid character 'o' looking for beginning of value|line 20002 {"a":3}`},
		{"array, Latin-1", elements + "\"\xfc\",3]", "record 20001 REJECTED not utf-8|record 20002 3"},
		{"table, Latin-1", rows + "\xfc,2\n3,4\n", `line 20002 REJECTED column 1: not utf-8|line 20003 {"a":3,"b":4}`},
		{"table, NUL", rows + "1,\x00\n3,4\n", `line 20002 REJECTED column 2: a NUL byte|line 20003 {"a":3,"b":4}`},
		{"table, short row", rows + "1\n3,4\n", `line 20002 REJECTED the header has 2 columns, but this line has another number|line 20003 {"a":3,"b":4}`},
		{"table, stray quote", rows + "1,x\"y\n3,4\n", `line 20002 REJECTED bare " in non-quoted-field|line 20003 {"a":3,"b":4}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := read(c.in, nil)
			if err != nil || len(got) < before {
				t.Fatalf("%d records: %v", len(got), err)
			}
			if g := strings.Join(got[before:], "|"); g != c.want {
				t.Errorf("got  %s\nwant %s", g, c.want)
			}
		})
	}
	// Where the ends are not certain, no part of a record may be taken for one.
	for _, c := range []struct{ name, in, want string }{
		{"pretty among lines", objects + "{\n  \"b\": [\n    {\"x\":1}\n  ]\n}\n", "in: line 20001: not JSON: unexpected end of JSON input: it looks like a part of a longer value"},
		{"a list over lines", objects + "{\"b\":[\n{\"x\":1}\n]}\n", "in: line 20001: not JSON"},
		{"a list's element", objects + "{\"x\":1},\n{\"x\":2}\n", "in: line 20001: not JSON"},
		{"the end of a list", objects + "]}\n", "in: line 20001: not JSON"},
		{"a quote over lines", rows + "1,\"x\n3,4\n5,6\"7\n", "in: line 20002: a quote is not closed before line 20004"},
		{"a short row over lines", rows + "\"1\n3,4\"\n5,6\n", "in: line 20002: the header has 2 columns"},
		{"a broken element", elements + "{\"a\"},3]", "in: record 20001: not JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := read(c.in, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(got) != before {
				t.Errorf("%d records, %v, want %s", len(got), err, c.want)
			}
		})
	}
}

func TestDelimiters(t *testing.T) {
	for flag, in := range map[string]string{
		";": "id;price, EUR\n1;2,50\n", "tab": "id\tprice, EUR\n1\t2,50\n", "|": "id|price, EUR\n1|2,50\n",
	} {
		d, err := records.ParseDelimiter(flag)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(in, &records.Config{Delimiter: d})
		if g := strings.Join(got, "|"); err != nil || g != `line 2 {"id":1,"price, EUR":"2,50"}` {
			t.Errorf("%s: %s, %v", flag, g, err)
		}
	}
	// With a delimiter the input is CSV, also where it does not look like it.
	for in, want := range map[string]string{"2026: a|b\n1\n": `line 2 {"2026: a|b":1}`, "{a},b\n1,2\n": `line 2 {"{a}":1,"b":2}`} {
		if got, err := read(in, &records.Config{Delimiter: ','}); err != nil || strings.Join(got, "|") != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	for _, text := range []string{"", "ab", "a", "7", "\"", "\n", "\xff", "tabs"} {
		if d, err := records.ParseDelimiter(text); err == nil {
			t.Errorf("%q is the delimiter %q", text, rune(d))
		}
	}
}

// A compressed stream that ends early does not end the records as a whole file does.
func TestDamagedStreams(t *testing.T) {
	text := "a\n" + strings.Repeat("12345678\n", 50_000)
	for name, packed := range map[string]string{"gzip": zipped(t, text), "zstd": zstandard(t, text)} {
		for cut := 1; cut < len(packed); cut += max(1, len(packed)/50) {
			got, err := read(packed[:len(packed)-cut], nil)
			if err == nil {
				t.Errorf("%s without its last %d bytes: no error", name, cut)
			}
			for _, g := range got {
				if !strings.HasSuffix(g, `{"a":12345678}`) {
					t.Errorf("%s without its last %d bytes: the record %s", name, cut, g)
				}
			}
		}
	}
	if _, err := read(zipped(t, text)+"more than this file", nil); err == nil || !strings.Contains(err.Error(), "something else follows the gzip stream") {
		t.Errorf("got %v", err)
	}
}

// endless is a text that never ends.
type endless struct {
	text string
	read int64
}

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = e.text[(e.read+int64(i))%int64(len(e.text))]
	}
	e.read += int64(len(b))
	return len(b), nil
}

// TestMemoryIsBounded reads records much larger than the limit, from a compressed stream.
func TestMemoryIsBounded(t *testing.T) {
	const size = 80 << 20
	for name, c := range map[string]struct{ begin, text string }{
		"lines": {"{\"a\":1}\n{\"a\":\"", "x"}, "array": {"[1,\"", "x"}, "value": {"{\"a\":1} {\"a\":\"", "x"}, "nested": {"{\"a\":1} ", "["},
		"feature": {`{"type":"FeatureCollection","features":[1,"`, "x"}, "column": {"a\n1\n", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			pipe, to := io.Pipe()
			go func() {
				w := gzip.NewWriter(to)
				_, err := io.Copy(w, io.MultiReader(strings.NewReader(c.begin), io.LimitReader(&endless{text: c.text}, size)))
				if err == nil {
					err = w.Close()
				}
				to.CloseWithError(err)
			}()
			defer pipe.Close()
			r := records.NewReader(pipe, "in", nil)
			if rec, err := r.Next(); err != nil {
				t.Fatal(rec, err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			rec, err := r.Next()
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Errorf("a record of %d bytes", len(rec.Body))
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > size {
				t.Errorf("%d bytes allocated: %v", n, err)
			}
		})
	}
}
