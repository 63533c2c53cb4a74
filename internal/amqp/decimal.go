package amqp

import (
	"encoding/binary"
	"math/big"
	"strconv"
	"strings"
)

// String returns the decimal number as text, with the digits that it was sent with: 12.50, -7,
// 1E+6, Infinity, NaN. The form is that of the General Decimal Arithmetic specification
// ("to-scientific-string"), which Java's BigDecimal has too.
//
// The encoding is IEEE 754-2008's with a binary integer (section 3.5.2), as AMQP requires
// (section 1.6.13 to 1.6.15): a sign bit, an exponent, and a coefficient whose highest bits are
// 100 instead of being encoded if the first two bits of the exponent are both set.
func (d Decimal) String() string {
	b := []byte(d)
	var digits, exponentBits int
	switch len(b) {
	case 4:
		digits, exponentBits = 7, 8
	case 8:
		digits, exponentBits = 16, 10
	case 16:
		digits, exponentBits = 34, 14
	default:
		return "NaN"
	}
	sign := ""
	if b[0]&0x80 != 0 {
		sign = "-"
	}
	switch {
	case b[0]&0x7c == 0x78:
		return sign + "Infinity"
	case b[0]&0x7c == 0x7c:
		return "NaN"
	}
	bits := len(b)*8 - 1 // without the sign
	high := binary.BigEndian.Uint32(b) << 1
	coefficientBits := bits - exponentBits
	implied := b[0]&0x60 == 0x60
	if implied {
		high <<= 2
		coefficientBits -= 2
	}
	exponent := int(high >> (32 - exponentBits))
	var coefficient big.Int
	coefficient.SetBytes(b)
	mask := new(big.Int).Lsh(big.NewInt(1), uint(coefficientBits))
	coefficient.And(&coefficient, mask.Sub(mask, big.NewInt(1)))
	if implied {
		coefficient.Or(&coefficient, new(big.Int).Lsh(big.NewInt(4), uint(coefficientBits)))
	}
	text := coefficient.String()
	if len(text) > digits {
		text = "0" // not canonical, which has the value zero
	}
	bias := 3<<(exponentBits-3) + digits - 2 // table 3.6: emax + p - 2
	return sign + scientific(text, exponent-bias)
}

// scientific writes digits × 10^exponent.
func scientific(digits string, exponent int) string {
	adjusted := exponent + len(digits) - 1
	switch {
	case exponent == 0:
		return digits
	case exponent < 0 && adjusted >= -6:
		point := len(digits) + exponent
		if point <= 0 {
			return "0." + strings.Repeat("0", -point) + digits
		}
		return digits[:point] + "." + digits[point:]
	}
	if len(digits) > 1 {
		digits = digits[:1] + "." + digits[1:]
	}
	if adjusted >= 0 {
		return digits + "E+" + strconv.Itoa(adjusted)
	}
	return digits + "E" + strconv.Itoa(adjusted)
}
