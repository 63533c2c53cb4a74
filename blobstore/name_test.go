package blobstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/driver"
)

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"": "~", "$Default": "$Default", "a.b": "a.b", ".": "~2E", "..": "~2E~2E", "a.": "a~2E", "a/b": "a~2Fb", "~": "~7E", "ü": "~C3~BC", "%2F": "~252F", "\x00": "~00",
	} {
		if got := escape(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	for _, foreign := range []string{"", "a/b", "~2", "~2f", "~zz", "~41", "a.", "ü", "~~"} {
		if text, ok := unescape(foreign); ok {
			t.Errorf("%q, which escape never makes, became %q", foreign, text)
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("$Default")
	f.Add("Grüße ✈/..\x00")
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := unescape(escape(text))
		if !ok || got != text {
			t.Fatalf("%q became %q, %v", text, got, ok)
		}
		unescape(text)
	})
}

func TestNamesTooLong(t *testing.T) {
	s := &Store{prefix: "sluice/"}
	long := strings.Repeat("x", maxSegment)
	for _, g := range []driver.Group{
		{Namespace: "n", Topic: long + "y", Name: "g"},
		{Namespace: long, Topic: long, Name: long},
	} {
		if _, err := s.name(g, long); err == nil {
			t.Errorf("%v: no error", g)
		}
	}
	if err := fits("the owner's name", strings.Repeat("ü", 100)); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("600 bytes as written: %v", err)
	}
}
