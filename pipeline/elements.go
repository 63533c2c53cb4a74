package pipeline

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/internal/jsonscan"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// elements are those of an array in the body: insert.each.
type elements struct {
	origin origin
	picker *jsonpick.Picker // of an element; nil if no column is of one
	first  int              // the first of its values among all that are picked
	index  []int            // where the element's index is among them
}

// maxElements bounds the rows of an event.
const maxElements = 100_000

// readEach reads insert.each.
func readEach(n strictyaml.Node) *elements {
	var text string
	if !n.Text(&text) {
		return nil
	}
	from, err := parseOrigin(text)
	switch {
	case err != nil:
		n.Fail("%w", err)
		return nil
	case from.field == fieldBody:
		from = origin{field: fieldPath}
	case from.field != fieldPath:
		n.Fail("%s: write body, or body.PATH of an array", n.Shown())
		return nil
	}
	return &elements{origin: from}
}

// bind assigns the columns that are of an element the values after so many others, and returns
// how many these are.
func (a *elements) bind(columns []column, others int) int {
	var paths []jsonpick.Path
	a.first = others
	for i := range columns {
		columns[i].origin.pickFrom(fieldElement, &paths, others)
	}
	if len(paths) > 0 {
		a.picker = jsonpick.New(paths...)
	}
	index := []jsonpick.Path{}
	for i := range columns {
		columns[i].origin.pickFrom(fieldIndex, &index, others+len(paths))
	}
	for i := range index {
		a.index = append(a.index, others+len(paths)+i)
	}
	return len(paths) + len(index)
}

// walk calls row for each element, after its values have been picked.
func (a *elements) walk(picked []jsonpick.Value, row func() error) error {
	array := picked[a.origin.slot]
	switch {
	case array.Kind == jsonpick.Missing:
		return fmt.Errorf("each: %s: is missing", a.origin)
	case array.Kind != jsonpick.Array:
		return fmt.Errorf("each: %s: is %s and no array", a.origin, array.Kind)
	}
	scan := jsonscan.New(array.Raw, maxJSONDepth)
	n := 0
	return scan.Array(func() error {
		raw, err := scan.Value()
		switch {
		case err != nil:
			return err
		case n == maxElements:
			return errors.New("each: more than 100,000 elements")
		case a.picker != nil:
			err = a.picker.Pick(raw, picked[a.first:])
		}
		index := strconv.AppendInt(nil, int64(n), 10)
		for _, at := range a.index {
			picked[at] = jsonpick.Value{Kind: jsonpick.Number, Raw: index}
		}
		if err == nil {
			err = row()
		}
		if err != nil {
			return fmt.Errorf("%s[%d]: %w", a.origin, n, err)
		}
		n++
		return nil
	})
}
