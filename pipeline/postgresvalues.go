package pipeline

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-go/sluice/internal/jsonscan"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// toArray makes PostgreSQL's text of an array from a JSON array. Elements that are JSON keep their
// quotes; of the others an object is refused.
func toArray(ofJSON bool) guard {
	return func(c cell) (cell, error) {
		doc, ok := c.sharedValue().(string)
		if !ok {
			return c, nil
		}
		depth := maxArrayDepth
		if ofJSON { // the elements have a depth of their own
			depth = maxJSONDepth
		}
		w := &arrayWriter{scanner: jsonscan.New([]byte(doc), depth), json: ofJSON}
		if w.scanner.Peek() != '[' {
			return cell{}, errors.New("is not a JSON array, which a column of an array needs")
		}
		if err := w.array(); err != nil {
			return cell{}, err
		}
		return ownText(w.out.String()), nil
	}
}

// maxArrayDepth is the number of an array's dimensions in PostgreSQL at most.
const maxArrayDepth = 6

// maxJSONDepth is how deep JSON may nest.
const maxJSONDepth = 10_000

type arrayWriter struct {
	scanner *jsonscan.Scanner
	out     strings.Builder
	json    bool
}

// array writes the array that is next.
func (w *arrayWriter) array() error {
	w.out.WriteByte('{')
	n := 0
	err := w.scanner.Array(func() error {
		if n++; n > 1 {
			w.out.WriteByte(',')
		}
		return w.element()
	})
	w.out.WriteByte('}')
	return err
}

func (w *arrayWriter) element() error {
	first := w.scanner.Peek()
	if first == '[' && !w.json {
		return w.array()
	}
	raw, err := w.scanner.Value()
	switch {
	case err != nil:
		return err
	case first == 'n':
		w.out.WriteString("NULL")
	case w.json:
		quoteElement(&w.out, string(raw))
	case first == '{':
		return errors.New("has an object in the array, which only a column of jsonb[] takes")
	case first == '"':
		text, err := textOf(raw)
		if err != nil {
			return err
		}
		quoteElement(&w.out, text)
	default:
		w.out.Write(raw)
	}
	return nil
}

// textOf returns the text of a JSON string, which must be one that PostgreSQL stores.
func textOf(raw []byte) (string, error) {
	v, err := ofJSON(jsonpick.Value{Kind: jsonpick.String, Raw: raw})
	if err != nil {
		return "", err
	}
	c, err := toText(v)
	return c.text, err
}

// quoteElement writes a text in the quotes of arrays and of hstore,
// https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO.
func quoteElement(out *strings.Builder, text string) {
	out.WriteByte('"')
	for i := 0; i < len(text); i++ {
		if text[i] == '"' || text[i] == '\\' {
			out.WriteByte('\\')
		}
		out.WriteByte(text[i])
	}
	out.WriteByte('"')
}

// toHstore makes the text of an hstore from a JSON object of texts, numbers, booleans and nulls.
func toHstore(c cell) (cell, error) {
	doc, ok := c.sharedValue().(string)
	if !ok {
		return c, nil
	}
	s := jsonscan.New([]byte(doc), maxArrayDepth)
	if s.Peek() != '{' {
		return cell{}, errors.New("is not a JSON object, which an hstore needs")
	}
	var out strings.Builder
	names := make(map[string]bool)
	err := s.Object(func(key []byte) error {
		name, err := textOf(key)
		switch {
		case err != nil:
			return err
		case names[name]: // an hstore keeps any of them
			return fmt.Errorf("has %s twice, which an hstore does not have", key)
		}
		first := s.Peek()
		raw, err := s.Value()
		if err != nil {
			return err
		}
		if names[name] = true; len(names) > 1 {
			out.WriteString(", ")
		}
		quoteElement(&out, name)
		out.WriteString("=>")
		switch first {
		case 'n':
			out.WriteString("NULL")
		case '"':
			text, err := textOf(raw)
			if err != nil {
				return err
			}
			quoteElement(&out, text)
		case '{', '[':
			return fmt.Errorf("has an array or object in %s, which an hstore does not have", key)
		default:
			quoteElement(&out, string(raw))
		}
		return nil
	})
	return ownText(out.String()), err
}
