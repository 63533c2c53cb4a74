package measure

import (
	"os"
	"testing"
	"time"
)

// Elsewhere there is no /proc, and CPUOf returns 0, as it says.
func TestCPUOf(t *testing.T) {
	for began := time.Now(); CPUOf(os.Getpid()) == 0; {
		if time.Since(began) > time.Minute {
			t.Fatal("a process that computes uses no processor time")
		}
	}
}
