package partitionkey

import "testing"

// TestMurmur2 checks the hash against the examples of Kafka's own test,
// UtilsTest.testMurmur2.
func TestMurmur2(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2(key)); got != want {
			t.Errorf("hash of %q: got %d, want %d", key, got, want)
		}
	}
}

func TestKafkaPartition(t *testing.T) {
	for key, want := range map[string]int{"21": 3, "foobar": 0, "abc": 4, "a-little-bit-long-string": 1} {
		if got := KafkaPartition(key, 7); got != want {
			t.Errorf("partition of %q among 7: got %d, want %d", key, got, want)
		}
	}
}
