// Package times reads times and dates as senders of events write them. Every spelling that it reads
// has one meaning; another one needs a [Format], and a time without an offset a zone.
package times

import (
	"errors"
	"fmt"
	"time"
)

// Parse reads a time in one of the common spellings:
//
//	2026-07-08T21:04:05.678+02:00   RFC 3339, ISO 8601: also t, a blank, z, a comma, +0200, +02, no seconds
//	20260708T210405Z                ISO 8601 without separators
//	2026-07-08T21:04:05+02:00[Europe/Berlin]   Java: what is in brackets is not read
//	2026-07-08 21:04:05 UTC         UTC and GMT in place of an offset
//	Wed, 08 Jul 2026 21:04:05 GMT   RFC 1123, RFC 5322: also without the weekday or the seconds
//	/Date(1783544645678+0200)/      .NET's old JSON, in milliseconds of UTC
//
// A time without an offset is one of the zone, see [Resolve]; nil: it is refused. The error
// continues the text of the value: "has …", "is …".
func Parse(text []byte, zone *time.Location) (time.Time, error) {
	r := &reader{text: text}
	var f fields
	switch {
	case len(text) == 0:
		return time.Time{}, errors.New("is empty where a time should be")
	case text[0] == '/':
		return r.oldJSON()
	case isLetter(text[0]) || r.dayBeforeMonth():
		r.mail(&f)
	default:
		r.iso(&f)
	}
	if !r.ok() {
		return time.Time{}, errSpelling
	}
	return f.time(zone)
}

var errSpelling = errors.New("is not a time such as 2006-01-02T15:04:05Z: set format")

// ParseDate reads a date: 2026-07-08, 20260708, or such a date with a time of midnight that has no
// offset or Z, as .NET writes dates.
func ParseDate(text []byte) (time.Time, error) {
	r := &reader{text: text}
	var f fields
	r.date(&f)
	if r.ok() {
		return f.midnight()
	}
	r, f = &reader{text: text}, fields{}
	if r.iso(&f); !r.ok() {
		return time.Time{}, errors.New("is not a date such as 2006-01-02: set format")
	}
	if f.hour|f.minute|f.second|f.nanos|f.offset != 0 {
		return time.Time{}, errors.New("has a time of day, which a date would lose: use the type timestamp")
	}
	return f.midnight()
}

// Resolve returns what a clock of the zone shows as a time. An hour that the clock shows twice is
// the second one, in standard time, as PostgreSQL takes it; one that it leaves out is an error.
func Resolve(zone *time.Location, wall time.Time) (time.Time, error) {
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), zone)
	// Zones differ from their standard time by less than a day.
	_, before := at.Add(-24 * time.Hour).Zone()
	_, after := at.Add(24 * time.Hour).Zone()
	var found time.Time
	shown := false
	for _, offset := range []int{before, after} {
		one := wall.Add(-time.Duration(offset) * time.Second)
		if _, is := one.In(zone).Zone(); is == offset && (!shown || one.After(found)) {
			found, shown = one, true
		}
	}
	if !shown {
		return found, fmt.Errorf("is a time that the clocks of %s leave out", zone)
	}
	return found.UTC(), nil
}

// fields are the parts of a time as they are written.
type fields struct {
	year, month, day, hour, minute, second, nanos int
	offset                                        int // seconds east of UTC
	zoned                                         bool
	weekday                                       int // from 1, Sunday; 0: not written
}

// time returns the time that the fields are.
func (f *fields) time(zone *time.Location) (time.Time, error) {
	if err := f.check(); err != nil {
		return time.Time{}, err
	}
	wall := time.Date(f.year, time.Month(f.month), f.day, f.hour, f.minute, f.second, f.nanos, time.UTC)
	at, err := wall.Add(-time.Duration(f.offset)*time.Second), error(nil)
	switch {
	case f.weekday != 0 && int(wall.Weekday()) != f.weekday-1:
		return at, fmt.Errorf("is not a %s", time.Weekday(f.weekday-1))
	case f.zoned:
	case zone == nil:
		return at, errors.New("has no offset from UTC: set zone: UTC, or the zone of the sender")
	case zone != time.UTC:
		at, err = Resolve(zone, wall)
	}
	if err == nil && (at.Year() < 1 || at.Year() > 9999) {
		err = errors.New("is not in the years from 1 to 9999")
	}
	return at, err
}

// midnight returns the date that the fields are.
func (f *fields) midnight() (time.Time, error) {
	return time.Date(f.year, time.Month(f.month), f.day, 0, 0, 0, 0, time.UTC), f.check()
}

// check returns which field has a value that it cannot have.
func (f *fields) check() error {
	const most = 24 * 60 * 60
	switch {
	case f.year < 1 || f.month < 1 || f.month > 12 || f.day < 1 || f.day > daysIn(f.year, f.month):
		return fmt.Errorf("has the date %04d-%02d-%02d, which does not exist", f.year, f.month, f.day)
	case f.hour > 23 || f.minute > 59 || f.second > 59:
		return fmt.Errorf("has the time of day %02d:%02d:%02d, which does not exist", f.hour, f.minute, f.second)
	case f.offset <= -most || f.offset >= most:
		return errors.New("has an offset of a day or more")
	}
	return nil
}

func daysIn(year, month int) int {
	return time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
}
