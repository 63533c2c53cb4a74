//go:build sluice_small_bounds

package bounds

// Of returns a bound.
func Of(normal, small int) int { return small }

// Small reports whether bounds are small.
const Small = true
