package hub

import (
	"encoding/binary"
	"math/bits"
)

// partitionOf maps a partition key to one of n partitions as Azure's client
// libraries do when they choose the partition themselves, so that both sides
// agree: Bob Jenkins' lookup3 (hashlittle2, both seeds 0) over the key's UTF-8
// bytes, its two words combined by exclusive or, cut to a signed 16-bit number,
// modulo n without the sign.
func partitionOf(key string, n int) int {
	c, b := lookup3([]byte(key))
	i := int(int16(c^b)) % n
	if i < 0 {
		return -i
	}
	return i
}

// lookup3 is hashlittle2 of http://burtleburtle.net/bob/c/lookup3.c with both
// seeds 0; it returns the primary and the secondary word.
func lookup3(key []byte) (c, b uint32) {
	a := 0xdeadbeef + uint32(len(key))
	b, c = a, a
	if len(key) == 0 {
		return c, b
	}
	for len(key) > 12 {
		a += binary.LittleEndian.Uint32(key)
		b += binary.LittleEndian.Uint32(key[4:])
		c += binary.LittleEndian.Uint32(key[8:])
		for _, r := range [2][3]int{{4, 6, 8}, {16, 19, 4}} {
			a = (a - c) ^ bits.RotateLeft32(c, r[0])
			c += b
			b = (b - a) ^ bits.RotateLeft32(a, r[1])
			a += c
			c = (c - b) ^ bits.RotateLeft32(b, r[2])
			b += a
		}
		key = key[12:]
	}
	// Bytes missing from the last block count as zero.
	var last [12]byte
	copy(last[:], key)
	a += binary.LittleEndian.Uint32(last[:])
	b += binary.LittleEndian.Uint32(last[4:])
	c += binary.LittleEndian.Uint32(last[8:])

	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	c = (c ^ b) - bits.RotateLeft32(b, 24)
	return c, b
}
