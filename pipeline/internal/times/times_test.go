package times

import (
	"strings"
	"testing"
	"time"
)

func zoneOf(t *testing.T, name string) *time.Location {
	t.Helper()
	if name == "" {
		return nil
	}
	zone, err := LoadZone(name)
	if err != nil {
		t.Fatalf("zone %s: %v", name, err)
	}
	return zone
}

// want compares a result with a time of RFC 3339, or an error with a part of its text.
func want(t *testing.T, what string, got time.Time, err error, want string) {
	t.Helper()
	at, is := time.Parse(time.RFC3339Nano, want)
	switch {
	case is == nil && (err != nil || !got.Equal(at)):
		t.Errorf("%s = %v, %v, want %s", what, got, err, want)
	case is != nil && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s = %v, %v, want an error with %q", what, got, err, want)
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ text, zone, want string }{
		{"2026-07-08T21:04:05Z", "", "2026-07-08T21:04:05Z"},
		{"2026-07-08t21:04:05z", "", "2026-07-08T21:04:05Z"},
		{"2026-07-08 21:04:05.678901234+00:00", "", "2026-07-08T21:04:05.678901234Z"},
		{"2026-07-08T21:04:05,5Z", "", "2026-07-08T21:04:05.5Z"},
		{"2026-07-08T21:04:05.6789012Z", "Europe/Berlin", "2026-07-08T21:04:05.6789012Z"},
		{"2026-07-08T21:04:05.12345678900Z", "", "2026-07-08T21:04:05.123456789Z"},
		{"2026-07-08T21:04:05.1234567891Z", "", "is not a time"},
		{"2026-07-08T21:04:05+0200", "", "2026-07-08T19:04:05Z"},
		{"2026-07-08T21:04:05-02", "", "2026-07-08T23:04:05Z"},
		{"2026-07-08T21:04:05 +05:30", "", "2026-07-08T15:34:05Z"},
		{"2026-07-08 21:04:05 UTC", "", "2026-07-08T21:04:05Z"},
		{"2026-07-08 21:04:05 GMT", "", "2026-07-08T21:04:05Z"},
		{"2026-07-08 21:04:05.5 +0000 UTC", "", "2026-07-08T21:04:05.5Z"},
		{"2026-07-08T21:04Z", "", "2026-07-08T21:04:00Z"},
		{"20260708T210405Z", "", "2026-07-08T21:04:05Z"},
		{"20260708T210405.25+0200", "", "2026-07-08T19:04:05.25Z"},
		{"2026-07-08T21:04:05+02:00[Europe/Berlin]", "", "2026-07-08T19:04:05Z"},
		{"Wed, 08 Jul 2026 21:04:05 GMT", "", "2026-07-08T21:04:05Z"},
		{"Wed, 8 Jul 2026 21:04:05 +0200", "", "2026-07-08T19:04:05Z"},
		{"8 Jul 2026 21:04 UTC", "", "2026-07-08T21:04:00Z"},
		{"Thu, 08 Jul 2026 21:04:05 GMT", "", "is not a Thursday"},
		{"Wed, 08 Jul 2026 21:04:05", "", "is not a time"},
		{"/Date(1783544645678)/", "", "2026-07-08T21:04:05.678Z"},
		{"/Date(1783544645678+0200)/", "", "2026-07-08T21:04:05.678Z"},
		{"/Date(-1)/", "", "1969-12-31T23:59:59.999Z"},
		{"/Date(99999999999999999)/", "", "is not a time"},
		{"2026-07-08T21:04:05", "", "has no offset from UTC: set zone"},
		{"2026-07-08T21:04:05", "UTC", "2026-07-08T21:04:05Z"},
		{"2026-07-08 21:04:05.678", "Europe/Berlin", "2026-07-08T19:04:05.678Z"},
		{"2026-01-08 21:04", "Europe/Berlin", "2026-01-08T20:04:00Z"},
		{"2026-07-08 21:04:05", "-07:00", "2026-07-09T04:04:05Z"},
		{"2026-03-29 02:30:00", "Europe/Berlin", "leave out"},
		{"0001-01-01T00:00:00", "Europe/Berlin", "not in the years"}, // .NET's least time
		{"2026-10-25 02:30:00", "Europe/Berlin", "2026-10-25T01:30:00Z"},
		{"2026-10-25 01:59:59", "Europe/Berlin", "2026-10-24T23:59:59Z"},
		{"2026-11-01 01:30:00", "America/New_York", "2026-11-01T06:30:00Z"},
		{"2026-07-08T24:00:00Z", "", "does not exist"},
		{"2026-07-08T21:04:60Z", "", "does not exist"},
		{"2026-02-29T21:04:05Z", "", "does not exist"},
		{"2024-02-29T21:04:05Z", "", "2024-02-29T21:04:05Z"},
		{"2026-13-08T21:04:05Z", "", "does not exist"},
		{"2026-07-08T21:04:05+24:00", "", "is not a time"},
		{"0000-07-08T21:04:05Z", "", "does not exist"},
		{"0001-01-01T00:00:00+01:00", "", "not in the years"},
		{"9999-12-31T23:59:59-01:00", "", "not in the years"},
		{"2026-07-08", "UTC", "is not a time"},
		{"2026-07-08T21", "UTC", "is not a time"},
		{"2026-07-08T21:04:05 ", "UTC", "is not a time"},
		{"2026-07-08T21:04:05Z[", "", "is not a time"},
		{"1783544645", "UTC", "is not a time"},
		{"", "", "is empty"},
		{"yesterday", "", "is not a time"},
	} {
		got, err := Parse([]byte(c.text), zoneOf(t, c.zone))
		want(t, c.text+" "+c.zone, got, err, c.want)
	}
}

