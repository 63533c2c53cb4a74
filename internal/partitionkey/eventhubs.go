package partitionkey

import (
	"encoding/binary"
	"math/bits"
)

// EventHubsPartition maps a key to one of n partitions: Bob Jenkins' lookup3
// (hashlittle2, both seeds 0) over the key's UTF-8 bytes, its two words combined
// by exclusive or, cut to a signed 16-bit number, modulo n without the sign.
func EventHubsPartition(key string, n int) int {
	c, b := lookup3(key)
	i := int(int16(c^b)) % n
	return max(i, -i)
}

// lookup3 is hashlittle2 of http://burtleburtle.net/bob/c/lookup3.c with both
// seeds 0; it returns the primary and the secondary word.
func lookup3(key string) (c, b uint32) {
	a := 0xdeadbeef + uint32(len(key))
	b, c = a, a
	if key == "" {
		return c, b
	}
	var block [12]byte
	read := func() {
		n := copy(block[:], key)
		clear(block[n:]) // the last block is padded with zeros
		key = key[n:]
		a += binary.LittleEndian.Uint32(block[:])
		b += binary.LittleEndian.Uint32(block[4:])
		c += binary.LittleEndian.Uint32(block[8:])
	}
	for len(key) > len(block) {
		read()
		for _, rotation := range [2][3]int{{4, 6, 8}, {16, 19, 4}} {
			a = (a - c) ^ bits.RotateLeft32(c, rotation[0])
			c += b
			b = (b - a) ^ bits.RotateLeft32(a, rotation[1])
			a += c
			c = (c - b) ^ bits.RotateLeft32(b, rotation[2])
			b += a
		}
	}
	read()
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	c = (c ^ b) - bits.RotateLeft32(b, 24)
	return c, b
}
