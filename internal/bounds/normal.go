//go:build !sluice_small_bounds

package bounds

// Choose returns a bound.
func Choose(normal, small int) int { return normal }

// Small reports whether bounds are small.
const Small = false
