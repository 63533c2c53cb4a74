package figures

import "strconv"

// Kind is what a figure tells of its values.
type Kind uint8

// The kinds. All but Count pass over events that lack the value, and are null
// where none has it.
const (
	Count Kind = iota // how many events there are
	Sum
	Min
	Max
	Avg // the double nearest to the sum divided by how many values there are
)

// Kinds are the kinds by name.
var Kinds = map[string]Kind{"count": Count, "sum": Sum, "min": Min, "max": Max, "avg": Avg}

// value is how far a figure has come.
type value struct {
	seen int64
	so   Number
}

func (v *value) take(k Kind, n *Number) {
	if n == nil {
		return
	}
	v.seen++
	switch {
	case v.seen == 1, k == Min && n.Less(v.so), k == Max && v.so.Less(*n):
		v.so = *n
	case k == Sum || k == Avg:
		v.so = v.so.Add(*n)
	}
}

// of writes the figure as JSON.
func (v *value) of(k Kind, events int64) string {
	switch {
	case k == Count:
		return strconv.FormatInt(events, 10)
	case v.seen == 0:
		return "null"
	case k == Avg:
		return strconv.FormatFloat(v.so.Over(v.seen), 'g', -1, 64)
	}
	return v.so.String()
}
