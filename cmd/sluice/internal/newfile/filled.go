package newfile

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/sluice-go/sluice/internal/humanize"
)

// Filled is what is known of the events. All texts may be anything.
type Filled struct {
	Log         *Log     // nil: the names in source are to be corrected
	Format      []string // the keys of source.format, as "compression: gzip"
	Advice      []string // lines of comment about the format
	Tables      []Table  // at least one
	Own         bool     // the tables exist: they are not created
	Description string   // of which events this was guessed
}

// Log is a hub or a topic that was read.
type Log struct {
	Name       string
	Connection string // of a hub, as ${NAME}; empty: Namespace and Entra ID
	Namespace  string
	Group      string // of consumers of the hub; empty: the default
	WebSocket  bool
	Brokers    string
	TLS, SASL  string // the values of tls and sasl, as a file has them
}

// Table is a table and its columns.
type Table struct {
	Name    string
	From    string   // the value that selects its events; empty: all events
	Values  []string // which they are
	Columns []Column
	Key     []string
}

// Column is a column and where its value comes from.
type Column struct {
	Name, From, Type, Format, Zone string
	Default                        string // of an event without the value; empty: none
	Plain                          bool   // name: from, without a type
	Required                       bool   // an event without the value is rejected
	Comment                        string // an example, and why
}

// Name is the name of the hub, the topic and the table for a file.
func Name(file string) string {
	name := regexp.MustCompile(`[^A-Za-z0-9_]+`).ReplaceAllString(file, "_")
	if lower := strings.ToLower(name); lower == "" || lower == "null" || strings.HasPrefix(lower, "sluice_") {
		return "events"
	}
	const most = 50 // of 63, the longest name that all databases have
	return name[:min(len(name), most)]
}

// source returns the source block of a log that was read.
func (l *Log) source(kind string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if kind == "kafka" {
		line("  kafka:\n    brokers: %s\n    topic: %s", value(l.Brokers), value(l.Name))
		line("    group: sluice # the name of checkpoints")
		if l.TLS != "" {
			line("    tls: %s", l.TLS)
		}
		if l.SASL != "" {
			line("    sasl: %s", l.SASL)
		}
		return b.String()
	}
	line("  eventhub:")
	if l.Connection != "" {
		line("    connection: %s", l.Connection)
	} else {
		line("    namespace: %s\n    credential: default", value(l.Namespace))
	}
	line("    hub: %s", value(l.Name))
	line("    consumer_group: %s # better one of its own, which no other program reads", value(cmp.Or(l.Group, "$Default")))
	if l.WebSocket {
		line("    websocket: true")
	}
	return b.String()
}

// format returns source.format, and lines of comment before it.
func (f *Filled) format() string {
	text := ""
	for _, line := range f.Advice {
		text += "  # " + Comment(line, maxComment) + "\n"
	}
	if len(f.Format) > 0 {
		text += "  format: {" + strings.Join(f.Format, ", ") + "}\n"
	}
	return text
}

const maxComment = 300

// target returns the target, or routes.
func (f *Filled) target() string {
	var b strings.Builder
	b.WriteString("\n")
	if f.Description != "" {
		fmt.Fprintf(&b, "# Guessed from %s. required: false: a later event may lack the value.\n", Comment(f.Description, maxComment))
	}
	if len(f.Tables) == 1 {
		b.WriteString("target:\n")
		f.Tables[0].write(&b, "  ", !f.Own)
		return b.String()
	}
	b.WriteString("routes: # an event that no route takes becomes a dead letter, unless otherwise is ignore\n")
	for _, t := range f.Tables {
		fmt.Fprintf(&b, "  - only: %s\n    target:\n", Only(t.From, t.Values))
		t.write(&b, "      ", !f.Own)
	}
	return b.String()
}

func (t *Table) write(b *strings.Builder, indent string, create bool) {
	line := func(format string, args ...any) { fmt.Fprintf(b, indent+format+"\n", args...) }
	if len(t.Key) > 0 {
		line("insert: # writes the row with the key of each event, exactly once")
	} else {
		line("insert: # adds a row for each event, exactly once")
	}
	line("  table: %s", value(t.Name))
	if create {
		line("  create: true # the table is created if it is missing")
	}
	if len(t.Key) > 0 {
		names := make([]string, len(t.Key))
		for i, name := range t.Key {
			names[i] = value(name)
		}
		line("  key: [%s]", strings.Join(names, ", "))
	}
	line("  columns:")
	for _, c := range t.Columns {
		line("    %s", c.Text())
	}
}

// Text returns the column in one line.
func (c *Column) Text() string {
	text := quote(c.Name) + ": "
	if c.Plain {
		text += value(c.From)
	} else {
		text += "{from: " + value(c.From)
		for _, more := range []struct{ key, value string }{{"type", c.Type}, {"format", c.Format}, {"zone", c.Zone}, {"default", c.Default}} {
			if more.value != "" {
				text += ", " + more.key + ": " + value(more.value)
			}
		}
		if !c.Required && c.Default == "" {
			text += ", required: false"
		}
		text += "}"
	}
	if said := Comment(c.Comment, maxComment); said != "" {
		text += " # " + said
	}
	return text
}

// Comment returns a text for a comment: on one line, and of characters that YAML allows.
func Comment(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r != ' ' && (!unicode.IsPrint(r) || r == unicode.ReplacementChar) {
			return -1
		}
		return r
	}, text)
	return humanize.Shorten(text, most)
}

// bare are texts that YAML and the reader of files take as they are, in blocks and in {}.
var bare = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_.$/-]*$`)

// value returns a scalar, which holds no variable.
func value(text string) string { return quote(strings.ReplaceAll(text, "${", "$${")) }

// quote returns a key, or a scalar with its variables.
func quote(text string) string {
	switch strings.ToLower(text) {
	case "", "null", "true", "false", "yes", "no", "on", "off", "y", "n":
		return strconv.Quote(text)
	}
	if bare.MatchString(text) {
		return text
	}
	return strconv.Quote(strings.ToValidUTF8(text, "\uFFFD"))
}

// Only is what selects events by a value, as the key only has it.
func Only(from string, values []string) string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = value(v)
	}
	return fmt.Sprintf("{%s: [%s]}", quote(from), strings.Join(list, ", "))
}

// AnyAddress is a valid address of a kind of database.
func AnyAddress(database string) string {
	return cmp.Or(schemes[database], "sqlite:any.db")
}

// Quoted is a value as it stands in a file.
func Quoted(text string) string { return value(text) }

// WithVariables is a value whose ${NAME} are variables.
func WithVariables(text string) string { return quote(text) }
