package term

import (
	"strings"
	"testing"
)

// glass is a terminal that shows what is left of the text written to it.
type glass struct {
	lines  []string
	last   []rune
	cursor int
}

func (g *glass) Write(b []byte) (int, error) {
	text := strings.ReplaceAll(string(b), "\x1b[K", "\x00")
	for _, r := range text {
		switch r {
		case '\n':
			g.lines = append(g.lines, string(g.last))
			g.last, g.cursor = nil, 0
		case '\r':
			g.cursor = 0
		case 0:
			g.last = g.last[:g.cursor]
		default:
			g.last = append(g.last[:g.cursor], append([]rune{r}, g.last[min(g.cursor+1, len(g.last)):]...)...)
			g.cursor++
		}
	}
	return len(b), nil
}

func (g *glass) String() string { return strings.Join(append(g.lines, string(g.last)), "\n") }

func TestTextGoesAboveTheStatusLine(t *testing.T) {
	g := &glass{}
	s := &Screen{out: g, width: func() int { return 12 }}
	s.Write([]byte("first\n"))
	s.Status("10 events")
	s.Write([]byte("second\n"))
	s.Status("a longer one than fits")
	s.Write([]byte("third\n"))
	s.Status("short\tone\x1b")
	if got, want := g.String(), "first\nsecond\nthird\nshort one "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.Status("")
	s.Write([]byte("end\n"))
	if got, want := g.String(), "first\nsecond\nthird\nend\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLinesAreClipped(t *testing.T) {
	g := &glass{}
	s := &Screen{out: g, width: func() int { return 5 }}
	s.Status("äöüßabc")
	if got := g.String(); got != "äöüß" {
		t.Errorf("got %q", got)
	}
}

func TestNoStatusWithoutATerminal(t *testing.T) {
	g := &glass{}
	s := &Screen{out: g, width: func() int { return 0 }}
	s.Status("10 events")
	s.Write([]byte("text\n"))
	if got := g.String(); got != "text\n" || s.Interactive() {
		t.Errorf("got %q", got)
	}
}

func TestTable(t *testing.T) {
	table := NewTable("ID", "ERROR", "LAG")
	table.Add("9", "büh", "?")
	table.Add("10", "longer error", "1,200")
	var b strings.Builder
	table.WriteTo(&b)
	want := "ID  ERROR           LAG\n" +
		" 9  büh               ?\n" +
		"10  longer error  1,200\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
