package hub

import "testing"

// keyVectors are what @azure/event-hubs 6.0.4 (npm) computes: the hash, and the
// partition of 2, 5, 32 and 1,000.
var keyVectors = []struct {
	key        string
	hash       int16
	partitions [4]int
}{
	{"T", 20266, [4]int{0, 1, 10, 266}},
	{"Th", -3434, [4]int{0, 4, 10, 434}},
	{"The", 18730, [4]int{0, 0, 10, 730}},
	{"The ", 17991, [4]int{1, 1, 7, 991}},
	{"The q", 54, [4]int{0, 4, 22, 54}},
	{"The qu", -24518, [4]int{0, 3, 6, 518}},
	{"The qui", 13559, [4]int{1, 4, 23, 559}},
	{"The quic", -23211, [4]int{1, 1, 11, 211}},
	{"The quick", -31241, [4]int{1, 1, 9, 241}},
	{"The quick ", 21620, [4]int{0, 0, 20, 620}},
	{"The quick b", -5091, [4]int{1, 1, 3, 91}},
	{"The quick br", 14759, [4]int{1, 4, 7, 759}},
	{"The quick bro", 3201, [4]int{1, 1, 1, 201}},
	{"The quick brow", -11742, [4]int{0, 2, 30, 742}},
	{"The quick brown", -23719, [4]int{1, 4, 7, 719}},
	{"The quick brown ", -32260, [4]int{0, 0, 4, 260}},
	{"The quick brown f", -3386, [4]int{0, 1, 26, 386}},
	{"The quick brown fo", 32412, [4]int{0, 2, 28, 412}},
	{"The quick brown fox", -3638, [4]int{0, 3, 22, 638}},
	{"The quick brown fox ", -9133, [4]int{1, 3, 13, 133}},
	{"The quick brown fox j", 3236, [4]int{0, 1, 4, 236}},
	{"The quick brown fox ju", -31455, [4]int{1, 0, 31, 455}},
	{"The quick brown fox jum", -15940, [4]int{0, 0, 4, 940}},
	{"The quick brown fox jump", 8637, [4]int{1, 2, 29, 637}},
	{"The quick brown fox jumps", 4819, [4]int{1, 4, 19, 819}},
	{"The quick brown fox jumps ", 32722, [4]int{0, 2, 18, 722}},
	{"The quick brown fox jumps o", 10810, [4]int{0, 0, 26, 810}},
	{"The quick brown fox jumps ov", 27025, [4]int{1, 0, 17, 25}},
	{"The quick brown fox jumps ove", -18043, [4]int{1, 3, 27, 43}},
	{"The quick brown fox jumps over", -7938, [4]int{0, 3, 2, 938}},
	{"The quick brown fox jumps over ", -24011, [4]int{1, 1, 11, 11}},
	{"The quick brown fox jumps over t", -27912, [4]int{0, 2, 8, 912}},
	{"The quick brown fox jumps over th", 2809, [4]int{1, 4, 25, 809}},
	{"The quick brown fox jumps over the", 7406, [4]int{0, 1, 14, 406}},
	{"The quick brown fox jumps over the ", 29052, [4]int{0, 2, 28, 52}},
	{"The quick brown fox jumps over the l", 5693, [4]int{1, 3, 29, 693}},
	{"The quick brown fox jumps over the la", 25562, [4]int{0, 2, 26, 562}},
	{"The quick brown fox jumps over the laz", 1224, [4]int{0, 4, 8, 224}},
	{"The quick brown fox jumps over the lazy", 17301, [4]int{1, 1, 21, 301}},
	{"The quick brown fox jumps over the lazy ", 17711, [4]int{1, 1, 15, 711}},
	{"a", -16220, [4]int{0, 0, 28, 220}},
	{"7149583486996073602", 12977, [4]int{1, 2, 17, 977}},
	{"0", 28433, [4]int{1, 3, 17, 433}},
	{"N12345", 26237, [4]int{1, 2, 29, 237}},
	{"JFK", 4822, [4]int{0, 2, 22, 822}},
	{"ключ", -32174, [4]int{0, 4, 14, 174}},
	{"航空機", -4640, [4]int{0, 0, 0, 640}},
	{"🛫🛬", -8901, [4]int{1, 1, 5, 901}},
	{"é", -24812, [4]int{0, 2, 12, 812}},
	{"\u0000", -2161, [4]int{1, 1, 17, 161}},
	{"\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000", 13021, [4]int{1, 1, 29, 21}},
	{"ÿÿÿÿÿÿ", -4608, [4]int{0, 3, 0, 608}},
	{"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 21896, [4]int{0, 1, 8, 896}},
	{"naïve café", -17291, [4]int{1, 1, 11, 291}},
}

func TestPartitionOf(t *testing.T) {
	for _, v := range keyVectors {
		c, b := lookup3([]byte(v.key))
		if got := int16(c ^ b); got != v.hash {
			t.Errorf("hash of %q: got %d, want %d", v.key, got, v.hash)
		}
		for i, n := range []int{2, 5, 32, 1000} {
			if got := partitionOf(v.key, n); got != v.partitions[i] {
				t.Errorf("partition of %q among %d: got %d, want %d", v.key, n, got, v.partitions[i])
			}
		}
	}
}

// TestLookup3 checks the hash against the examples in its published source.
func TestLookup3(t *testing.T) {
	for _, v := range []struct {
		key  string
		c, b uint32
	}{
		{"", 0xdeadbeef, 0xdeadbeef},
		{"Four score and seven years ago", 0x17770551, 0xce7226e6},
	} {
		if c, b := lookup3([]byte(v.key)); c != v.c || b != v.b {
			t.Errorf("lookup3 of %q: got %x %x, want %x %x", v.key, c, b, v.c, v.b)
		}
	}
}
