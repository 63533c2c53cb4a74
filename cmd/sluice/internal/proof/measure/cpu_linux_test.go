package measure

import (
	"os"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// Elsewhere there is no /proc, and CPUOf returns 0, as it says.
func TestCPUOf(t *testing.T) {
	need.RealTime(t)
	for began := time.Now(); CPUOf(os.Getpid()) == 0; {
		if time.Since(began) > time.Minute {
			t.Fatal("a process that computes uses no processor time")
		}
	}
}
