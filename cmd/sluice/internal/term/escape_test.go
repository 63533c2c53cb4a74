package term

import (
	"bytes"
	"testing"
)

// What is written above the status line can't act on the terminal.
func TestScreenEscapes(t *testing.T) {
	var out bytes.Buffer
	s := &Screen{out: &out, width: func() int { return 0 }}
	text := "a\x1b]0;x\x07\u009b2J\xff\r\n\tb\n"
	if n, err := s.Write([]byte(text)); err != nil || n != len(text) {
		t.Errorf("%d, %v, want %d", n, err, len(text))
	}
	if got, want := out.String(), `a\u001b]0;x\u0007\u009b2J`+"\uFFFD"+`\u000d`+"\n\tb\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}
