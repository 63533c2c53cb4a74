package cosmosdb

import (
	"bytes"
	"errors"
	"strings"

	"github.com/sluice-go/sluice/internal/jsonscan"
	"github.com/sluice-go/sluice/internal/partitionkey"
)

const (
	maxDocument = 2 << 20
	maxID       = 1023 // bytes
	maxKey      = 2048 // bytes of a partition key in JSON
	maxDepth    = 128  // of arrays and objects in each other
)

// document is a document in a request. Its parts are slices of the request and of
// buffers that are reused.
type document struct {
	id     []byte
	body   []byte // the object without its closing brace and without system properties
	values int    // number of values to index
	size   int    // in bytes, as the client sent it
	ttl    int32  // seconds, -1: never, 0: the container's

	key     []partitionkey.Value
	keyText []byte // in JSON, canonical: equal for equal keys
	kept    []byte // buffer of body if system properties were removed
}

var (
	errJSON     = errors.New("the request body is not valid JSON")
	errNoID     = errors.New("the document must have an id: a string of 1 to 1,023 bytes without / \\ ? and #")
	errKeyType  = errors.New("a partition key must be a string, a number, a boolean or null")
	errKeyLong  = errors.New("the partition key is longer than 2,048 bytes")
	errTooLarge = errors.New("the document is larger than 2 MB")
)

// keyPath is a path of a partition key definition, such as ["address", "city"].
type keyPath []string

// parseKeyPath parses a path such as /address/city. Names with special characters are in
// quotes.
func parseKeyPath(path string) (keyPath, bool) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok || rest == "" || len(path) > maxID {
		return nil, false
	}
	var parts keyPath
	for more := true; more; {
		var name string
		if rest[0] == '"' || rest[0] == '\'' {
			quote := rest[:1]
			if name, rest, ok = strings.Cut(rest[1:], quote); !ok || rest != "" && rest[0] != '/' {
				return nil, false
			}
			more = rest != ""
			rest = strings.TrimPrefix(rest, "/")
		} else {
			name, rest, more = strings.Cut(rest, "/")
		}
		if name == "" || more && rest == "" {
			return nil, false
		}
		parts = append(parts, name)
	}
	return parts, true
}

// read parses a document and extracts its id and partition key.
func (d *document) read(data []byte, paths []keyPath) error {
	s := jsonscan.New(data, maxDepth)
	if err := d.scan(s, paths); err != nil {
		return err
	}
	return notJSON(s.End())
}

// notJSON replaces a scanner's error by the account's own.
func notJSON(err error) error {
	var syntax *jsonscan.SyntaxError
	if errors.As(err, &syntax) {
		return errJSON
	}
	return err
}

// scan reads a document, the next value of s.
func (d *document) scan(s *jsonscan.Scanner, paths []keyPath) error {
	d.id, d.key, d.ttl = nil, d.key[:0], 0
	for range paths {
		d.key = append(d.key, partitionkey.Undefined)
	}
	s.Peek()
	from, before := s.Offset(), s.Scalars()
	own := false // the document has system properties
	var bad error
	err := s.Object(func(name []byte) error {
		value, err := s.Value()
		if err != nil {
			return err
		}
		switch {
		case jsonscan.Equal(name, "id"):
			if d.id = nil; value[0] == '"' {
				d.id = jsonscan.Unquote(value)
			}
		case jsonscan.Equal(name, "ttl"):
			d.ttl, _ = parseTTL(value) // the container decides whether it matters
		case len(name) > 2 && name[1] == '_' && isSystemProperty(name):
			own = true
		}
		for i, p := range paths {
			if jsonscan.Equal(name, p[0]) {
				if d.key[i], err = keyValue(value, p[1:]); err != nil {
					bad = err
				}
			}
		}
		return nil
	})
	if err != nil {
		return notJSON(err)
	}
	object := s.TextFrom(from)
	d.size = len(object)
	d.values = min(s.Scalars()-before, 1<<16-1)
	d.body = bytes.TrimRight(object[:len(object)-1], " \t\r\n")
	if own {
		d.strip(object)
	}
	switch {
	case bad != nil:
		return bad
	case len(d.id) == 0 || len(d.id) > maxID || bytes.ContainsAny(d.id, `/\?#`):
		return errNoID
	case d.size > maxDocument:
		return errTooLarge
	}
	d.keyText = partitionkey.AppendJSON(d.keyText[:0], d.key)
	if len(d.keyText) > maxKey {
		return errKeyLong
	}
	return nil
}

// keyValue returns the component of the partition key at a path in a value. An object or an
// array there counts as no value.
func keyValue(value []byte, path []string) (partitionkey.Value, error) {
	value, ok := jsonscan.Lookup(value, path)
	if !ok {
		return partitionkey.Undefined, nil
	}
	if value[0] == '{' || value[0] == '[' {
		return partitionkey.Undefined, nil
	}
	v, err := partitionkey.ParseValue(value)
	if err != nil {
		return v, errKeyType
	}
	return v, nil
}

// strip removes system properties, which a client may send back: the account sets them.
func (d *document) strip(object []byte) {
	s := jsonscan.New(object, maxDepth)
	d.kept = append(d.kept[:0], '{')
	_ = s.Object(func(name []byte) error { // it has been scanned before
		value, err := s.Value()
		if !isSystemProperty(name) {
			if len(d.kept) > 1 {
				d.kept = append(d.kept, ',')
			}
			d.kept = append(append(append(d.kept, name...), ':'), value...)
		}
		return err
	})
	d.body = d.kept
}

// isSystemProperty reports whether the account sets the property.
func isSystemProperty(name []byte) bool {
	switch string(name) {
	case `"_rid"`, `"_self"`, `"_etag"`, `"_attachments"`, `"_ts"`:
		return true
	}
	return false
}
