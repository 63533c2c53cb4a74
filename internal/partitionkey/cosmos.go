package partitionkey

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// Definition is the part of a container's partition key definition that decides the
// hash.
type Definition struct {
	// Hierarchical means kind "MultiHash": a key of up to three components, each with
	// its own hash. Its version is always 2.
	Hierarchical bool
	// Version is 1 or 2. It is 1 in containers created before 2019 and in those that
	// don't specify one.
	Version int
}

// Hash returns the effective partition key; for no values it is "". For a hierarchical
// key without its last components, it is the prefix of all keys below it: they are in
// [hash, hash+"FF").
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

// appendV2 appends a hash of 128 bits. The top two bits are cleared, so that every key
// is below "FF", the end of the last range.
func appendV2(dst []byte, values []Value) []byte {
	var space [256]byte
	in := space[:0]
	for _, v := range values {
		in = append(in, byte(v.kind))
		switch v.kind {
		case textKind:
			in = append(append(in, v.text...), 0xff)
		case numberKind:
			in = binary.LittleEndian.AppendUint64(in, math.Float64bits(v.number))
		}
	}
	low, high := murmur128(in)
	var sum [16]byte
	binary.BigEndian.PutUint64(sum[:], high&^(3<<62))
	binary.BigEndian.PutUint64(sum[8:], low)
	return appendHex(dst, sum[:])
}

// maxV1 is how much of a string version 1 hashes, in UTF-16 code units.
const maxV1 = 100

// appendV1 appends a hash of 32 bits and then the value, both in an encoding whose
// bytes sort as the values do.
func appendV1(dst []byte, v Value) []byte {
	var space [512]byte
	in := append(space[:0], byte(v.kind))
	switch v.kind {
	case textKind:
		v.text = truncate(v.text, maxV1)
		in = append(append(in, v.text...), 0)
	case numberKind:
		in = binary.LittleEndian.AppendUint64(in, math.Float64bits(v.number))
	}
	var outSpace [512]byte
	out := appendSortable(outSpace[:0], Number(float64(murmur32(in))))
	return appendHex(dst, appendSortable(out, v))
}

// truncate shortens a string to n UTF-16 code units. Half of a surrogate pair becomes
// the replacement character, as in the clients, whose strings are UTF-16.
func truncate(s string, n int) string {
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

// appendSortable appends a value in the binary encoding of version 1, as the .NET, Java
// and Python clients do. The JavaScript client omits a number's last byte if it is 0,
// and measures long strings in UTF-16 code units. Neither moves a key to another range,
// because the hash comes first.
func appendSortable(dst []byte, v Value) []byte {
	dst = append(dst, byte(v.kind))
	switch v.kind {
	case numberKind:
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
	case textKind:
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
