package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
	"github.com/sluice-go/sluice/pipeline/internal/rollup"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/stamp"
)

// rollupConfig is the key memory of a file: statistics that are kept in memory.
type rollupConfig struct {
	keep time.Duration // how far back the log is read
	late time.Duration // how long after its group's time an event counts

	group   []string // the names of the group's values
	time    int      // the index of the time in group
	unit    time.Duration
	key     int // the index of the partition key of messages in group
	stats   []groupStat
	mapping *mapping // the group's columns, then those of the statistics
	stamps  *stamp.Reader
}

// groupStat is one statistic of a group.
type groupStat struct {
	name     string
	function rollup.Function
	column   int // the index in mapping; unused for a count
}

// versionField is the last field of a message.
const versionField = "version"

// units are the units that times can be truncated to.
var units = map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}

func (r *reader) readRollup(n strictyaml.Node) {
	m := &rollupConfig{keep: 24 * time.Hour, stamps: stamp.NewReader(nil)}
	r.rollup, r.Rollup = m, true
	var group, values []column
	ok := n.Object(strictyaml.Keys{
		"keep":    func(n strictyaml.Node) { n.Duration(&m.keep) },
		"late":    func(n strictyaml.Node) { n.Duration(&m.late) },
		"group":   func(n strictyaml.Node) { group = m.readGroup(n) },
		"figures": func(n strictyaml.Node) { values = m.readStats(n) },
	}, "group", "figures")
	if !ok {
		return
	}
	if m.late == 0 {
		m.late = m.keep / 2
	}
	switch {
	case m.late <= m.unit:
		n.Fail("late is %v: it must be longer than the group's %v, and keep longer than late (late is half of keep by default)", m.late, m.unit)
	case m.keep <= m.late+rollup.Early:
		n.Fail("keep is %v and late %v: keep must be longer than late by more than %v; the stage may be down for the rest of the difference", m.keep, m.late, rollup.Early)
	}
	names := slices.Clone(m.group)
	for i := range m.stats {
		f := &m.stats[i]
		f.column += len(group)
		names = append(names, f.name)
	}
	for i, name := range names {
		if name == versionField || slices.Contains(names[:i], name) {
			n.Fail("two fields named %s: a message has the fields of group and figures, and version", name)
		}
	}
	m.mapping = newMapping("field", append(group, values...))
}

// readGroup reads the values of a group, one of which is a time.
func (m *rollupConfig) readGroup(n strictyaml.Node) []column {
	var columns []column
	m.time, m.key = -1, -1
	n.Each(func(name string, n strictyaml.Node) {
		if err := checkName(name); err != nil {
			n.Fail("%w", err)
		}
		var text string
		if !n.Text(&text) {
			return
		}
		c := column{name: name, node: n, typ: typeText, required: true}
		if word, argument, ok := splitCall(text); ok && !isFunction(word) {
			unit, known := units[word]
			switch {
			case !known:
				n.Fail("%s: write minute(…), hour(…) or day(…) around a time, or body.PATH", n.Shown())
				return
			case m.time >= 0:
				n.Fail("a second time: write only one")
				return
			}
			m.time, m.unit, c.typ, text = len(m.group), unit, typeTimestamp, argument
		} else if m.key < 0 {
			m.key = len(m.group)
		}
		from, err := parseOrigin(text)
		if err != nil || from.field == fieldBody {
			n.Fail("%w", orError(err, "cannot be the whole body: write body.PATH"))
			return
		}
		if !slices.Contains(columnTypes[from.field], c.typ) {
			n.Fail("%s can't become %s: write one of %s", from, c.typ, joined(columnTypes[from.field]))
			return
		}
		c.origin = from
		m.group = append(m.group, name)
		columns = append(columns, c)
	})
	if len(m.group) > maxColumns {
		n.Fail("has %d values: at most %d", len(m.group), maxColumns)
		m.group = nil
		return nil
	}
	if m.time < 0 {
		n.Fail("time is missing: write one, such as hour(body.departure): the time decides which events belong to a group, and when the group is complete")
	}
	m.key = max(m.key, 0)
	return columns
}

