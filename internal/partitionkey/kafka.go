package partitionkey

// KafkaPartition maps a key to one of n partitions, as Kafka's own clients do by
// default: MurmurHash2 of the key's bytes without the sign bit, modulo n.
func KafkaPartition(key string, n int) int { return int(murmur2(key)&0x7fffffff) % n }

// murmur2 is MurmurHash2 with the seed of Kafka's clients.
func murmur2(key string) uint32 {
	const seed, m, r = 0x9747b28c, 0x5bd1e995, 24
	h := seed ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := uint32(key[0]) | uint32(key[1])<<8 | uint32(key[2])<<16 | uint32(key[3])<<24
		k *= m
		k ^= k >> r
		h = h*m ^ k*m
	}
	if len(key) > 0 {
		for i := range len(key) {
			h ^= uint32(key[i]) << (8 * i)
		}
		h *= m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
