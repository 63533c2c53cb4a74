package peek

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/internal/jsonscan"
	"github.com/sluice-go/sluice/stamp"
)

// WriteJSON writes an event as one line of JSON.
func WriteJSON(w io.Writer, s Seen) error {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false)
	if err := lines.Encode(describe(s)); err != nil {
		return fmt.Errorf("partition %s, sequence %d: %w", s.Partition, s.Sequence, err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Printer writes events as blocks of text.
type Printer struct {
	Out   io.Writer
	Width int  // columns; 0: no terminal
	Full  bool // whole bodies

	begun bool
}

// Bounds of what is written without Full.
const (
	mostLines  = 20  // of a body
	mostColumn = 200 // characters of a line where there is no terminal
	leastWidth = 20
	dumped     = 64 // bytes of a binary body
)

// WriteEvent writes an event.
func (p *Printer) WriteEvent(s Seen, now time.Time) error {
	var b strings.Builder
	if p.begun {
		b.WriteByte('\n')
	}
	p.begun = true
	p.head(&b, s, now)
	p.properties(&b, s)
	p.body(&b, s)
	_, err := io.WriteString(p.Out, b.String())
	return err
}

// head writes where an event is, and what it is sent with.
func (p *Printer) head(b *strings.Builder, s Seen, now time.Time) {
	parts := []string{"partition " + escaped(s.Partition), fmt.Sprintf("sequence %d", s.Sequence)}
	if s.Offset != "" && !strings.Contains(s.Offset, " ") { // in Kafka the sequence is the offset
		parts = append(parts, "offset "+escaped(s.Offset))
	}
	if !s.Enqueued.IsZero() {
		at, ago := "enqueued "+s.Enqueued.UTC().Format("2006-01-02 15:04:05.000Z"), "("+age(now.Sub(s.Enqueued))+")"
		if n := len(at) + 1 + len(ago); p.Width == 0 || n+2 <= p.Width {
			at, ago = at+" "+ago, ""
		}
		if parts = append(parts, at); ago != "" {
			parts = append(parts, ago)
		}
	}
	p.wrap(b, parts)
	if s.Key != "" || s.EmptyKey {
		p.value(b, "key", readable(s.Key))
	}
	for _, f := range []struct{ name, value string }{{"content type", s.ContentType}, {"message id", s.MessageID}, {"correlation", s.CorrelationID}} {
		if f.value != "" {
			p.value(b, f.name, readable(f.value))
		}
	}
}

// wrap writes the parts of the first line, on more lines if they are too long for one.
func (p *Printer) wrap(b *strings.Builder, parts []string) {
	column := 0
	for i, part := range parts {
		n := utf8.RuneCountInString(part)
		switch {
		case i == 0:
		case p.Width > 0 && column+2+n > p.Width:
			b.WriteString("\n  ")
			column = 2
		default:
			b.WriteString("  ")
			column += 2
		}
		b.WriteString(part)
		column += n
	}
	b.WriteByte('\n')
}

// age says how long ago something was.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "in " + humanize.Span(-d) + ", by this clock"
	case d >= 2*day:
		return fmt.Sprintf("%d days ago", d/day)
	}
	return humanize.Span(d) + " ago"
}

// nameWidth is the width of the names before values.
const nameWidth = 12

// value writes a value on one line.
func (p *Printer) value(b *strings.Builder, name, value string) {
	fmt.Fprintf(b, "%-*s %s\n", nameWidth, name, p.cut(escaped(value), nameWidth+1))
}

// escaped makes one line of a text, which can't act on a terminal.
func escaped(text string) string {
	return lineBreaks.Replace(string(term.Escape(nil, []byte(text))))
}

var lineBreaks = strings.NewReplacer("\n", `\n`, "\t", `\t`)