// readStats reads the statistics of a group.
func (m *rollupConfig) readStats(n strictyaml.Node) []column {
	var columns []column
	words := slices.Sorted(maps.Keys(rollup.Functions))
	n.Each(func(name string, n strictyaml.Node) {
		if err := checkName(name); err != nil {
			n.Fail("%w", err)
		}
		var text string
		if !n.Text(&text) {
			return
		}
		word, argument, of := splitCall(text)
		if !of {
			word = text
		}
		kind, known := rollup.Functions[word]
		if !known || of == (kind == rollup.Count) {
			near := humanize.Nearest(word, words)
			if near != "" && near != word {
				n.Fail("%s: did you mean %s?", n.Shown(), near)
			} else {
				n.Fail("%s: write count, sum(body.PATH), min(…), max(…) or avg(…)", n.Shown())
			}
			return
		}
		m.stats = append(m.stats, groupStat{name: name, function: kind, column: len(columns)})
		if !of {
			return
		}
		from, err := parseOrigin(argument)
		if err != nil || !slices.Contains(columnTypes[from.field], typeNumeric) {
			n.Fail("%w", orError(err, argument+" can't become a number"))
			return
		}
		columns = append(columns, column{name: name, node: n, origin: from, typ: typeNumeric})
	})
	if len(m.stats) > maxColumns {
		n.Fail("has %d figures: at most %d", len(m.stats), maxColumns)
		m.stats = nil
		return nil
	}
	if len(m.stats) == 0 {
		n.Fail("has no figures: write them as NAME: count, or NAME: sum(body.PATH)")
	}
	return columns
}

// splitCall splits word(argument).
func splitCall(text string) (word, argument string, ok bool) {
	word, rest, ok := strings.Cut(text, "(")
	if !ok || !strings.HasSuffix(rest, ")") || word == "" || strings.ContainsAny(word, `.["`) {
		return "", "", false
	}
	return strings.TrimSpace(word), strings.TrimSpace(strings.TrimSuffix(rest, ")")), true
}

// readKey reads which value of the group is the partition key of messages.
func (m *rollupConfig) readKey(n strictyaml.Node) {
	var name string
	if !n.Text(&name) {
		return
	}
	if m.key = slices.Index(m.group, name); m.key < 0 {
		n.Fail("%s: write one of the group's names: %s", n.Shown(), strings.Join(m.group, ", "))
	}
}

// maxPart bounds the length of a group's value in bytes.
const maxPart = 1 << 10

// event converts an event for the rollup. badStamp is why its stamp does not count,
// nil if it does.
func (m *rollupConfig) event(e *sluice.Event, row []any, picked []jsonpick.Value) (f *rollup.Event, badStamp, err error) {
	if e.Enqueued.IsZero() {
		return nil, nil, errors.New("it has no enqueued time")
	}
	if err := m.mapping.fill(row, picked, e); err != nil {
		return nil, nil, err
	}
	f = &rollup.Event{Enqueued: e.Enqueued, Sequence: e.Sequence, Values: make([]*rollup.Number, len(m.stats))}
	// A stamp that does not count is ignored, as in a transactional stage.
	stamp, stamped, badStamp := m.stamps.Read(e.Properties)
	if stamped {
		f.ID = &stamp.ID
	}
	for i, name := range m.group {
		switch v := row[i].(type) {
		case time.Time:
			f.Time = v.Truncate(m.unit)
		case string:
			if len(v) > maxPart || i == m.key && utf8.RuneCountInString(v) > maxKey {
				return nil, nil, fmt.Errorf("field %s: %s: is too long for a value of a group", name, m.mapping.columns[i].origin)
			}
			f.Parts = append(f.Parts, v)
		}
	}
	for i, figure := range m.stats {
		if figure.function == rollup.Count {
			continue
		}
		text, ok := row[figure.column].(string)
		if !ok {
			continue
		}
		number, err := rollup.ParseNumber(text)
		if err != nil {
			return nil, nil, fmt.Errorf("field %s: %s: %w", figure.name, m.mapping.columns[figure.column].origin, err)
		}
		f.Values[i] = &number
	}
	return f, badStamp, nil
}

// message returns the message of a group.
func (m *rollupConfig) message(g *rollup.Group) (*sender.Message, error) {
	out := &sender.Message{ContentType: "application/json"}
	parts := g.Parts
	b := []byte{'{'}
	for i, name := range m.group {
		text := ""
		if i == m.time {
			text = g.Time.UTC().Format(time.RFC3339)
		} else {
			text, parts = parts[0], parts[1:]
		}
		if i == m.key {
			out.Key = text
		}
		value, err := json.Marshal(text)
		if err != nil {
			return nil, err
		}
		if b, err = appendField(b, name, string(value)); err != nil {
			return nil, err
		}
	}
	var err error
	for i, f := range m.stats {
		if b, err = appendField(b, f.name, g.Values[i]); err != nil {
			return nil, err
		}
	}
	if b, err = appendField(b, versionField, strconv.FormatInt(g.Version, 10)); err != nil {
		return nil, err
	}
	out.Body = append(b, '}')
	return out, nil
}

// appendField appends a field to a JSON object that is not closed yet.
func appendField(b []byte, name, value string) ([]byte, error) {
	if len(b) > 1 {
		b = append(b, ',')
	}
	quoted, err := json.Marshal(name)
	return append(append(append(b, quoted...), ':'), value...), err
}
