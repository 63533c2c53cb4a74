package epk

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// A Definition is what of a container's partition key definition decides the hash.
type Definition struct {
	// Hierarchical is kind "MultiHash": a key of up to three components, each hashed on its own. It is always of version 2.
	Hierarchical bool
	// Version is 1, that of containers made before 2019 and of those that don't state one, or 2.
	Version int
}

// Hash is the effective partition key; that of no values is "". A hierarchical key with its last components left out gives the prefix that the keys below it begin
// with: they are all in [hash, hash+"FF").
func (d Definition) Hash(values ...Value) string {
	var space [192]byte
	return string(d.AppendHash(space[:0], values...))
}

// AppendHash appends what [Definition.Hash] returns.
func (d Definition) AppendHash(dst []byte, values ...Value) []byte {
	switch {
	case len(values) == 0:
		return dst
	case d.Hierarchical:
		for i := range values {
			dst = appendV2(dst, values[i:i+1])
		}
		return dst
	case d.Version == 2:
		return appendV2(dst, values)
	default:
		return appendV1(dst, values[0])
	}
}

// appendV2 hashes with 128 bits, and clears the top two, so that every key is below "FF", the end of the last range.
func appendV2(dst []byte, values []Value) []byte {
	var space [256]byte
	in := space[:0]
	for _, v := range values {
		in = append(in, byte(v.kind))
		switch v.kind {
		case text:
			in = append(append(in, v.text...), 0xff)
		case number:
			in = binary.LittleEndian.AppendUint64(in, math.Float64bits(v.number))
		}
	}
	low, high := murmur128(in)
	var sum [16]byte
	binary.BigEndian.PutUint64(sum[:], high&^(3<<62))
	binary.BigEndian.PutUint64(sum[8:], low)
	return appendHex(dst, sum[:])
}

// maxV1 is how much of a string counts in version 1, in UTF-16 units.
const maxV1 = 100

// appendV1 hashes with 32 bits, and appends the value to the hash, both in the encoding whose bytes sort as the values do.
func appendV1(dst []byte, v Value) []byte {
	var space [512]byte
	in := append(space[:0], byte(v.kind))
	switch v.kind {
	case text:
		v.text = cut(v.text, maxV1)
		in = append(append(in, v.text...), 0)
	case number:
		in = binary.LittleEndian.AppendUint64(in, math.Float64bits(v.number))
	}
	var outSpace [512]byte
	out := appendSortable(outSpace[:0], Number(float64(murmur32(in))))
	return appendHex(dst, appendSortable(out, v))
}

// cut shortens a string to n UTF-16 units. A character that it halves becomes the replacement character, as in the clients, whose strings
// are UTF-16.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i, r := range s {
		size := 1
		if r >= 0x10000 {
			size = 2
		}
		switch {
		case n == 0:
			return s[:i]
		case size > n:
			return s[:i] + string(utf8.RuneError)
		}
		n -= size
	}
	return s
}

// appendSortable is the binary encoding of version 1, of the .NET, Java and Python clients. The JavaScript client leaves out a number's last
// byte where it is 0, and measures long strings in UTF-16 units: that moves no key to another range, because the hash stands before it.
func appendSortable(dst []byte, v Value) []byte {
	dst = append(dst, byte(v.kind))
	switch v.kind {
	case number:
		bits := math.Float64bits(v.number)
		if bits>>63 == 0 {
			bits ^= 1 << 63
		} else {
			bits = -bits
		}
		dst = append(dst, byte(bits>>56))
		for bits <<= 8; bits<<7 != 0; bits <<= 7 {
			dst = append(dst, byte(bits>>56)|1)
		}
		return append(dst, byte(bits>>56)&^1)
	case text:
		whole := len(v.text) <= maxV1
		s := v.text
		if !whole {
			s = s[:maxV1+1]
		}
		for i := range len(s) {
			dst = append(dst, s[i]+1) // UTF-8 has no byte 0xff
		}
		if whole {
			dst = append(dst, 0)
		}
	}
	return dst
}

const digits = "0123456789ABCDEF"

func appendHex(dst, src []byte) []byte {
	for _, b := range src {
		dst = append(dst, digits[b>>4], digits[b&15])
	}
	return dst
}
