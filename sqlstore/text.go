package sqlstore

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// clean makes text storable: it must be UTF-8, and for many tools SQL text ends at a NUL. What
// cannot be stored becomes U+FFFD.
func clean(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	const instead = "\uFFFD"
	return strings.ReplaceAll(strings.ToValidUTF8(s, instead), "\x00", instead)
}

// timeLayout is how SQLite stores times: text that is readable in the sqlite3 shell, that SQLite's
// date functions understand, and that sorts by time because its width is fixed and its zone is UTC.
const timeLayout = "2006-01-02T15:04:05.000000Z"

var (
	earliestTime = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	latestTime   = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
)

// formatTime formats a time to the microsecond. Years that the layout cannot hold, which only a
// broken sender writes, become the nearest one that it can.
func formatTime(t time.Time) string { return storable(t).Format(timeLayout) }

func storable(t time.Time) time.Time {
	switch t = t.UTC(); {
	case t.Before(earliestTime):
		return earliestTime
	case t.After(latestTime):
		return latestTime
	}
	return t
}

// storedTime reads what a dialect's time wrote.
type storedTime struct{ time.Time }

// Scan implements [database/sql.Scanner]. NULL is the zero time.
func (t *storedTime) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		t.Time = time.Time{}
		return nil
	case time.Time:
		t.Time = v.UTC()
		return nil
	case []byte: // MySQL, without parseTime
		return t.parse(time.DateTime, string(v))
	case string:
		return t.parse(time.RFC3339Nano, v)
	}
	return fmt.Errorf("stored time %v: not a time", value)
}

func (t *storedTime) parse(layout, text string) error {
	parsed, err := time.Parse(layout, text)
	if err != nil {
		return fmt.Errorf("stored time %q: not of the form %s", text, layout)
	}
	t.Time = parsed.UTC()
	return nil
}
