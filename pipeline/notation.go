package pipeline

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/pipeline/internal/times"
)

// notation says how senders write a column's value, where the type alone leaves that open. Its zero
// value reads the common spellings.
type notation struct {
	time   *times.Format  // of timestamp and date
	zone   *time.Location // of times without an offset
	words  []string       // for true and false
	binary binaryFormat   // of bytes
}

// binaryFormat is how text stands for bytes.
type binaryFormat string

var binaryFormats = []binaryFormat{"base64", "base64url", "hex", "text"}

// readNotation reads the keys format and zone of a column with its type, each nil if not given.
func (c *column) readNotation(format, zone *strictyaml.Node) bool {
	if format == nil && zone == nil {
		return true
	}
	c.notation = &notation{}
	for _, n := range []*strictyaml.Node{format, zone} {
		if n != nil && !slices.Contains(columnTypes[c.origin.field], typeDate) {
			return n.Fail("does not go with %s, which has one format: remove it", c.origin)
		}
	}
	if format != nil && !c.readFormat(*format) {
		return false
	}
	if zone != nil {
		return c.readZone(*zone)
	}
	if f := c.notation.time; f != nil && c.typ == typeTimestamp && !f.Zoned() {
		return format.Fail("%s has no offset from UTC: add zone: UTC, or the zone of the sender, or XXX for an offset", format.Shown())
	}
	return true
}

func (c *column) readFormat(n strictyaml.Node) (ok bool) {
	var text string
	if !n.Text(&text) {
		return false
	}
	switch c.typ {
	case typeTimestamp, typeDate:
		f, err := times.NewFormat(text)
		if err != nil {
			return n.Fail("%w", err)
		}
		if c.typ == typeDate && f.Timed() {
			return n.Fail("%s has a time of day, which a date would lose: write type: timestamp", n.Shown())
		}
		c.notation.time = f
	case typeBoolean:
		c.notation.words = strings.Split(text, "/")
		if w := c.notation.words; len(w) != 2 || w[0] == "" || w[1] == "" || strings.EqualFold(w[0], w[1]) {
			return n.Fail("%s must be the words for true and false, as in 1/0 or yes/no", n.Shown())
		}
	case typeBytes:
		c.notation.binary = binaryFormat(text)
		if !slices.Contains(binaryFormats, c.notation.binary) {
			return n.Fail("%s is no format of bytes: write base64, base64url, hex or text", n.Shown())
		}
	default:
		return n.Fail("goes with timestamp, date, boolean or bytes, not with %s", c.typ)
	}
	return true
}

func (c *column) readZone(n strictyaml.Node) bool {
	var name string
	if !n.Text(&name) {
		return false
	}
	zone, err := times.LoadZone(name)
	switch f := c.notation.time; {
	case err != nil:
		return n.Fail("%s %w", n.Shown(), err)
	case c.typ != typeTimestamp:
		return n.Fail("goes with type: timestamp")
	case f != nil && f.Zoned():
		return n.Fail("does not go with a format that has an offset, or is a number")
	}
	c.notation.zone = zone
	return true
}

// convert converts a scalar that is neither missing nor null, as [columnType.convert] does, in the
// column's notation, which it has.
func (c *column) convert(v scalar) (cell, error) {
	if v.kind == compound {
		return c.typ.convert(v)
	}
	n := c.notation
	switch {
	case c.typ == typeTimestamp && (n.time != nil || n.zone != nil && v.kind == text), c.typ == typeDate && n.time != nil:
		at, err := n.read(v)
		if err != nil {
			return cell{}, v.be(err)
		}
		if c.typ == typeDate {
			return ownText(at.Format(time.DateOnly)), nil
		}
		return cell{kind: cellTime, time: at}, nil
	case c.typ == typeBoolean && n.words != nil && v.kind != boolean:
		for i, word := range n.words {
			if strings.EqualFold(word, string(v.text)) {
				return cell{other: i == 0}, nil
			}
		}
		return cell{}, v.is(fmt.Sprintf("neither %s nor %s", n.words[0], n.words[1]))
	case c.typ == typeBytes && n.binary != "" && v.kind == text:
		return n.binary.read(v)
	}
	return c.typ.convert(v)
}

// read reads a time, or a date as its midnight.
func (n *notation) read(v scalar) (time.Time, error) {
	if n.time == nil {
		return times.Parse(v.text, n.zone)
	}
	digits := v.text
	if v.kind == number && bytes.ContainsAny(digits, "eE") {
		d, exact := splitDecimal(digits)
		if !exact {
			return time.Time{}, errors.New("is out of range")
		}
		if digits = []byte(d.sign + d.whole); strings.Trim(d.fraction, "0") != "" {
			digits = []byte(d.sign + d.whole + "." + d.fraction)
		}
	}
	return n.time.Time(digits, cmp.Or(n.zone, time.UTC)) // UTC is for dates: other formats have an offset
}

// read decodes a text.
func (f binaryFormat) read(v scalar) (cell, error) {
	var b []byte
	var err error
	switch f {
	case "text":
		b = v.text
	case "hex":
		b, err = hex.AppendDecode(nil, v.text)
	case "base64url":
		b, err = base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(string(v.text), "="))
	default:
		b, err = base64.StdEncoding.Strict().DecodeString(string(v.text))
	}
	if err != nil {
		return cell{}, v.is("not " + string(f))
	}
	return cell{other: b}, nil
}

// toTime reads a time in one of the common spellings.
func toTime(v scalar) (cell, error) {
	if v.kind == number {
		if unit := times.Guess(v.text); unit != "" {
			f, err := times.NewFormat(unit)
			if err != nil {
				return cell{}, err
			}
			if at, err := f.Time(v.text, nil); err == nil {
				return cell{}, v.is(fmt.Sprintf("a number where a time should be: format: %s would make it %s", unit, at.Format(time.RFC3339)))
			}
		}
	}
	if v.kind != text {
		return cell{}, fmt.Errorf("%s where %s should be", v, typeTimestamp.wants())
	}
	at, err := times.Parse(v.text, nil)
	if err != nil {
		return cell{}, v.be(err)
	}
	return cell{kind: cellTime, time: at}, nil
}

// toDate reads a date.
func toDate(v scalar) (cell, error) {
	if v.kind != text {
		return cell{}, fmt.Errorf("%s where %s should be", v, typeDate.wants())
	}
	at, err := times.ParseDate(v.text)
	if err != nil {
		return cell{}, v.be(err)
	}
	return ownText(at.Format(time.DateOnly)), nil
}