// cut shortens a line that begins in a column to the width.
func (p *Printer) cut(text string, column int) string {
	most := mostColumn
	if p.Width > 0 {
		most = max(p.Width-column, leastWidth)
	}
	if p.Full || utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// properties writes the stamp, if there is one, and the other properties.
func (p *Printer) properties(b *strings.Builder, s Seen) {
	rest := s.Event
	if mark, is, err := stamp.From(s.Properties); is && err == nil {
		text := fmt.Sprintf("%v, epoch %d, watermark %d", mark.ID, mark.Epoch, mark.Low)
		if mark.Redrive {
			text += ", of a redrive"
		}
		p.value(b, "stamp", text)
		copied := *s.Event
		copied.Properties = maps.Clone(copied.Properties)
		stamp.Drop(copied.Properties)
		copied.Headers = stamp.DropHeaders(copied.Headers)
		rest = &copied
	}
	for _, property := range properties(rest) {
		p.value(b, "property", readable(property.name)+" = "+readable(property.value))
	}
}

// body writes the decoded body, or why there is none, and the body as it was sent.
func (p *Printer) body(b *strings.Builder, s Seen) {
	sent, shown := s.Event, s.Event
	size, from := humanize.Plural(len(sent.Body), "byte", "bytes"), ""
	switch {
	case s.Err != nil:
		p.value(b, "body", size+", which cannot be decoded:")
		p.paragraph(b, s.Err.Error())
	case s.Decoded != nil && s.Decoded != sent:
		shown = s.Decoded
		size, from = humanize.Plural(len(shown.Body), "byte", "bytes"), ", decoded from "+humanize.Count(len(sent.Body))
	}
	head := func(what string) {
		if s.Err == nil {
			p.value(b, "body", what)
		}
	}
	kind := kindOf(shown.Body)
	switch kind {
	case noBody:
		head("null" + from)
	case emptyBody:
		head("empty" + from)
	case jsonBody:
		head(size + " of JSON" + from)
		p.lines(b, strings.Split(string(jsonscan.Indent(shown.Body)), "\n"), mostLines)
	case textBody:
		head(size + " of text" + from)
		p.lines(b, strings.Split(strings.TrimRight(strings.ReplaceAll(string(shown.Body), "\r\n", "\n"), "\n"), "\n"), mostLines)
	case binaryBody:
		head(size + from)
		p.dump(b, shown.Body)
	}
	if what := guess(sent); what != "" && shown == sent && !errors.Is(s.Err, driver.ErrOutage) {
		p.paragraph(b, "It is "+what+".")
	}
}

// lines writes lines of a body, at most so many.
func (p *Printer) lines(b *strings.Builder, list []string, most int) {
	left := len(list) - most
	if p.Full || left <= 1 { // a line that says that one is left out takes as much
		left, most = 0, len(list)
	}
	cut := false
	for _, line := range list[:most] {
		line = string(term.Escape(nil, []byte(line)))
		short := p.cut(line, 2)
		cut = cut || short != line
		b.WriteString(strings.TrimRight("  "+short, " ") + "\n")
	}
	switch {
	case left > 0:
		fmt.Fprintf(b, "  … %s more: --full shows all\n", humanize.Plural(left, "line", "lines"))
	case cut && len(list) == 1:
		b.WriteString("  … --full shows all\n")
	}
}

// dump writes the beginning of a binary body.
func (p *Printer) dump(b *strings.Builder, body []byte) {
	perLine := 16
	if p.Width > 0 && p.Width < 76 {
		perLine = 8
	}
	left := 0
	if !p.Full {
		left, body = max(0, len(body)-dumped), body[:min(len(body), dumped)]
	}
	for _, line := range dump(body, perLine) {
		b.WriteString("  " + line + "\n")
	}
	if left > 0 {
		fmt.Fprintf(b, "  … %s more: --full shows all\n", humanize.Plural(left, "byte", "bytes"))
	}
}

// paragraph writes words on as many lines as they need.
func (p *Printer) paragraph(b *strings.Builder, text string) {
	width := 100
	if p.Width > 0 {
		width = max(p.Width, leastWidth)
	}
	column := 0
	for _, word := range strings.Fields(escaped(text)) {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
			b.WriteString("  ")
			column = 2
		case column+1+n > width:
			b.WriteString("\n  ")
			column = 2
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteByte('\n')
}
