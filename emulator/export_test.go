package emulator

import (
	"testing"
	"time"
)

// SetFirstBytes sets firstBytes until the test ends, which must not be parallel to others.
func SetFirstBytes(t testing.TB, d time.Duration) {
	was := firstBytes
	firstBytes = d
	t.Cleanup(func() { firstBytes = was })
}
