package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
)

// canvas is SVG that is being written.
type canvas struct{ bytes.Buffer }

func (c *canvas) add(format string, values ...any) { fmt.Fprintf(c, format+"\n", values...) }

func (c *canvas) line(x1, y1, x2, y2 float64, class, more string) {
	c.add(`<path class="%s" stroke="currentColor" fill="none"%s d="M%.1f %.1fL%.1f %.1f"/>`, class, more, x1, y1, x2, y2)
}

func (c *canvas) text(x, y float64, class, anchor, text string) {
	if text != "" {
		c.add(`<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, class, x, y, anchor, escaped(text))
	}
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}

func (c Color) class() string { return fmt.Sprintf("c%d", int(c)) }

// glyph is the path of a marker around its point, "" for lines.
func (s Shape) glyph() string {
	switch s {
	case Dots:
		return "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z"
	case Up:
		return "m0-5l4.5 8h-9z"
	case Down:
		return "m0 5l4.5-8h-9z"
	}
	return ""
}

func (s *Series) dashes() string {
	if s.Dashed {
		return ` stroke-dasharray="6 4"`
	}
	return ""
}
