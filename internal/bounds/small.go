//go:build sluice_small_bounds

package bounds

// Choose returns a bound.
func Choose(normal, small int) int { return small }

// Small reports whether bounds are small.
const Small = true
