package rollup

import "strconv"

// Function is what a figure tells of its values.
type Function uint8

// The kinds. All but Count pass over events that lack the value, and are null
// where none has it.
const (
	Count Function = iota // how many events there are
	Sum
	Min
	Max
	Avg // the double nearest to the sum divided by how many values there are
)

// Functions are the kinds by name.
var Functions = map[string]Function{"count": Count, "sum": Sum, "min": Min, "max": Max, "avg": Avg}

// accumulator is how far a figure has come.
type accumulator struct {
	count  int64
	result Number
}

func (v *accumulator) add(k Function, n *Number) {
	if n == nil {
		return
	}
	v.count++
	switch {
	case v.count == 1, k == Min && n.Less(v.result), k == Max && v.result.Less(*n):
		v.result = *n
	case k == Sum || k == Avg:
		v.result = v.result.Add(*n)
	}
}

// json writes the figure as JSON.
func (v *accumulator) json(k Function, events int64) string {
	switch {
	case k == Count:
		return strconv.FormatInt(events, 10)
	case v.count == 0:
		return "null"
	case k == Avg:
		return strconv.FormatFloat(v.result.DividedBy(v.count), 'g', -1, 64)
	}
	return v.result.String()
}
