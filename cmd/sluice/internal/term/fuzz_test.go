package term

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-go/sluice/internal/humanize"
)

// Whatever is shown, it stays on its line, moves no cursor and takes no more
// room than it may.
func FuzzText(f *testing.F) {
	f.Add("plain", 10)
	f.Add("a\r\nb\x1b[2Jc\u009b31m\x00 \x7f", 80)
	f.Add("\xff\xfe \u2028 \u00a0x", 1)
	f.Add(strings.Repeat("\u00e4", 100), 20)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = max(most%200, 1)
		for _, got := range []string{humanize.Shorten(text, most), clip(text, most)} {
			if n := utf8.RuneCountInString(got); n > most {
				t.Fatalf("%q became %q, %d characters of at most %d", text, got, n, most)
			}
			if strings.ContainsFunc(got, unicode.IsControl) || strings.ContainsAny(got, "\u2028\u2029") || !utf8.ValidString(got) {
				t.Fatalf("%q became %q", text, got)
			}
		}
	})
}
