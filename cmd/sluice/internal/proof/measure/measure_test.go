package measure

import (
	"os"
	"slices"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for want, of := range map[float64][]float64{0: nil, 2: {2}, 2.5: {1, 4, 2, 3}, 3: {9, 3, 1}} {
		if got := Median(of); got != want {
			t.Errorf("median of %v: %v", of, got)
		}
	}
}

func TestAlternate(t *testing.T) {
	list := []int{1, 2, 3}
	if got := Alternate(list, 1); !slices.Equal(got, []int{3, 2, 1}) || !slices.Equal(Alternate(list, 2), list) {
		t.Error(got)
	}
}

func TestCPUOf(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("there is no /proc")
	}
	for began := time.Now(); CPUOf(os.Getpid()) == 0; {
		if time.Since(began) > time.Minute {
			t.Fatal("a process that computes uses no processor time")
		}
	}
}