func TestParseDate(t *testing.T) {
	for text, is := range map[string]string{
		"2026-07-08":                "2026-07-08T00:00:00Z",
		"20260708":                  "2026-07-08T00:00:00Z",
		"2026-07-08T00:00:00":       "2026-07-08T00:00:00Z",
		"2026-07-08T00:00:00.000Z":  "2026-07-08T00:00:00Z",
		"2026-07-08T00:00:01":       "time of day",
		"2026-07-08T00:00:00+02:00": "time of day",
		"2026-02-30":                "does not exist",
		"08.07.2026":                "is not a date",
		"2026-7-8":                  "is not a date",
		"":                          "is not a date",
	} {
		got, err := ParseDate([]byte(text))
		want(t, text, got, err, is)
	}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct{ format, text, zone, want string }{
		{"unix", "1783544645", "", "2026-07-08T21:04:05Z"},
		{"unix", "1783544645.678", "", "2026-07-08T21:04:05.678Z"},
		{"unix", "-1.5", "", "1969-12-31T23:59:58.5Z"},
		{"unix", "1783544645.1234567891", "", "finer than a nanosecond"},
		{"unix", "1783544645678", "", "another unit"},
		{"unix", "99999999999999999999", "", "another unit"},
		{"unix", "12a", "", "is not a number"},
		{"unix", "", "", "is not a number"},
		{"unix_ms", "1783544645678", "", "2026-07-08T21:04:05.678Z"},
		{"unix_ms", "1783544645678.25", "", "2026-07-08T21:04:05.67825Z"},
		{"unix_us", "1783544645678901", "", "2026-07-08T21:04:05.678901Z"},
		{"unix_ns", "1783544645678901234", "", "2026-07-08T21:04:05.678901234Z"},
		{"unix_days", "20642", "", "2026-07-08T00:00:00Z"},
		{"unix_days", "-1", "", "1969-12-31T00:00:00Z"},
		{"unix_days", "99999999", "", "another unit"},
		{"ticks", "639191414456789012", "", "2026-07-08T21:04:05.6789012Z"},
		{"ticks", "0", "", "0001-01-01T00:00:00Z"},
		{"ticks", "-1", "", "another unit"},
		{"dd.MM.yyyy HH:mm:ss", "08.07.2026 21:04:05", "Europe/Berlin", "2026-07-08T19:04:05Z"},
		{"d.M.yyyy", "8.12.2026", "UTC", "2026-12-08T00:00:00Z"},
		{"dd.MM.yyyy", "8.12.2026", "UTC", "is not a time of the format"},
		{"MM/dd/yyyy hh:mm:ss a", "07/08/2026 09:04:05 PM", "UTC", "2026-07-08T21:04:05Z"},
		{"MM/dd/yyyy hh:mm a", "07/08/2026 12:04 am", "UTC", "2026-07-08T00:04:00Z"},
		{"MM/dd/yyyy hh:mm a", "07/08/2026 13:04 am", "UTC", "half a day"},
		{"M/d/yyyy h:mm tt", "7/8/2026 9:04 PM", "UTC", "2026-07-08T21:04:00Z"},
		{"EEE MMM dd HH:mm:ss yyyy", "Wed Jul 08 21:04:05 2026", "UTC", "2026-07-08T21:04:05Z"},
		{"EEEE, d MMMM yyyy", "Thursday, 8 July 2026", "UTC", "is not a Thursday"},
		{"yyyyMMddHHmmss", "20260708210405", "UTC", "2026-07-08T21:04:05Z"},
		{"yyyyMMddHHmmssSSS", "20260708210405678", "UTC", "2026-07-08T21:04:05.678Z"},
		{"yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2026-07-08T21:04:05.678+02:00", "", "2026-07-08T19:04:05.678Z"},
		{"yyyy-MM-dd'T'HH:mm:ss.ffZ", "2026-07-08T21:04:05.678Z", "", "is not a time of the format"},
		{"dd/MMM/yyyy:HH:mm:ss Z", "08/Jul/2026:21:04:05 +0200", "", "2026-07-08T19:04:05Z"},
		{"yy-MM-dd", "26-07-08", "UTC", "2026-07-08T00:00:00Z"},
		{"yy-MM-dd", "69-07-08", "UTC", "1969-07-08T00:00:00Z"},
	} {
		f, err := NewFormat(c.format)
		if err != nil {
			t.Errorf("%s: %v", c.format, err)
			continue
		}
		got, err := f.Time([]byte(c.text), zoneOf(t, c.zone))
		want(t, c.format+" of "+c.text, got, err, c.want)
	}
	for format, is := range map[string]string{
		"":                    "has no y",
		"unix_minutes":        "no field",
		"%Y-%m-%d":            "no field",
		"yyyy-mm-dd":          "has no M",
		"yyyy-MM-dd HH:MM":    "M twice",
		"2006-01-02":          "has no y",
		"yyyy-MM-dd hh:mm":    "go together",
		"yyyy-MM-ddTHH:mm":    "", // T is a field, t another: a literal T needs apostrophes
		"yyyy-MM-dd'T":        "not closed",
		"yyyy-MM-dd HH:mm QQ": "no field",
	} {
		_, err := NewFormat(format)
		if err == nil || !strings.Contains(err.Error(), is) {
			t.Errorf("format %q: %v, want an error with %q", format, err, is)
		}
	}
}

