package rollup

import (
	"errors"
	"math/big"
	"strconv"
	"strings"
)

// Number is an exact decimal. The zero value is 0. Numbers are immutable.
type Number struct {
	small int64
	large *big.Rat // instead of small
	scale int      // the most digits that large has after the decimal point
}

// MaxDigits is the limit of digits before the decimal point, and of those after it.
const MaxDigits = 38

// ErrTooLong is the error of a number with more digits.
var ErrTooLong = errors.New("is a number of more than 38 digits before or after the decimal point")

// ParseNumber reads a plain decimal such as -12.5.
func ParseNumber(text string) (Number, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	digits := strings.TrimLeft(whole, "-")
	fraction = strings.TrimRight(fraction, "0")
	if len(digits) > MaxDigits || len(fraction) > MaxDigits {
		return Number{}, ErrTooLong
	}
	if fraction == "" {
		if i, err := strconv.ParseInt(whole, 10, 64); err == nil {
			return Number{small: i}, nil
		}
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return Number{}, strconv.ErrSyntax
	}
	return Number{large: r, scale: len(fraction)}, nil
}

func (n Number) rat() *big.Rat {
	if n.large != nil {
		return n.large
	}
	return new(big.Rat).SetInt64(n.small)
}

// Add returns n + m.
func (n Number) Add(m Number) Number {
	if n.large == nil && m.large == nil {
		if s := n.small + m.small; (s > n.small) == (m.small > 0) {
			return Number{small: s}
		}
	}
	return Number{large: new(big.Rat).Add(n.rat(), m.rat()), scale: max(n.scale, m.scale)}
}

// Less reports whether n < m.
func (n Number) Less(m Number) bool {
	if n.large == nil && m.large == nil {
		return n.small < m.small
	}
	return n.rat().Cmp(m.rat()) < 0
}

// DividedBy returns the double nearest to n / count.
func (n Number) DividedBy(count int64) float64 {
	f, _ := new(big.Rat).Quo(n.rat(), new(big.Rat).SetInt64(count)).Float64()
	return f
}

// String returns all digits, without trailing zeros.
func (n Number) String() string {
	if n.large == nil {
		return strconv.FormatInt(n.small, 10)
	}
	s := n.large.FloatString(n.scale)
	if n.scale > 0 {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}
