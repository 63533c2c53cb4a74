// Package measure holds what the programs that measure share: processor time of
// other processes, the order of turns, medians.
package measure

import (
	"fmt"
	"slices"
)

// Alternate is the order of the contenders in a round. It is reversed every
// other round, so that none always follows the same one, whose effects on
// caches and files it would inherit.
func Alternate[T any](list []T, round int) []T {
	list = slices.Clone(list)
	if round%2 == 1 {
		slices.Reverse(list)
	}
	return list
}

// Median is the middle of a list, or the mean of the two in the middle; 0 for none.
func Median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Thousands is a number for a table: 950, 12.3k.
func Thousands(n float64) string {
	if n < 1000 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.1fk", n/1000)
}
