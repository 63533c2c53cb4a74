package clock

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	const least, most = 100 * time.Millisecond, 10 * time.Second
	b := Backoff{Min: least, Max: most, Rand: rand.New(rand.NewPCG(1, 2))}
	for range 2 {
		full := least
		for n := range 100 {
			got := b.Next()
			if got > full || got < full-full/4 {
				t.Fatalf("wait %d is %v, want %v or up to a quarter less", n, got, full)
			}
			full = min(2*full, most)
		}
		b.Reset()
	}
}
