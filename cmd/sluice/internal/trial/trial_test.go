package trial

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/pipeline"
)

const file = `source: {kafka: {brokers: 'a:1', topic: t}}
partitions: all
database: sqlite:x.db
only: {body.kind: {not: beat}}
routes:
  - only: {body.kind: order}
    target: {insert: {table: orders, key: id, delete_when: {body.op: d}, columns: {id: {from: body.id, type: bigint}, "a name that is rather long for a column": {from: body.name, required: false}}}}
  - only: {body.kind: refund}
    target: {insert: {table: refunds, each: body.items, columns: {n: each_index, amount: {from: each, type: numeric}}}}
`

// tryAll tries bodies, of which each is on a line of its own of a file.
func tryAll(t *testing.T, keep int, bodies ...string) (*Summary, []*Sample) {
	t.Helper()
	p, err := pipeline.Parse("f.yaml", []byte(file), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	s := &Summary{Keep: keep}
	var list []*Sample
	for i, body := range bodies {
		e := &Sample{Event: &sluice.Event{Partition: "0", Sequence: int64(i), Body: []byte(body)}, Place: fmt.Sprintf("f.json: line %d", i+1)}
		if e.Tried, err = p.Try(t.Context(), e.Event); err != nil {
			t.Fatal(err)
		}
		s.Add(e)
		list = append(list, e)
	}
	return s, list
}

func TestTrySummary(t *testing.T) {
	name := strings.Repeat(`x\u001b[31m\n`, 40)
	s, list := tryAll(t, 2,
		`{"kind":"order","id":1,"name":"`+name+`"}`, `{"kind":"order","id":2,"op":"d"}`, `{"kind":"order","id":3,"name":null}`, `{"kind":"order","id":4}`,
		`{"kind":"order","id":"a \" 1"}`, `{"kind":"order","id":"b"}`, `{"kind":"beat"}`, `{"kind":"refund","items":[1.5,"2"]}`,
		`{"kind":"refund","items":[1.5,"much"]}`, `{"kind":"refund","items":[]}`, `{"kind":"other"}`, "{")
	if s.Events != 12 || s.Dead != 5 || s.Skipped != 1 || len(s.Targets) != 2 {
		t.Fatalf("%+v", s)
	}
	for _, width := range []int{60, 80, 120, 0} {
		var b bytes.Buffer
		s.Report(&b, width)
		for _, e := range list {
			if e.Err != nil {
				WriteFailed(&b, e, width)
			}
		}
		most := columns(width)
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > most && !strings.HasPrefix(line, "  body: ") {
				t.Errorf("width %d: %d characters: %q", width, n, line)
			}
		}
		for _, part := range []string{
			"  4  route 1: 3 rows of orders, 1 delete in orders\n", "  2  route 2: 2 rows of refunds\n", "  1  left out by only or otherwise\n", "  5  would become dead letters\n",
			`2 × column id: body.id: "a `, "\nRow of orders: f.json: line 1\n", "\nRow of orders, deleted: f.json: line 2\n  id  2\n",
		} {
			if !strings.Contains(b.String(), part) {
				t.Errorf("width %d: no %q in\n%s", width, part, b.String())
			}
		}
		if strings.Contains(b.String(), "\x1b") {
			t.Errorf("an escape sequence: %q", b.String())
		}
	}
}

func TestTryLinesOfJSON(t *testing.T) {
	_, list := tryAll(t, 0, `{"kind":"order","id":1,"name":null}`, `{"kind":"order","id":2,"op":"d"}`, `{"kind":"beat"}`, `{"kind":"refund","items":[1.50,"x"]}`)
	list[0].Place = ""
	for i, want := range []string{
		`{"partition":"0","sequence":0,"outcome":"rows","route":1,"table":"orders","rows":[{"id":1,"a name that is rather long for a column":null}]}`,
		`{"place":"f.json: line 2","outcome":"deleted","route":1,"table":"orders","rows":[{"id":2}]}`,
		`{"place":"f.json: line 3","outcome":"skipped"}`,
		`{"place":"f.json: line 4","outcome":"dead_letter","route":2,"table":"refunds","rows":[{"n":0,"amount":1.50},{"n":1,"amount":{"error":"column amount: each: \"x\" where a number should be"}}],"error":"body.items[1]: column amount: each: \"x\" where a number should be"}`,
	} {
		var b bytes.Buffer
		if err := WriteJSON(&b, list[i]); err != nil || b.String() != want+"\n" || !json.Valid(b.Bytes()) {
			t.Errorf("%v: %s\nwant %s", err, b.String(), want)
		}
	}
}

// Events with ever new names, as of documents, and ever new mistakes take bounded memory.
func TestTrySummaryIsBounded(t *testing.T) {
	s := &Summary{}
	for i := range 3000 {
		v := pipeline.TriedValue{Name: fmt.Sprint("a", i), Type: "json", Value: "1"}
		s.Add(&Sample{Event: &sluice.Event{}, Tried: pipeline.Tried{Kind: "cosmos", Rows: []pipeline.TriedRow{{Values: []pipeline.TriedValue{v}}}}})
		s.Add(&Sample{Event: &sluice.Event{}, Tried: pipeline.Tried{Route: -1, Err: fmt.Errorf("%s is wrong", strings.Repeat("a", i+1))}})
	}
	if len(s.Targets[0].Columns) != mostColumns || len(s.Reasons) != mostReasons || s.More != 3000-mostReasons {
		t.Errorf("%d columns, %d reasons, %d more", len(s.Targets[0].Columns), len(s.Reasons), s.More)
	}
	var b bytes.Buffer
	s.Report(&b, 80)
	if !strings.Contains(b.String(), "  2,990 for other reasons: --failed shows all\n") {
		t.Error(b.String()[:2000])
	}
}
