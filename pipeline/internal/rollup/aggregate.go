package rollup

import "strconv"

// Function computes a statistic from the values of a group.
type Function uint8

// All functions except Count ignore events that lack the value, and are null if
// all do.
const (
	Count Function = iota // the number of events
	Sum
	Min
	Max
	Avg // the double nearest to the sum divided by the number of values
)

// Functions are the functions by name.
var Functions = map[string]Function{"count": Count, "sum": Sum, "min": Min, "max": Max, "avg": Avg}

// accumulator is the state of one statistic.
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

// json returns the statistic as JSON.
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
