package sqlstore

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// What a text or a time from outside becomes can be stored, and what could be
// stored stays as it is.
func FuzzStored(f *testing.F) {
	f.Add("plain", int64(1772366400), int64(123456789))
	f.Add("a\x00b\xff\xfe\u00fc", int64(-1)<<62, int64(0))
	f.Add("", int64(253402300800), int64(-1))
	f.Fuzz(func(t *testing.T, s string, seconds, nanos int64) {
		c := clean(s)
		if !utf8.ValidString(c) || strings.Contains(c, "\x00") || clean(c) != c {
			t.Fatalf("%q became %q", s, c)
		}
		if utf8.ValidString(s) && !strings.Contains(s, "\x00") && c != s {
			t.Fatalf("%q was changed to %q", s, c)
		}
		at := time.Unix(seconds, nanos).UTC()
		text := formatTime(at)
		var back storedTime
		if err := back.Scan(text); err != nil {
			t.Fatal(err)
		}
		if len(text) != len(timeLayout) || formatTime(back.Time) != text {
			t.Fatalf("%v became %q, which is %v", at, text, back)
		}
		if y := at.Year(); y >= 0 && y <= 9999 && !at.Before(earliestTime) && !at.After(latestTime) && !back.Equal(at.Truncate(time.Microsecond)) {
			t.Fatalf("%v became %v", at, back)
		}
	})
}
