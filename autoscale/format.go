package autoscale

import (
	"math"
	"strconv"
)

// FormatNumber returns f as text for people: without decimals if f is a whole
// number, otherwise with four significant digits.
func FormatNumber(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 4, 64)
}
