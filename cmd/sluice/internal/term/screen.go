// Package term writes text to a terminal, with a status line below it, and notices interruptions.
package term

import (
	"io"
	"os"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/term"
)

// Screen is an output that can be a terminal. Text is written above the status line. It is safe for
// concurrent use.
type Screen struct {
	mu     sync.Mutex
	out    io.Writer
	width  func() int // columns; 0 where there is no terminal
	status string     // as shown
}

// NewScreen makes a screen that writes to a file.
func NewScreen(f *os.File) *Screen {
	return &Screen{out: f, width: func() int { return Columns(f) }}
}

// Columns returns the width of the terminal, or 0 if f is no terminal or cannot move its cursor.
func Columns(f *os.File) int {
	if !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return 0
	}
	w, _, err := term.GetSize(int(f.Fd()))
	if err != nil || w <= 0 {
		return 80
	}
	return w
}

// Interactive reports whether a status line can be shown.
func (s *Screen) Interactive() bool { return s.width() > 0 }

const eraseLine = "\r\x1b[K"

// Write writes whole lines above the status line. Control characters are escaped, see
// [Escape].
func (s *Screen) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b []byte
	if s.status != "" {
		b = append(b, eraseLine...)
	}
	b = append(Escape(b, text), s.status...)
	if _, err := s.out.Write(b); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Status replaces the status line; an empty line removes it. Without a terminal it does nothing.
func (s *Screen) Status(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	width := s.width()
	if width == 0 {
		return
	}
	line = clip(line, width-1)
	if line == s.status {
		return
	}
	if s.status != "" {
		line, s.status = eraseLine+line, line
	} else {
		s.status = line
	}
	io.WriteString(s.out, line)
}

// clip makes a line that does not wrap and does not move the cursor.
func clip(line string, width int) string {
	line = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, line)
	if runes := []rune(line); len(runes) > width {
		return string(runes[:max(width, 0)])
	}
	return line
}
