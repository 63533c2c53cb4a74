// Package term writes to a person: text, with one line at its foot that
// changes while work goes on.
package term

import (
	"io"
	"os"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/term"
)

// Screen is an output that may be a terminal. Everything written goes above
// the status line. It is safe for concurrent use.
type Screen struct {
	mu     sync.Mutex
	out    io.Writer
	width  func() int // columns; 0 where there is no terminal
	status string     // as shown
}

// NewScreen makes a screen of a file.
func NewScreen(f *os.File) *Screen {
	return &Screen{out: f, width: func() int { return columns(f) }}
}

// columns is the terminal's width, or 0 if f is none or can't move its cursor.
func columns(f *os.File) int {
	if !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return 0
	}
	w, _, err := term.GetSize(int(f.Fd()))
	if err != nil || w <= 0 {
		return 80
	}
	return w
}

// Interactive tells whether a status line can be shown.
func (s *Screen) Interactive() bool { return s.width() > 0 }

const eraseLine = "\r\x1b[K"

// Write writes whole lines above the status line.
func (s *Screen) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status == "" {
		return s.out.Write(text)
	}
	if _, err := io.WriteString(s.out, eraseLine); err != nil {
		return 0, err
	}
	n, err := s.out.Write(text)
	if err == nil {
		_, err = io.WriteString(s.out, s.status)
	}
	return n, err
}

// Status replaces the line at the foot; an empty one removes it. It does
// nothing where there is no terminal.
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

// clip keeps a line from wrapping, and from moving the cursor itself.
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
