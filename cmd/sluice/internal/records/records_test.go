package records_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
)

// read returns all records as "unit number body", rejected ones with the reason in place of the
// body, and the error that ended it.
func read(text string, cfg *records.Config) (got []string, err error) {
	return readFrom(strings.NewReader(text), cfg)
}

func readFrom(in io.Reader, cfg *records.Config) (got []string, err error) {
	r := records.NewReader(in, "in", cfg)
	for {
		rec, err := r.Next()
		var rejected *records.RejectedError
		switch {
		case errors.Is(err, io.EOF):
			return got, nil
		case errors.As(err, &rejected):
			reason, _, _ := strings.Cut(rejected.Reason, " (")
			got = append(got, fmt.Sprintf("%s %d REJECTED %s", rejected.Unit, rejected.Number, reason))
		case err != nil:
			return got, err
		default:
			got = append(got, fmt.Sprintf("%s %d %s", rec.Unit, rec.Number, rec.Body))
		}
	}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", ""},
		{"blank", " \n\n", ""},
		{"lines", "{\"a\":1}\n\n  {\"a\":2}\r\n{\"a\":3}", `line 1 {"a":1}|line 3 {"a":2}|line 4 {"a":3}`},
		{"blank lines first", "\n\n{\"a\":1}\n", `line 3 {"a":1}`},
		{"byte order mark", "\xef\xbb\xbf{\"a\":1}\n", `line 1 {"a":1}`},
		{"lines of other values", "{\"a\":1}\n7\nnull\n", `line 1 {"a":1}|line 2 7|line 3 null`},
		{"array", ` [{"a":"],}\"["} , [1,{"b":[]}],7]` + "\n", `record 1 {"a":"],}\"["}|record 2 [1,{"b":[]}]|record 3 7`},
		{"empty array", "[ ]", ""},
		{"arrays in lines", "[1,2]\n[3]\n", `line 1 [1,2]|line 2 [3]`},
		{"concatenated", "\n{\"a\":1}{\"a\":\"}\"} [2]\n{\"a\":3}", `line 2 {"a":1}|line 2, value 2 {"a":"}"}|line 2, value 3 [2]|line 3 {"a":3}`},
		{"pretty", "{\n \"a\": [\n  {\"x\":1}\n ]\n}\n\n{\n}\n", "line 1 {\n \"a\": [\n  {\"x\":1}\n ]\n}|line 7 {\n}"},
		{"carriage returns", "{\"a\":1}\r{\"a\":2}\r", `line 1 {"a":1}|line 1, value 2 {"a":2}`},
		{"GeoJSON", `{"type":"FeatureCollection","features":[{"type":"Feature","id":1},{"type":"Feature","id":2}]}`, `feature 1 {"type":"Feature","id":1}|feature 2 {"type":"Feature","id":2}`},
		{"GeoJSON, features first", `{"name":"x", "features": [ {"type":"Feature"} ] , "crs":{"a":[1]}, "type":"FeatureCollection"}`, `feature 1 {"type":"Feature"}`},
		{"GeoJSON, several", "{\"type\":\"FeatureCollection\",\"features\":[1]}\n{\"type\":\"FeatureCollection\",\"features\":[]}\n{\"features\":[2],\"type\":\"FeatureCollection\"}", `feature 1 1|feature 2 2`},
		{"GeoJSON features in lines", "{\"type\":\"Feature\"}\n{\"type\":\"Feature\"}\n", `line 1 {"type":"Feature"}|line 2 {"type":"Feature"}`},
		{"features of something else", `{"features":[1,2],"id":7}`, `line 1 {"features":[1,2],"id":7}`},
		{"one column", "a\nx y\n", `line 2 {"a":"x y"}`},
		{"header with a line break", "\"a\nb\",c\r\n1,2\r\n", `line 3 {"a\nb":1,"c":2}`},
		{"other delimiters within quotes", "\"a;b|c\",d\n1,2\n", `line 2 {"a;b|c":1,"d":2}`},
		{"table", "date,delay,id\n2001/01/14 21:55,-5,007\n,1e3,\"a,\"\"b\"\"\nc\"\n-,1.50,12345678901234567890\n",
			`line 2 {"date":"2001/01/14 21:55","delay":-5,"id":"007"}|line 3 {"date":null,"delay":1e3,"id":"a,\"b\"\nc"}|line 5 {"date":"-","delay":1.50,"id":12345678901234567890}`},
		{"header only", "a,b\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := read(c.in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if g := strings.Join(got, "|"); g != c.want {
				t.Errorf("got  %s\nwant %s", g, c.want)
			}
		})
	}
}

func TestMalformed(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"array element", `[{"a":1},{"a"}]`, "in: record 2: not JSON"},
		{"trailing comma", `[1,]`, "in: record 2: not JSON"},
		{"array without end", `[{"a":1},{"a":2}`, "in: after record 1: the array has no end"},
		{"array with a tail", `[1] x`, "in: 'x' follows the end of the array"},
		{"nameless column", "a,,b\n1,2,3\n", "in: line 1: column 2 has no name"},
		{"twin columns", "a,a\n1,2\n", "in: line 1: two columns are named a"},
		{"stray quote", "a,b\n1,x\"y\n", "in: line 2:"},
		{"endless quote", "a\n\"" + strings.Repeat("x", 3*records.MaxSize), "a closing quote may be missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := read(c.in, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestTooLargeIsNamedAndTheRestIsRead(t *testing.T) {
	large := `{"a":"` + strings.Repeat("x", records.MaxSize) + `"}`
	for _, c := range []struct{ name, in, want string }{
		{"lines", "{\"a\":1}\n" + large + "\n{\"a\":3}\n", `line 1 {"a":1}|line 2 REJECTED too large|line 3 {"a":3}`},
		{"array", `[{"a":1},` + large + `,{"a":3}]`, `record 1 {"a":1}|record 2 REJECTED too large|record 3 {"a":3}`},
		{"table", "a\n1\n" + strings.Repeat("x", records.MaxSize) + "\n3\n", `line 2 {"a":1}|line 3 REJECTED too large|line 4 {"a":3}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := read(c.in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if g := strings.Join(got, "|"); g != c.want {
				t.Errorf("got %s, want %s", g, c.want)
			}
		})
	}
}

func BenchmarkArray(b *testing.B) {
	text := "[" + strings.Repeat(`{"date":"2001/01/01 00:47","delay":66,"distance":1750,"origin":"DTW","destination":"LAS"},`, 9999) + "{}]"
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r := records.NewReader(strings.NewReader(text), "in", nil)
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
	}
}
