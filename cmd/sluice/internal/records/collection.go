package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/sluice-go/sluice/cmd/sluice/internal/textfile"
)

// collection reads the features of GeoJSON's collections (RFC 7946), which follow each other. What
// collections have besides is left out.
type collection struct {
	scanner
	encoding textfile.Encoding
	number   int
	state    collectionState
	typed    bool // it has the type FeatureCollection
	listed   bool // it has features
}

type collectionState int

const (
	outside collectionState = iota
	members
	features
)

func (c *collection) next() (Record, error) {
	for {
		switch c.state {
		case outside:
			if err := c.begin(); err != nil {
				return Record{}, err
			}
		case members:
			if err := c.member(); err != nil {
				return Record{}, err
			}
		case features:
			record, more, err := c.feature()
			if more || err != nil {
				return record, err
			}
		}
	}
}

// begin reads the bracket of a collection.
func (c *collection) begin() error {
	first, err := c.skipSpace()
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case err != nil:
		return fmt.Errorf("%s: line %d: %w", c.file, c.line, err)
	case first != '{':
		return fmt.Errorf("%s: line %d: %q follows the end of a FeatureCollection", c.file, c.line, first)
	}
	c.state, c.typed, c.listed = members, false, false
	_, err = c.in.Discard(1)
	return err
}

// member reads a member of a collection, or up to its features, or the collection's end.
func (c *collection) member() error {
	if first, err := c.skipSpace(); err == nil && first == '}' {
		_, err = c.in.Discard(1)
		return errors.Join(err, c.end())
	}
	text, _, _, err := c.readTo(":")
	if err != nil {
		return c.fail("the FeatureCollection", err)
	}
	var name string
	if err := json.Unmarshal(text, &name); err != nil {
		return fmt.Errorf("%s: line %d: not JSON: %w", c.file, c.line, err)
	}
	if name == "features" {
		return c.openFeatures()
	}
	value, size, end, err := c.readTo(",}")
	if err != nil {
		return c.fail("the FeatureCollection", err)
	}
	if size <= MaxSize {
		if err := checkJSON(value); err != nil {
			return fmt.Errorf("%s: line %d: %s: %w", c.file, c.line, name, err)
		}
	}
	if name == "type" {
		if string(value) != `"FeatureCollection"` {
			return fmt.Errorf("%s: line %d: the type is %.40s, and not FeatureCollection", c.file, c.line, value)
		}
		c.typed = true
	}
	if end == '}' {
		return c.end()
	}
	return nil
}

func (c *collection) openFeatures() error {
	first, err := c.skipSpace()
	switch {
	case err != nil:
		return c.fail("the FeatureCollection", err)
	case first != '[' || c.listed:
		return fmt.Errorf("%s: line %d: a FeatureCollection must have one array of features", c.file, c.line)
	}
	c.state, c.listed = features, true
	_, err = c.in.Discard(1)
	return err
}

// feature returns the next feature. There are no more after the last one of a collection.
func (c *collection) feature() (_ Record, more bool, err error) {
	first, err := c.skipSpace()
	if err != nil {
		return Record{}, false, c.fail(fmt.Sprintf("after feature %d: the FeatureCollection", c.number), err)
	}
	if first == ']' {
		if _, err := c.in.Discard(1); err != nil {
			return Record{}, false, err
		}
		return Record{}, false, c.closeFeatures()
	}
	c.number++
	at := Place{File: c.file, Unit: "feature", Number: c.number}
	body, size, end, err := c.readTo(",]")
	if err != nil {
		return Record{}, false, c.fail(fmt.Sprintf("feature %d", c.number), err)
	}
	record, err := whole(at, body, size, c.encoding)
	if end == ']' {
		if unread := c.in.UnreadByte(); unread != nil {
			return Record{}, false, unread
		}
	}
	return record, true, err
}

// closeFeatures reads up to the next member.
func (c *collection) closeFeatures() error {
	c.state = members
	next, err := c.skipSpace()
	if err != nil {
		return c.fail("the FeatureCollection", err)
	}
	if next == ',' {
		_, err = c.in.Discard(1)
		return err
	}
	if next != '}' {
		return fmt.Errorf("%s: line %d: not JSON: %q follows the features", c.file, c.line, next)
	}
	return nil
}

// end ends a collection.
func (c *collection) end() error {
	c.state = outside
	if !c.typed || !c.listed {
		return fmt.Errorf("%s: line %d: an object ends that is no FeatureCollection: it needs the type FeatureCollection and features", c.file, c.line)
	}
	return nil
}
