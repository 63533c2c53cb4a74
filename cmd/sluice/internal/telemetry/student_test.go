package telemetry

import (
	"math"
	"testing"
)

// TestQuantile compares with the tables of Student's t.
func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		share float64
		free  int
		want  float64
	}{
		{0.995, 3, 5.8409}, {0.995, 4, 4.6041}, {0.995, 8, 3.3554}, {0.995, 20, 2.8453}, {0.9995, 5, 6.8688}, {0.9995, 20, 3.8495}, {0.995, 1000, 2.5808},
	} {
		if got := quantile(c.share, c.free); math.Abs(got/c.want-1) > 0.01 {
			t.Errorf("%v with %d degrees of freedom is %v, want %v", c.share, c.free, got, c.want)
		}
	}
}
