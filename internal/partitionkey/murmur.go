package partitionkey

import (
	"encoding/binary"
	"math/bits"
)

// murmur32 is MurmurHash3_x86_32 with seed 0.
func murmur32(data []byte) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	scramble := func(k uint32) uint32 { return bits.RotateLeft32(k*c1, 15) * c2 }
	var h uint32
	rest := data
	for ; len(rest) >= 4; rest = rest[4:] {
		h = bits.RotateLeft32(h^scramble(binary.LittleEndian.Uint32(rest)), 13)*5 + 0xe6546b64
	}
	var k uint32
	for i, b := range rest {
		k |= uint32(b) << (8 * i)
	}
	h ^= scramble(k) ^ uint32(len(data))
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

// murmur128 is MurmurHash3_x64_128 with seed 0.
func murmur128(data []byte) (low, high uint64) {
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	first := func(k uint64) uint64 { return bits.RotateLeft64(k*c1, 31) * c2 }
	second := func(k uint64) uint64 { return bits.RotateLeft64(k*c2, 33) * c1 }
	var h1, h2 uint64
	rest := data
	for ; len(rest) >= 16; rest = rest[16:] {
		h1 = (bits.RotateLeft64(h1^first(binary.LittleEndian.Uint64(rest)), 27)+h2)*5 + 0x52dce729
		h2 = (bits.RotateLeft64(h2^second(binary.LittleEndian.Uint64(rest[8:])), 31)+h1)*5 + 0x38495ab5
	}
	var tail [16]byte
	copy(tail[:], rest)
	h1 ^= first(binary.LittleEndian.Uint64(tail[:])) ^ uint64(len(data))
	h2 ^= second(binary.LittleEndian.Uint64(tail[8:])) ^ uint64(len(data))
	h1 += h2
	h2 += h1
	h1, h2 = mix(h1), mix(h2)
	h1 += h2
	h2 += h1
	return h1, h2
}

func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
