package pipeline

import (
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strings"
)

// guard refuses the values that a column would change without an error, or returns them as the
// column takes them.
type guard func(c cell) (cell, error)

// unchanged makes a guard that changes no value.
func unchanged(refuse func(c cell) error) guard {
	return func(c cell) (cell, error) { return c, refuse(c) }
}

// guards has one for each column of a mapping; nil: the column changes nothing.
type guards []guard

// exactIn refuses whole numbers that a float of so many significant bits does not have.
func exactIn(significant int) guard {
	return unchanged(func(c cell) error {
		i, ok := c.sharedValue().(int64)
		if !ok {
			return nil
		}
		size := uint64(max(i, -i))
		if bits.Len64(size)-bits.TrailingZeros64(size) > significant {
			return fmt.Errorf("%d is not exact in a column of %d bits: change the column to a type of whole numbers", i, significant)
		}
		return nil
	})
}

var (
	dayTime = regexp.MustCompile(`:|[0-9][tT ] *[0-9]|^\s*[0-9]{9}`)
	onlyDay = regexp.MustCompile(`^\s*[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?\s*([aApP][mM])?\s*$`)
)

// withoutTime refuses dates with a time of day, which a date column would cut.
func withoutTime(c cell) error {
	if s, ok := c.sharedValue().(string); ok && dayTime.MatchString(s) {
		return fmt.Errorf("%q has a time of day, which a date column would cut: change the column, or write a statement with a cast", truncated([]byte(s)))
	}
	return nil
}

// withoutDate refuses times of day with a date or an offset, which a time column would cut.
func withoutDate(c cell) error {
	if s, ok := c.sharedValue().(string); ok && !onlyDay.MatchString(s) {
		return fmt.Errorf("%q is not a time of day such as 15:04:05 alone: a time column would cut the rest", truncated([]byte(s)))
	}
	return nil
}

// amongLabels refuses texts that MySQL takes for the number of a label, unless they are a label:
// the first is 1 in an enum, and a set takes the sum of powers of two.
func amongLabels(kind string) guard {
	labels := labelsOf(kind)
	return unchanged(func(c cell) error {
		s, ok := c.sharedValue().(string)
		digits := strings.TrimLeft(strings.TrimSpace(s), "+-")
		if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" || slices.Contains(labels, strings.TrimRight(s, " ")) {
			return nil
		}
		return fmt.Errorf("%q is none of the labels of %s, which would take it for a label's number", truncated([]byte(s)), kind)
	})
}

// labelsOf returns the labels of a type such as enum('a','it”s').
func labelsOf(kind string) (labels []string) {
	_, rest, _ := strings.Cut(kind, "(")
	for strings.HasPrefix(rest, "'") {
		var label strings.Builder
		for rest = rest[1:]; rest != ""; rest = rest[1:] {
			if rest[0] == '\'' {
				if rest = rest[1:]; !strings.HasPrefix(rest, "'") {
					break
				}
			}
			label.WriteByte(rest[0])
		}
		labels = append(labels, label.String())
		rest = strings.TrimLeft(rest, ", ")
	}
	return labels
}

// asWritten refuses JSON that is only a number which SQLite would store in another way: a column of
// NUMERIC affinity makes a number of every text that is one.
func asWritten(c cell) error {
	s, ok := c.sharedValue().(string)
	if !ok || s == "" || !strings.Contains("-0123456789", s[:1]) {
		return nil
	}
	if digits := strings.TrimPrefix(s, "-"); len(digits) <= 15 && strings.Trim(digits, "0123456789") == "" && (digits[0] != '0' || s == "0") {
		return nil
	}
	return fmt.Errorf("the column would change the number %s: declare it TEXT", truncated([]byte(s)))
}
