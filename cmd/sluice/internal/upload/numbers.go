package upload

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice/sender"
)

// A list of record numbers is text like "1-500,502,600-900/4,1000-": single records, ranges, every
// fourth record of a range, and all records from one to the end of the input.

// toEnd is the last number of a range up to the end of the input.
const toEnd = -1

// numbers are the records from first to last, every step of them.
type numbers struct{ first, last, step int64 }

func (n numbers) String() string {
	switch {
	case n.last == toEnd:
		return fmt.Sprintf("%d-", n.first)
	case n.first == n.last:
		return strconv.FormatInt(n.first, 10)
	case n.step == 1:
		return fmt.Sprintf("%d-%d", n.first, n.last)
	}
	return fmt.Sprintf("%d-%d/%d", n.first, n.last, n.step)
}

// formatNumbers writes sorted ranges. Records that are spread over partitions have gaps of the same
// size, and take one entry.
func formatNumbers(list []sender.IndexRange) string {
	var b strings.Builder
	for i := 0; i < len(list); {
		n := numbers{list[i].First, list[i].Last, 1}
		i++
		if n.first == n.last && i < len(list) {
			if step := list[i].First - n.last; run(list[i:], n.last, step) > 1 {
				n.step = step
			}
		}
		for n.step > 1 && i < len(list) && list[i] == (sender.IndexRange{First: n.last + n.step, Last: n.last + n.step}) {
			n.last += n.step
			i++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(n.String())
	}
	return b.String()
}

// run is how many of the first two ranges continue single records at a distance.
func run(list []sender.IndexRange, last, step int64) (n int) {
	for _, r := range list[:min(2, len(list))] {
		if last += step; r.First != last || r.Last != last {
			break
		}
		n++
	}
	return n
}

// parseNumbers reads a list with numbers up to most.
func parseNumbers(text string, most int64) (list []numbers, err error) {
	for entry := range strings.SplitSeq(text, ",") {
		n, err := parseEntry(entry)
		if err != nil || n.first < 1 || n.step < 1 || n.last != toEnd && (n.last < n.first || n.last > most || (n.last-n.first)%n.step != 0) {
			return nil, errors.New("not a list of record numbers of this input")
		}
		list = append(list, n)
	}
	return list, nil
}

func parseEntry(text string) (n numbers, err error) {
	from, to, ranged := strings.Cut(text, "-")
	if n.first, err = strconv.ParseInt(from, 10, 64); err != nil || !ranged {
		n.last, n.step = n.first, 1
		return n, err
	}
	to, step, stepped := strings.Cut(to, "/")
	n.step = 1
	if to == "" && !stepped {
		n.last = toEnd
		return n, nil
	}
	if n.last, err = strconv.ParseInt(to, 10, 64); err == nil && stepped {
		n.step, err = strconv.ParseInt(step, 10, 64)
	}
	return n, err
}