func TestGuess(t *testing.T) {
	for number, unit := range map[string]string{
		"1783544645": "unix", "1783544645.5": "unix", "1783544645678": "unix_ms", "1783544645678901": "unix_us",
		"1783544645678901234": "unix_ns", "639191414456789012": "ticks", "42": "", "x": "",
	} {
		if got := Guess([]byte(number)); got != unit {
			t.Errorf("the unit of %s = %q, want %q", number, got, unit)
		}
	}
}

func TestZones(t *testing.T) {
	for name, ok := range map[string]bool{
		"UTC": true, "Europe/Berlin": true, "+02:00": true, "-0730": true,
		"": false, "Local": false, "Mars/Base": false, "+2": false, "../UTC": false,
	} {
		if _, err := LoadZone(name); (err == nil) != ok {
			t.Errorf("zone %q: %v, want ok %v", name, err, ok)
		}
	}
}

// FuzzParse compares with Go's reader of RFC 3339, which accepts less.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"2026-07-08T21:04:05.678+02:00", "20260708T210405Z", "Wed, 08 Jul 2026 21:04:05 GMT", "/Date(1)/"} {
		f.Add(s)
	}
	formats := []*Format{}
	for _, name := range []string{"unix", "unix_ns", "ticks", "unix_days", "dd.MM.yy hh:mm:ss.SSS a XXX", "EEEE d MMMM yyyy"} {
		format, err := NewFormat(name)
		if err != nil {
			f.Fatal(err)
		}
		formats = append(formats, format)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, err := time.Parse(time.RFC3339Nano, text)
		got, failed := Parse([]byte(text), nil)
		if failed == nil && err == nil && !got.Equal(at) {
			t.Errorf("Parse(%q) = %v, want %v", text, got, at)
		}
		if failed == nil && (got.Year() < 1 || got.Year() > 9999 || got.Location() != time.UTC) {
			t.Errorf("Parse(%q) = %v", text, got)
		}
		for _, format := range formats {
			format.Time([]byte(text), time.UTC) // must not panic
		}
	})
}

func BenchmarkParse(b *testing.B) {
	text := []byte("2026-07-08T21:04:05.678901Z")
	for b.Loop() {
		if _, err := Parse(text, nil); err != nil {
			b.Fatal(err)
		}
	}
}
