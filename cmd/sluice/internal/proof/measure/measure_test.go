package measure

import (
	"slices"
	"testing"
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
