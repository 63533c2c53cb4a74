package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cosmos"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// readPatch reads the properties that a patch sets: paths in the document, and where their values
// come from.
func (t *cosmosTarget) readPatch(n strictyaml.Node) {
	columns := readColumns(n)
	for _, c := range columns {
		first, _, _ := strings.Cut(strings.TrimPrefix(c.name, "/"), "/")
		switch {
		case !strings.HasPrefix(c.name, "/") || c.name == "/":
			c.node.Fail("%q is no path: write /NAME, or /NAME/NAME for a property of an object", c.name)
		case first == "id" || slices.Contains([]string{"_rid", "_ts", "_etag", "_self", "_attachments", cosmos.StampProperty}, first):
			c.node.Fail("%s cannot be patched", first)
		}
	}
	t.patch, t.patchAt = newMapping("property", columns), &n
}

// checkPatch checks that a patch and nothing else goes with operation: patch.
func (t *cosmosTarget) checkPatch(n strictyaml.Node) {
	most := 10
	if t.conditional {
		most-- // one records the event
	}
	switch {
	case t.operation != cosmos.Patch && t.patch != nil:
		t.patchAt.Fail("goes with operation: patch")
	case t.operation != cosmos.Patch:
	case t.patch == nil:
		n.Fail("operation: patch goes with patch, the properties that it sets")
	case len(t.patch.columns) == 0 || len(t.patch.columns) > most:
		t.patchAt.Fail("has %d properties: write 1 to %d", len(t.patch.columns), most)
	case t.ttl.node != nil:
		t.ttl.node.Fail("is for documents that are written: set /ttl in patch")
	}
}

// patchOf returns the operations of an event's patch. A value that the event lacks is left as it
// is.
func (t *cosmosTarget) patchOf(e *sluice.Event) ([]byte, error) {
	m := t.patch
	row, picked := make([]any, len(m.columns)), make([]jsonpick.Value, m.paths)
	if err := m.pick(picked, e); err != nil {
		return nil, err
	}
	b := []byte{'['}
	for i := range m.columns {
		if err := m.fillColumn(i, boxedOrMissing, nil, row, picked, e); err != nil {
			return nil, err
		}
		if _, left := row[i].(missingValue); left {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		path, err := json.Marshal(m.columns[i].name)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, `{"op":"set","path":`...), path...), `,"value":`...)
		if b, err = m.columns[i].typ.appendJSON(b, row[i]); err != nil {
			return nil, fmt.Errorf("property %s: %w", m.columns[i].name, err)
		}
		b = append(b, '}')
	}
	if len(b) == 1 {
		return nil, fmt.Errorf("patch: the event has none of the values")
	}
	return append(b, ']'), m.proof.record(nil)
}

// patchRow is a patch with its properties as values.
func patchRow(patch []byte) (r TriedRow) {
	var steps []struct {
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value"`
	}
	_ = json.Unmarshal(patch, &steps) // patchOf has made it
	for _, s := range steps {
		v := TriedValue{Name: s.Path, From: s.Path, Type: string(typeJSON)}
		if string(s.Value) != "null" {
			v.Value = string(s.Value)
		}
		r.Values = append(r.Values, v)
	}
	return r
}
