package infer

import (
	"fmt"
	"strings"
	"testing"
)

// events adds n events of each template, in which # is a number.
func shapesOf(n int, templates ...string) *Shapes {
	var s Shapes
	for i := range n {
		for _, t := range templates {
			s.Add([]byte(strings.ReplaceAll(t, "#", fmt.Sprint(i))), nil)
		}
	}
	return &s
}

func splitText(s *Split) string {
	if s == nil {
		return "one table"
	}
	text := s.From + ":"
	for _, one := range s.Shapes {
		text += fmt.Sprintf(" %v %d", one.Values, one.Events)
	}
	return text
}

func TestSplit(t *testing.T) {
	order := `{"type":"order","id":#,"total":#,"customer":"c#"}`
	shipment := `{"type":"shipment","id":#,"carrier":"x","tracking":"t#"}`
	for _, c := range []struct {
		name      string
		n         int
		templates []string
		want      string
	}{
		{"two shapes", 5, []string{order, shipment}, "body.type: [order] 5 [shipment] 5"},
		{"too few", 4, []string{order, shipment}, "one table"},
		{"one shape", 50, []string{order, strings.Replace(order, `"order"`, `"refund"`, 1)}, "one table"},
		{"two of three are alike", 9, []string{shipment, order, strings.Replace(order, `"order"`, `"refund"`, 1)}, "body.type: [order refund] 18 [shipment] 9"},
		{"one has more", 50, []string{order, `{"type":"big","id":#,"total":#,"customer":"c#","a":1,"b":2}`}, "one table"},
		{"one value differs", 50, []string{order, `{"type":"odd","id":#,"total":#,"client":"c#"}`}, "one table"},
		{"one without the value", 50, []string{order, shipment, `{"id":#,"x":1,"y":1}`}, "one table"},
		{"numbers", 9, []string{strings.Replace(order, `"order"`, `1`, 1), strings.Replace(shipment, `"shipment"`, `2`, 1)}, "body.type: [1] 9 [2] 9"},
		{"inside", 9, []string{`{"meta":{"kind":"a"},"a":{"x":#,"y":2}}`, `{"meta":{"kind":"b"},"b":{"z":#,"w":2}}`}, "body.meta.kind: [a] 9 [b] 9"},
		{"another name", 19, []string{strings.Replace(order, "type", "site", 1), strings.Replace(shipment, "type", "site", 1)}, "one table"},
		{"another name, often", 20, []string{strings.Replace(order, "type", "site", 1), strings.Replace(shipment, "type", "site", 1)}, "body.site: [order] 20 [shipment] 20"},
		{"no objects", 20, []string{`[1]`, `no JSON`}, "one table"},
		{"no name", 20, []string{`{"type":"","a#":1}`}, "one table"},
	} {
		if got := splitText(shapesOf(c.n, c.templates...).Split()); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestSplitByTextBesideTheBody(t *testing.T) {
	var s Shapes
	for i := range 10 {
		s.Add(fmt.Appendf(nil, `{"type":"x","a":%d,"b":1}`, i), map[string]string{"properties.kind": "one"})
		s.Add(fmt.Appendf(nil, `{"type":"x","c":%d,"d":1}`, i), map[string]string{"properties.kind": "two"})
	}
	if got := splitText(s.Split()); got != "properties.kind: [one] 10 [two] 10" {
		t.Error(got)
	}
}

// Many values never make many tables.
func TestManyValues(t *testing.T) {
	var s Shapes
	for i := range 1000 {
		s.Add(fmt.Appendf(nil, `{"type":"t%d","a%d":1,"b%d":1}`, i%13, i%13, i%13), nil)
	}
	if got := splitText(s.Split()); got != "one table" {
		t.Error(got)
	}
}
