package records

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// detect finds the format. The first character separates JSON from CSV, and the rest of the
// beginning must fit that format. Blank lines before the first record are left to the format's
// reader, so that lines are counted right.
func (r *Reader) detect() error {
	head, first, err := r.beginning()
	if err != nil || first < 0 {
		r.next = func() (Record, error) { return Record{}, io.EOF }
		return err
	}
	switch c := head[first]; {
	case r.cfg.Delimiter != 0:
		return r.table()
	case c == '[' && !arrayLine(head[first:]):
		a := &array{scanner: scanner{in: r.in, file: r.file}, encoding: r.cfg.Encoding}
		r.next = a.next
	case c == '[', c == '{':
		return r.objects()
	case c == '<':
		return r.markup(head[first:])
	case c == 0x1e:
		return fmt.Errorf("%s: a JSON text sequence, with the character 0x1E before each value: remove these, for example with tr -d '\\036'", r.file)
	default:
		return r.table()
	}
	return nil
}

// beginning returns what is there of the beginning, and where the first character stands in it that
// is not white space; -1 if there is none. It looks no further than the buffer.
func (r *Reader) beginning() (head []byte, first int, err error) {
	for n := 1; ; n = len(head) + 1 {
		_, err := r.in.Peek(n)
		head, _ = r.in.Peek(r.in.Buffered())
		if first = bytes.IndexFunc(head, func(c rune) bool { return c >= 0x80 || !space(byte(c)) }); first >= 0 {
			return head, first, nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil, -1, nil
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, -1, fmt.Errorf("%s: begins with %d bytes of white space: remove them", r.file, len(head))
		case err != nil:
			return nil, -1, fmt.Errorf("%s: %w", r.file, err)
		}
	}
}

// arrayLine reports whether the first line is one JSON array, and more follows it.
func arrayLine(head []byte) bool {
	line, rest, _ := bytes.Cut(head, []byte("\n"))
	return json.Valid(line) && !blank(rest)
}

// objects chooses between the readers of JSON objects, by the first line: it is a GeoJSON
// collection, or a whole value, or neither.
func (r *Reader) objects() error {
	is, err := r.isCollection()
	if err != nil {
		return fmt.Errorf("%s: %w", r.file, err)
	}
	if is {
		c := &collection{scanner: scanner{in: r.in, file: r.file, line: 1}, encoding: r.cfg.Encoding}
		r.next = c.next
		return nil
	}
	l := &lines{in: r.in, file: r.file, encoding: r.cfg.Encoding}
	whole, err := l.readFirst()
	switch {
	case err != nil:
		return fmt.Errorf("%s: line %d: %w", r.file, l.line+1, err)
	case whole:
		r.next = l.next
	default:
		in := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(l.first), r.in), r.in.Size())
		v := &values{scanner: scanner{in: in, file: r.file, line: l.line + 1}, encoding: r.cfg.Encoding}
		r.next = v.next
	}
	return nil
}

// isCollection reports whether the input begins with a GeoJSON object that has features. It looks
// no further than the buffer, and does not wait for what comes after the object.
func (r *Reader) isCollection() (bool, error) {
	for {
		head, err := r.in.Peek(r.in.Buffered())
		if err != nil {
			return false, err
		}
		if is, decided := collectionIn(head); decided {
			return is, nil
		}
		_, err = r.in.Peek(len(head) + 1)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, bufio.ErrBufferFull):
			return false, nil
		case err != nil:
			return false, err
		}
	}
}

// collectionIn reports whether an object is a GeoJSON collection of features, by the member "type",
// or by the type of the first of its features if that comes first. It is decided unless the object
// is cut off before.
func collectionIn(head []byte) (is, decided bool) {
	cut := func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
	d := json.NewDecoder(bytes.NewReader(head))
	if _, err := d.Token(); err != nil {
		return false, !cut(err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return false, !cut(err)
		}
		if key == "features" {
			return firstFeature(d)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return false, !cut(err)
		}
		if key == "type" {
			return string(value) == `"FeatureCollection"`, true
		}
	}
	_, err := d.Token() // the end of the object, unless that is cut off
	return false, !cut(err)
}

// firstFeature reports whether the value of "features" is an array that begins with a feature.
func firstFeature(d *json.Decoder) (is, decided bool) {
	open, err := d.Token()
	if err != nil || open != json.Delim('[') {
		return false, err == nil
	}
	if !d.More() {
		return false, false
	}
	var feature struct{ Type string }
	if err := d.Decode(&feature); err != nil {
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		return false, errors.As(err, &syntax) || errors.As(err, &kind)
	}
	return feature.Type == "Feature", true
}

// markup refuses XML and HTML.
func (r *Reader) markup(head []byte) error {
	name := "XML"
	if lower := bytes.ToLower(head[:min(len(head), 1024)]); bytes.HasPrefix(lower, []byte("<!doctype html")) || bytes.Contains(lower, []byte("<html")) {
		name = "HTML"
	}
	return fmt.Errorf("%s: %s (it begins with %q), which cannot be read: pass JSON or CSV, or --delimiter if it is CSV", r.file, name, clip(head))
}

// clip returns the beginning of a text's first line.
func clip(text []byte) string {
	text, _, _ = bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	text = bytes.TrimSpace(text)
	if runes := bytes.Runes(text); len(runes) > 40 {
		return string(runes[:40]) + "…"
	}
	return string(text)
}
