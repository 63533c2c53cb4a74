package times

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Format is one notation of times, which a pipeline's file names.
type Format struct {
	name   string
	unit   time.Duration // of a number; 0: the steps below
	ticks  bool          // the number begins at the year 1, as .NET's does
	steps  []step
	fields string // letters of the fields that the steps read
}

// units are the formats of numbers.
var units = map[string]Format{
	"unix":      {unit: time.Second},
	"unix_ms":   {unit: time.Millisecond},
	"unix_us":   {unit: time.Microsecond},
	"unix_ns":   {unit: time.Nanosecond},
	"unix_days": {unit: 24 * time.Hour},
	"ticks":     {unit: 100 * time.Nanosecond, ticks: true},
}

// step reads one part of a text: a field of so many digits or letters, or a literal text.
type step struct {
	field   byte // of the fields below; 0: literal
	count   int
	literal string
}

// The letters of a pattern, which are those of Java and .NET where these agree. S and f are a
// fraction of a second, a and t AM or PM, E a name of a weekday, X, z and Z an offset or Z.
const letters = "yMdHhmsSfatEXzZ"

// NewFormat returns the format with a name: unix, unix_ms, unix_us and unix_ns (a number since
// 1970), unix_days (a date as the number of days since 1970), ticks (units of 100 ns since the year
// 1), or a pattern such as dd.MM.yyyy HH:mm:ss.
func NewFormat(name string) (*Format, error) {
	if f, ok := units[name]; ok {
		f.name = name
		return &f, nil
	}
	f := &Format{name: name}
	for rest := name; rest != ""; {
		n, err := f.add(rest)
		if err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	for _, letter := range []string{"y", "M", "d"} {
		if !f.has(letter) {
			return nil, fmt.Errorf("%q has no %s: write unix, unix_ms, unix_us, unix_ns, unix_days, ticks, or a pattern such as yyyy-MM-dd HH:mm:ss", name, letter)
		}
	}
	if f.has("h") != f.has("a") {
		return nil, fmt.Errorf("%q: hh, the hour of half a day, and a, AM or PM, go together", name)
	}
	return f, nil
}

// add reads one step of the pattern, and returns its length.
func (f *Format) add(pattern string) (length int, err error) {
	first := pattern[0]
	if first == '\'' {
		text, _, closed := strings.Cut(pattern[1:], "'")
		switch {
		case !closed:
			return 0, fmt.Errorf("%q has an apostrophe that is not closed", f.name)
		case text == "":
			f.steps = append(f.steps, step{literal: "'"})
		default:
			f.steps = append(f.steps, step{literal: text})
		}
		return len(text) + 2, nil
	}
	if !isLetter(first) {
		f.steps = append(f.steps, step{literal: pattern[:1]})
		return 1, nil
	}
	count := len(pattern) - len(strings.TrimLeft(pattern, pattern[:1]))
	field := map[byte]byte{'f': 'S', 't': 'a', 'z': 'X', 'Z': 'X', 'K': 'X'}[first]
	if field == 0 {
		field = first
	}
	if !strings.Contains(letters+"K", pattern[:1]) || !fits(field, count) {
		return 0, fmt.Errorf("%q: %s is no field of a time: write yyyy, MM, dd, HH, mm, ss, SSS, XXX, or put text in apostrophes", f.name, pattern[:count])
	}
	if f.has(string(field)) && field != 'E' {
		return 0, fmt.Errorf("%q has %s twice", f.name, pattern[:1])
	}
	f.fields += string(field)
	f.steps = append(f.steps, step{field: field, count: count})
	return count, nil
}

// fits reports whether a field can have so many letters.
func fits(field byte, count int) bool {
	switch field {
	case 'y':
		return count == 4 || count == 2
	case 'M':
		return count <= 4
	case 'E':
		return count <= 4
	case 'S':
		return count <= 9
	case 'X':
		return count <= 5
	}
	return count <= 2
}

func (f *Format) has(field string) bool { return strings.Contains(f.fields, field) }

// Numbers reports whether the format is one of numbers.
func (f *Format) Numbers() bool { return f.unit != 0 }

// Zoned reports whether the format says what the offset from UTC is.
func (f *Format) Zoned() bool { return f.unit != 0 || f.has("X") }

// Timed reports whether the format has a time of day.
func (f *Format) Timed() bool {
	return f.unit != 0 && f.unit < 24*time.Hour || strings.ContainsAny(f.fields, "HhmsS")
}

// Time reads a text or a number of the format. zone is that of a format without an offset. The
// error continues the text of the value.
func (f *Format) Time(text []byte, zone *time.Location) (time.Time, error) {
	if f.unit != 0 {
		return f.number(text)
	}
	r := &reader{text: text}
	var read fields
	half := 0 // of the day, from 1
	for _, s := range f.steps {
		switch s.field {
		case 0:
			if !bytes.HasPrefix(r.text, []byte(s.literal)) {
				r.fail()
			} else {
				r.text = r.text[len(s.literal):]
			}
		case 'a':
			half = r.name([]string{"AM", "PM"}, 0)
		default:
			s.read(r, &read)
		}
	}
	if !r.ok() {
		return time.Time{}, fmt.Errorf("is not a time of the format %s", f.name)
	}
	if half > 0 {
		if read.hour < 1 || read.hour > 12 {
			return time.Time{}, fmt.Errorf("has the hour %d of half a day, which does not exist", read.hour)
		}
		read.hour = read.hour%12 + 12*(half-1)
	}
	return read.time(zone)
}

// read reads the step's field.
func (s step) read(r *reader, f *fields) {
	least, most := s.count, max(s.count, 2)
	switch s.field {
	case 'y':
		if f.year = r.digits(s.count, s.count); s.count == 2 { // as POSIX has it
			f.year += 1900
			if f.year < 1969 {
				f.year += 100
			}
		}
	case 'M':
		switch s.count {
		case 4:
			f.month = r.name(months, 0)
		case 3:
			f.month = r.name(months, 3)
		default:
			f.month = r.digits(least, most)
		}
	case 'E':
		f.weekday = r.name(weekdays, map[bool]int{true: 0, false: 3}[s.count == 4])
	case 'd':
		f.day = r.digits(least, most)
	case 'H', 'h':
		f.hour = r.digits(least, most)
	case 'm':
		f.minute = r.digits(least, most)
	case 's':
		f.second = r.digits(least, most)
	case 'S':
		before := len(r.text)
		if f.nanos = r.fraction(); before-len(r.text) != s.count {
			r.fail()
		}
	case 'X':
		r.zone(f)
		if !f.zoned {
			r.fail()
		}
	}
}

// number reads a number of units, exactly.
func (f *Format) number(text []byte) (time.Time, error) {
	digits, negative := bytes.CutPrefix(text, []byte("-"))
	whole, fraction, split := bytes.Cut(digits, []byte("."))
	const most = 20 // digits: more than any time has
	if len(whole) == 0 || len(whole) > most || slices.ContainsFunc(whole, func(b byte) bool { return !isDigit(b) }) {
		return time.Time{}, fmt.Errorf("is not a number of the format %s", f.name)
	}
	parts := int64(f.unit) // nanoseconds of the fraction
	rest := int64(0)
	for i, b := range fraction {
		if parts /= 10; !isDigit(b) || parts == 0 && b != '0' || f.unit >= 24*time.Hour && b != '0' {
			return time.Time{}, fmt.Errorf("is not a number of the format %s, or is finer than a nanosecond", f.name)
		}
		if i < most {
			rest += int64(b-'0') * parts
		}
	}
	if split && len(fraction) == 0 {
		return time.Time{}, fmt.Errorf("is not a number of the format %s", f.name)
	}
	n, fits := int64(0), true
	for _, b := range whole {
		if n > (1<<63-10)/10 {
			fits = false
			break
		}
		n = 10*n + int64(b-'0')
	}
	at, ok := f.timeAfter(n, rest, negative)
	if !fits || !ok {
		return time.Time{}, fmt.Errorf("is not in the years from 1 to 9999 as %s: it may have another unit", f.name)
	}
	return at, nil
}

// timeAfter returns the time that is so many units, and nanoseconds, after the format's beginning.
func (f *Format) timeAfter(n, nanos int64, negative bool) (time.Time, bool) {
	a := int64(time.Second / max(f.unit, 1)) // units of a second
	var seconds int64
	if f.unit >= time.Second {
		most := int64(1<<40) / int64(f.unit/time.Second)
		if n > most {
			return time.Time{}, false
		}
		seconds = n * int64(f.unit/time.Second)
	} else {
		seconds, nanos = n/a, n%a*int64(f.unit)+nanos
	}
	if negative {
		seconds, nanos = -seconds, -nanos
	}
	if f.ticks {
		seconds += beginningOfTicks
	}
	if seconds < -1<<40 || seconds > 1<<40 {
		return time.Time{}, false
	}
	at, err := checkYear(time.Unix(seconds, nanos).UTC())
	return at, err == nil
}

// beginningOfTicks is 0001-01-01 in seconds since 1970.
var beginningOfTicks = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

// Guess returns the format of numbers for which a number is a time of our days, "" if there is
// none.
func Guess(number []byte) string {
	for _, name := range []string{"unix", "unix_ms", "unix_us", "unix_ns", "ticks"} {
		f := units[name]
		if at, err := f.number(number); err == nil && at.Year() > 1990 && at.Year() < 2100 {
			return name
		}
	}
	return ""
}

// LoadZone returns a zone by its name in the IANA's database, such as Europe/Berlin, or an offset
// such as +02:00.
func LoadZone(name string) (*time.Location, error) {
	if name != "" && strings.ContainsAny(name[:1], "+-") {
		var f fields
		r := &reader{text: []byte(name)}
		if r.offset(&f); !r.ok() {
			return nil, errors.New("is not an offset such as +02:00")
		}
		return time.FixedZone(name, f.offset), nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return nil, errors.New("is no zone: write UTC, a name such as Europe/Berlin, or an offset such as +02:00")
	}
	return zone, nil
}
