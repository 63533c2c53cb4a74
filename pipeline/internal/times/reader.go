package times

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"time"
)

// reader reads a text from its beginning. After a failure it reads nothing.
type reader struct {
	text   []byte
	failed bool
}

// ok reports whether the whole text was read.
func (r *reader) ok() bool { return !r.failed && len(r.text) == 0 }

func (r *reader) fail() { r.failed, r.text = true, nil }

// next reports whether the next byte is one of these, and reads it.
func (r *reader) next(any string) bool {
	if len(r.text) == 0 || bytes.IndexByte([]byte(any), r.text[0]) < 0 {
		return false
	}
	r.text = r.text[1:]
	return true
}

// skip reports whether the text goes on with these bytes in any case, and reads them.
func (r *reader) skip(word string) bool {
	if len(r.text) < len(word) || !bytes.EqualFold(r.text[:len(word)], []byte(word)) {
		return false
	}
	r.text = r.text[len(word):]
	return true
}

// want reads one of these bytes.
func (r *reader) want(any string) {
	if !r.next(any) {
		r.fail()
	}
}

// digits reads a number of least to most digits.
func (r *reader) digits(least, most int) int {
	n, count := 0, 0
	for count < most && count < len(r.text) && isDigit(r.text[count]) {
		n = 10*n + int(r.text[count]-'0')
		count++
	}
	if count < least {
		r.fail()
		return 0
	}
	r.text = r.text[count:]
	return n
}

// fraction reads the digits of a second's fraction, as nanoseconds. Smaller parts must be zero.
func (r *reader) fraction() int {
	nanos, unit := 0, int(time.Second)
	count := 0
	for ; count < len(r.text) && isDigit(r.text[count]); count++ {
		unit /= 10
		if digit := int(r.text[count] - '0'); unit > 0 {
			nanos += digit * unit
		} else if digit != 0 {
			r.fail()
			return 0
		}
	}
	if count == 0 {
		r.fail()
		return 0
	}
	r.text = r.text[count:]
	return nanos
}

// date reads 2026-07-08 or 20260708. It returns whether there are separators.
func (r *reader) date(f *fields) (separated bool) {
	f.year = r.digits(4, 4)
	separated = r.next("-")
	f.month = r.digits(2, 2)
	if separated {
		r.want("-")
	}
	f.day = r.digits(2, 2)
	return separated
}

// iso reads a time as ISO 8601 and RFC 3339 have it. A date alone is no time.
func (r *reader) iso(f *fields) {
	separated := r.date(f)
	if separated {
		r.want("Tt ")
	} else {
		r.want("Tt")
	}
	r.clock(f, separated, ".,")
	r.zone(f)
}

// clock reads 21:04, 21:04:05 or 21:04:05.678, or the same without colons.
func (r *reader) clock(f *fields, separated bool, points string) {
	f.hour = r.digits(2, 2)
	if separated {
		r.want(":")
	}
	f.minute = r.digits(2, 2)
	if separated && !r.next(":") || !separated && (len(r.text) == 0 || !isDigit(r.text[0])) {
		return
	}
	f.second = r.digits(2, 2)
	if r.next(points) {
		f.nanos = r.fraction()
	}
}

// zone reads Z, an offset, or UTC; nothing is left for a time without an offset.
func (r *reader) zone(f *fields) {
	blank := r.next(" ")
	switch {
	case len(r.text) == 0 && !blank:
		return
	case r.skip("UTC"), r.skip("GMT"), r.next("Zz"):
		f.zoned = true
	default:
		r.offset(f)
		if f.offset == 0 {
			r.skip(" UTC") // as Go prints times
		}
	}
	if f.zoned && r.next("[") { // Java's name of the zone
		if end := bytes.IndexByte(r.text, ']'); end > 0 {
			r.text = r.text[end+1:]
		} else {
			r.fail()
		}
	}
}

// offset reads +02:00, +0200 or +02.
func (r *reader) offset(f *fields) {
	sign := 1
	if r.next("-") {
		sign = -1
	} else {
		r.want("+")
	}
	hours, minutes := r.digits(2, 2), 0
	if r.next(":") || len(r.text) > 0 && isDigit(r.text[0]) {
		minutes = r.digits(2, 2)
	}
	if hours > 23 || minutes > 59 {
		r.fail()
	}
	f.offset, f.zoned = sign*(hours*60+minutes)*60, true
}

// dayBeforeMonth reports whether the text begins as RFC 5322 writes a date without a weekday.
func (r *reader) dayBeforeMonth() bool {
	n := 0
	for n < len(r.text) && isDigit(r.text[n]) {
		n++
	}
	return n > 0 && n <= 2 && n < len(r.text) && r.text[n] == ' '
}

// mail reads a time as RFC 5322 and RFC 1123 have it.
func (r *reader) mail(f *fields) {
	if len(r.text) > 0 && isLetter(r.text[0]) {
		f.weekday = r.name(weekdays, 3)
		r.want(",")
		r.want(" ")
	}
	f.day = r.digits(1, 2)
	r.want(" ")
	f.month = r.name(months, 3)
	r.want(" ")
	f.year = r.digits(4, 4)
	r.want(" ")
	r.clock(f, true, "")
	r.want(" ")
	r.zone(f)
	if !f.zoned {
		r.fail()
	}
}

// name reads one of the names, or so many first letters of it (0: all), and returns its number
// from 1.
func (r *reader) name(names []string, letters int) int {
	for i, name := range names {
		if letters > 0 {
			name = name[:letters]
		}
		if r.skip(name) {
			return i + 1
		}
	}
	r.fail()
	return 0
}

// oldJSON reads /Date(1783544645678)/, of which an offset is for display only.
func (r *reader) oldJSON() (time.Time, error) {
	inner, before := bytes.CutPrefix(r.text, []byte("/Date("))
	inner, after := bytes.CutSuffix(inner, []byte(")/"))
	if i := bytes.LastIndexAny(inner, "+-"); i > 0 {
		var f fields
		shown := reader{text: inner[i:]}
		shown.offset(&f)
		after, inner = after && shown.ok(), inner[:i]
	}
	n, err := strconv.ParseInt(string(inner), 10, 64)
	if !before || !after || err != nil || n > math.MaxInt64/1000 || n < math.MinInt64/1000 {
		return time.Time{}, errSpelling
	}
	return checkYear(time.UnixMilli(n).UTC())
}

// checkYear refuses years that texts and databases do not have.
func checkYear(at time.Time) (time.Time, error) {
	if at.Year() < 1 || at.Year() > 9999 {
		return at, errors.New("is not in the years from 1 to 9999")
	}
	return at, nil
}

func isDigit(b byte) bool  { return b >= '0' && b <= '9' }
func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

var (
	weekdays = names(7, func(i int) string { return time.Weekday(i).String() })
	months   = names(12, func(i int) string { return time.Month(i + 1).String() })
)

func names(count int, name func(i int) string) []string {
	list := make([]string, count)
	for i := range list {
		list[i] = name(i)
	}
	return list
}
