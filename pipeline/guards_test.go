package pipeline

import (
	"fmt"
	"slices"
	"testing"
)

// A guard refuses exactly the values that its column would change.
func TestGuards(t *testing.T) {
	labels := amongLabels(`enum('none','it''s','2',' 3','a,b')`)
	for _, c := range []struct {
		name  string
		guard guard
		value any
		ok    bool
	}{
		{"real", exactIn(24), int64(12), true}, {"real", exactIn(24), int64(1 << 24), true}, {"real", exactIn(24), int64(1<<24 + 1), false}, {"real", exactIn(24), int64(1 << 40), true},
		{"real", exactIn(24), int64(-1<<24 - 1), false}, {"double", exactIn(53), int64(1<<53 + 1), false}, {"double", exactIn(53), int64(-1 << 63), true}, {"double", exactIn(53), int64(1<<63 - 1), false},
		{"real", exactIn(24), nil, true},
		{"date", unchanged(withoutTime), "2026-07-08", true}, {"date", unchanged(withoutTime), "January 8, 1999", true}, {"date", unchanged(withoutTime), "20260708", true}, {"date", unchanged(withoutTime), nil, true},
		{"date", unchanged(withoutTime), "2026-07-08T12:00:00Z", false}, {"date", unchanged(withoutTime), "20260708T120000", false}, {"date", unchanged(withoutTime), "2026-07-08 12:00", false},
		{"time", unchanged(withoutDate), "12:34:56.789", true}, {"time", unchanged(withoutDate), "1:05 pm", true}, {"time", unchanged(withoutDate), "2026-07-08 12:34:56", false}, {"time", unchanged(withoutDate), "12:34:56+02", false},
		{"enum", labels, "none", true}, {"enum", labels, "2", true}, {"enum", labels, "1", false}, {"enum", labels, "0", false}, {"enum", labels, " 1", false}, {"enum", labels, "+1", false},
		{"enum", labels, " 3", true}, {"enum", labels, "3", false}, {"enum", labels, "other", true}, // the server refuses it
		{"NUMERIC", unchanged(asWritten), "12", true}, {"NUMERIC", unchanged(asWritten), "1.0", false}, {"NUMERIC", unchanged(asWritten), "-0", false}, {"NUMERIC", unchanged(asWritten), "1234567890123456", false},
		{"NUMERIC", unchanged(asWritten), `{"a": 1}`, true}, {"NUMERIC", unchanged(asWritten), `"1.0"`, true},
	} {
		cells := []cell{{other: c.value}}
		switch v := c.value.(type) {
		case string:
			cells = append(cells, ownText(v))
		case int64:
			cells = append(cells, cell{kind: cellInteger, integer: v})
		}
		for _, of := range cells {
			if v, err := c.guard(of); (err == nil) != c.ok || err == nil && v != of {
				t.Errorf("%s of %#v: %v, %v", c.name, c.value, v, err)
			}
		}
	}
	if got := fmt.Sprintf("%q", labelsOf(`set('a','it''s','x,y','')`)); got != `["a" "it's" "x,y" ""]` {
		t.Errorf("labels %s", got)
	}
	if got := labelsOf("int"); slices.Contains(got, "") || len(got) > 0 {
		t.Errorf("labels %q", got)
	}
}
