package cosmos

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	good := func() Document {
		return Document{ID: "1", PartitionKey: []any{"k"}, Body: []byte(`{"id":"1","key":"k"}`)}
	}
	for name, c := range map[string]struct {
		bend func(d *Document)
		want string // part of the error; empty: none
	}{
		"good":              {func(d *Document) {}, ""},
		"no id in the body": {func(d *Document) { d.Body = []byte(`{}`) }, ""},
		"escaped id":        {func(d *Document) { d.ID, d.Body = `a"b`, []byte(`{"id":"a\"b"}`) }, ""},
		"other escapes":     {func(d *Document) { d.Body = []byte(`{"\u0041":1}`) }, ""},
		"numbers":           {func(d *Document) { d.PartitionKey = []any{1, 2.5, json.Number("3")} }, ""},
		"rest":              {func(d *Document) { d.PartitionKey = []any{true, nil, Undefined} }, ""},
		"source":            {func(d *Document) { d.Source = &Source{Partition: "0"} }, ""},

		"empty id":        {func(d *Document) { d.ID = "" }, "id is empty"},
		"long id":         {func(d *Document) { d.ID = strings.Repeat("x", 1024) }, "at most 1023"},
		"slash":           {func(d *Document) { d.ID = "a/b" }, "contains /, which no id in Cosmos DB may have"},
		"another id":      {func(d *Document) { d.ID = "2" }, "must be the same"},
		"id is a number":  {func(d *Document) { d.Body = []byte(`{"id":1}`) }, "must be the same"},
		"hidden id":       {func(d *Document) { d.Body = []byte(`{"\u0069d":"2"}`) }, "without escapes"},
		"operation":       {func(d *Document) { d.Operation = 9 }, "no such operation"},
		"no key":          {func(d *Document) { d.PartitionKey = nil }, "0 values"},
		"four keys":       {func(d *Document) { d.PartitionKey = []any{1, 2, 3, 4} }, "4 values"},
		"a map as key":    {func(d *Document) { d.PartitionKey = []any{map[string]any{}} }, "must be a string"},
		"long key":        {func(d *Document) { d.PartitionKey = []any{strings.Repeat("x", 2049)} }, "at most 2048"},
		"no number":       {func(d *Document) { d.PartitionKey = []any{math.NaN()} }, "no JSON number"},
		"huge number":     {func(d *Document) { d.PartitionKey = []any{json.Number("1e999")} }, "no JSON number"},
		"not JSON":        {func(d *Document) { d.Body = []byte(`{"id":"1"`) }, "not a JSON object"},
		"an array":        {func(d *Document) { d.Body = []byte(`[1]`) }, "not a JSON object"},
		"an operation":    {func(d *Document) { d.Body = []byte(`{}},{"operationType":"Delete","id":"x"`) }, "not a JSON object"},
		"not UTF-8":       {func(d *Document) { d.Body = []byte("{\"a\":\"\xff\"}") }, "UTF-8"},
		"stamp of others": {func(d *Document) { d.Source = &Source{Partition: "0"}; d.Body = []byte(`{"_sluice":1}`) }, "reserved for the sink"},
		"odd partition":   {func(d *Document) { d.Source = &Source{Partition: "a b"} }, "spaces"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &record{doc: good()}
			c.bend(&r.doc)
			err := r.check()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// Every operation is a JSON object of its own, whatever the document is.
func TestAppendOperation(t *testing.T) {
	id, key := "ü\"\x01", "a\"\\b/ü😀\n"
	for _, s := range []step{upsert, create, replace, read} {
		for _, source := range []*Source{nil, {Topic: `h "1"`, Partition: "0", Epoch: 2, Sequence: 3}} {
			for _, body := range []string{`{}`, ` { "x" : 1 } `, `{"id":"ü\"\u0001","x":1}`} {
				r := &record{doc: Document{ID: id, PartitionKey: []any{key, 1.5, nil}, Body: []byte(body), Source: source}, step: s, etag: `"e"`}
				if err := r.check(); err != nil {
					t.Fatal(err)
				}
				var op struct {
					OperationType, PartitionKey, ID, IfMatch string
					MinimalReturnPreference                  bool
					ResourceBody                             map[string]any
				}
				data := r.appendOperation(nil)
				if err := json.Unmarshal(data, &op); err != nil {
					t.Fatalf("%s: %v", data, err)
				}
				var keys []any
				if err := json.Unmarshal([]byte(op.PartitionKey), &keys); err != nil || !reflect.DeepEqual(keys, r.doc.PartitionKey) {
					t.Errorf("%s: %v, %v", data, keys, err)
				}
				if byID := s == replace || s == read; op.OperationType != s.String() || byID != (op.ID == id) || (s == replace) != (op.IfMatch == r.etag) {
					t.Errorf("%s", data)
				}
				want := map[string]any{"id": id}
				if strings.Contains(body, "x") {
					want["x"] = 1.0
				}
				if source != nil {
					want[StampProperty] = `3 2 0 h "1"`
				}
				if s == read {
					want = nil
				}
				if !reflect.DeepEqual(op.ResourceBody, want) || op.MinimalReturnPreference != (s != read) {
					t.Errorf("%s: %v", data, op.ResourceBody)
				}
				if len(data) > r.size() {
					t.Errorf("%s: %d bytes, more than %d", data, len(data), r.size())
				}
			}
		}
	}
}

func TestSource(t *testing.T) {
	for _, s := range []Source{{}, {Topic: "ns/hub 2026-01-01", Partition: "12", Epoch: 3, Sequence: math.MaxInt64}} {
		if got := parseSource(s.append(nil)); got == nil || *got != s {
			t.Errorf("%+v: read back as %+v", s, got)
		}
	}
	for _, text := range []string{`1`, `""`, `"1 2 3"`, `"x 2 0 t"`, `"1 x 0 t"`, `{`} {
		if got := parseSource([]byte(text)); got != nil {
			t.Errorf("%s is %+v", text, got)
		}
	}
	at := func(sequence, epoch int64) *Source { return &Source{Sequence: sequence, Epoch: epoch} }
	for _, c := range []struct {
		new, old *Source
		want     bool
	}{
		{at(2, 1), at(1, 1), true}, {at(1, 1), at(2, 1), false}, {at(1, 1), at(1, 1), false}, {at(1, 2), at(1, 1), true},
		{at(1, 9), at(2, 1), false}, {at(2, 1), at(1, 9), true}, {at(1, 1), at(1, 2), false},
	} {
		if c.new.newer(c.old) != c.want {
			t.Errorf("%+v over %+v: %v", c.new, c.old, !c.want)
		}
	}
}
