package infer

import (
	"fmt"
	"strings"
	"testing"
)

// sampleOf has an event for each body.
func sampleOf(bodies ...string) *Sample {
	var s Sample
	for _, b := range bodies {
		s.Add([]byte(b))
	}
	return &s
}

// shown is a column in one line.
func shown(c Column) string {
	text := c.Name + " " + c.From + " " + c.Type
	for _, more := range []string{c.Format, c.Zone} {
		if more != "" {
			text += " " + more
		}
	}
	return text
}

func TestTypes(t *testing.T) {
	for _, c := range []struct {
		key    string
		values []string
		want   string
	}{
		{"n", []string{`1`, `-7`, `9223372036854775807`}, "bigint"},
		{"n", []string{`1`, `9223372036854775808`}, "numeric"},
		{"n", []string{`1`, `2.5`, `1e3`}, "double"},
		{"n", []string{`1`, `12345678901234567.5`}, "numeric"},
		{"n", []string{`1`, `1e400`}, "numeric"},
		{"n", []string{`1`, `"x"`}, "text"},
		{"n", []string{`1`, `[1]`}, "json"},
		{"n", []string{`1`, `{"a":1}`}, "json"},
		{"n", []string{`null`, `null`}, "json"},
		{"n", []string{`null`, `{"a":1,"b":1}`}, "a body.n.a bigint"},
		{"n", []string{`true`, `false`, `null`}, "boolean"},
		{"n", []string{`"True"`, `"FALSE"`}, "boolean"},
		{"n", []string{`true`, `"x"`}, "text"},
		{"zip", []string{`"01234"`, `"99999"`}, "text"},
		{"v", []string{`"a\u0000b"`}, "json"},
		{"at", []string{`"2026-07-08T21:04:05Z"`, `"2026-07-08 21:04:05.5+02"`}, "timestamp"},
		{"at", []string{`"2026-07-08T21:04:05"`, `"2026-07-08T21:04:05Z"`}, "timestamp UTC"},
		{"at", []string{`"2026-07-08"`, `"2026-07-09"`}, "date"},
		{"at", []string{`"2026-07-08T00:00:00"`}, "date"},
		{"at", []string{`"2026-07-08"`, `"soon"`}, "text"},
		{"at", []string{`"2026-07-08"`, `""`}, "text"},
		{"at", []string{`"31.01.2026"`, `"01.02.2026"`}, "date dd.MM.yyyy"},
		{"at", []string{`"3.1.2026"`, `"31.12.2026"`}, "date d.M.yyyy"},
		{"at", []string{`"01/31/2026 21:04"`}, "timestamp MM/dd/yyyy HH:mm UTC"},
		{"at", []string{`"01/02/2026"`, `"03/04/2026"`}, "text"}, // which is the day?
		{"at", []string{`"01/02/2026"`, `"03/14/2026"`}, "date MM/dd/yyyy"},
		{"at", []string{`"7/8/2026 9:04:05 PM"`, `"7/18/2026 12:00:00 AM"`}, "timestamp M/d/yyyy h:mm:ss a UTC"},
		{"at", []string{`"08/Jul/2026:21:04:05 +0200"`}, "timestamp dd/MMM/yyyy:HH:mm:ss Z"},
		{"created_at", []string{`1783544645`, `1783544645.5`}, "timestamp unix"},
		{"ts", []string{`1783544645678`, `null`}, "timestamp unix_ms"},
		{"ts", []string{`1783544645678`, `17`}, "bigint"},
		{"count", []string{`1783544645678`}, "bigint"},
	} {
		var s Sample
		for _, v := range c.values {
			s.Add([]byte(`{"` + c.key + `":` + v + `}`))
		}
		columns, _ := s.Columns()
		if got := shown(columns[0]); !strings.HasSuffix(got, " "+c.want) && got != c.want {
			t.Errorf("%s = %v: %s, want %s", c.key, c.values, got, c.want)
		}
	}
}

func TestColumns(t *testing.T) {
	s := sampleOf(
		`{"id":1,"customerName":"a","type":"t","item":{"type":"x","Unit Price":1.5},"tags":["a"],"sequence_number":7,"é":1,"7up":1,"a b":1,"a_b":2}`,
		`{"id":2,"type":"t","item":{"type":"y"},"extra":true}`,
		"\ufeff"+`{"id":3}`, `[1]`, `no JSON`)
	var got []string
	columns, whole := s.Columns()
	for _, c := range columns {
		got = append(got, fmt.Sprint(shown(c), " ", c.Seen, " ", c.Unique))
	}
	want := []string{
		"id body.id bigint 3 true",
		"customer_name body.customerName text 1 true",
		"type body.type text 2 false",
		"item_type body.item.type text 2 true",
		`unit_price body.item["Unit Price"] double 1 true`,
		"tags body.tags json 1 false",
		"sequence_number_2 body.sequence_number bigint 1 true",
		`é body.é bigint 1 true`,
		"n7up body.7up bigint 1 true",
		`a_b body["a b"] bigint 1 true`,
		"a_b_2 body.a_b bigint 1 true",
		"extra body.extra boolean 1 true",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || !whole {
		t.Errorf("columns, whole %v:\n%s\nwant\n%s", whole, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if objects, others, why := s.Events(); objects != 3 || others != 2 || !strings.Contains(why.Error(), "an array and no object") {
		t.Errorf("%d objects, %d others, %v", objects, others, why)
	}
}

// What has no end becomes JSON, so that no input makes a table that no database has.
func TestLimits(t *testing.T) {
	var wide, maps []string
	for i := range 500 {
		wide = append(wide, fmt.Sprintf(`"k%d":%d`, i, i))
		maps = append(maps, fmt.Sprintf(`{"by":{"k%d":1},"lang":{"a":{"n":1},"b":{"n":1},"c":{"n":1},"d":{"n":1},"e":{"n":1},"f":{"n":1},"g":{"n":1},"h":{"n":1}}}`, i))
	}
	s := sampleOf(`{"w":{`+strings.Join(wide, ",")+`}}`, `{"deep":{"a":{"b":{"c":{"d":1}}}}}`)
	columns, _ := s.Columns()
	if len(columns) != 2 || shown(columns[0]) != "w body.w json" || shown(columns[1]) != "c body.deep.a.b.c json" {
		t.Errorf("columns %+v", columns)
	}
	columns, _ = sampleOf(maps...).Columns()
	if len(columns) != 2 || shown(columns[0]) != "by body.by json" || shown(columns[1]) != "lang body.lang json" {
		t.Errorf("columns %+v", columns)
	}
	s = sampleOf(`{` + strings.Join(wide, ",") + `}`)
	if columns, whole := s.Columns(); len(columns) != 100 || whole {
		t.Errorf("%d columns, whole %v", len(columns), whole)
	}
}

func FuzzSample(f *testing.F) {
	f.Add(`{"a":{"b":[1]},"c":"2026-07-08"}`, `{"a":1}`)
	f.Fuzz(func(t *testing.T, one, other string) {
		columns, _ := sampleOf(one, other, one).Columns()
		for _, c := range columns {
			if c.Name == "" || len(c.Name) > 63 || c.Type == "" {
				t.Errorf("%+v", c)
			}
		}
	})
}
