package humanize

import (
	"testing"
	"time"
)

func TestText(t *testing.T) {
	for got, want := range map[string]string{
		Count(0):                       "0",
		Count(999):                     "999",
		Count(1000):                    "1,000",
		Count(int64(-1234567)):         "-1,234,567",
		Plural(1, "event", "events"):   "1 event",
		Plural(200, "event", "events"): "200 events",
		Span(340 * time.Millisecond):   "340ms",
		Span(2345 * time.Millisecond):  "2.3s",
		Span(65 * time.Second):         "1m5s",
		Span(90*time.Minute + 1):       "1h30m",
		Shorten("a\n\tb  c", 10):       "a b c",
		Shorten("abcdefgh", 5):         "abcd…",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
