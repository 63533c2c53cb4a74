package upload

import (
	"maps"
	"slices"
	"testing"

	"github.com/sluice-go/sluice/sender"
)

// members are the numbers of a list, without those up to the end of the input.
func members(list []numbers) map[int64]bool {
	set := map[int64]bool{}
	for _, n := range list {
		for i := n.first; i <= n.last; i += n.step {
			set[i] = true
		}
	}
	return set
}

func ranges(pairs ...int64) (list []sender.IndexRange) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, sender.IndexRange{First: pairs[i], Last: pairs[i+1]})
	}
	return list
}

func TestNumbers(t *testing.T) {
	for want, list := range map[string][]sender.IndexRange{
		"7":              ranges(7, 7),
		"1-500,502":      ranges(1, 500, 502, 502),
		"1-13/4":         ranges(1, 1, 5, 5, 9, 9, 13, 13),
		"1,5":            ranges(1, 1, 5, 5),
		"1,3-11/4,20-22": ranges(1, 1, 3, 3, 7, 7, 11, 11, 20, 22),
		"2,4-6,8":        ranges(2, 2, 4, 6, 8, 8),
	} {
		text := formatNumbers(list)
		if text != want {
			t.Errorf("%v: wrote %s, want %s", list, text, want)
		}
		got, err := parseNumbers(text, 1000)
		whole := map[int64]bool{}
		for _, r := range list {
			for i := r.First; i <= r.Last; i++ {
				whole[i] = true
			}
		}
		if err != nil || !maps.Equal(members(got), whole) {
			t.Errorf("%s: read %v, %v", text, got, err)
		}
	}
	if got, err := parseNumbers("3-", 10); err != nil || !slices.Equal(got, []numbers{{3, toEnd, 1}}) {
		t.Errorf("read %v, %v", got, err)
	}
	for _, text := range []string{"", "0", "-1", "1-", "5-3", "1-4/2", "1-5/0", "1-5/-1", "11", "1-11", "a", "1,", "1 ", "9223372036854775807", "1-9223372036854775807", "3-/2"} {
		if got, err := parseNumbers(text, 10); err == nil && text != "1-" {
			t.Errorf("%q: read %v", text, got)
		}
	}
}

// What is read is written and read again as the same records.
func FuzzNumbers(f *testing.F) {
	f.Add("1-500,502,600-900/4,1000-")
	f.Add("3-1")
	f.Fuzz(func(t *testing.T, text string) {
		const most = 10_000
		list, err := parseNumbers(text, most)
		if err != nil || len(list) > 100 {
			return
		}
		var set recordSet
		set.add(list)
		again, err := parseNumbers(formatNumbers(set.list()), most)
		if want := members(list); len(want) > 0 && (err != nil || !maps.Equal(members(again), want)) {
			t.Fatalf("%q became %q: %v", text, formatNumbers(set.list()), err)
		}
	})
}
