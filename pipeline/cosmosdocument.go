package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cosmos"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/jsonscan"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// documents returns the event's document, with its source if writes are conditional.
func (t *cosmosTarget) documents(ctx context.Context, e *sluice.Event) ([]document, error) {
	doc, err := t.document(e)
	if err != nil {
		return nil, err
	}
	if t.conditional {
		lease := driver.FencingTokenOf(ctx).Lease
		doc.Source = sourceOf(lease.Group.Topic, driver.IncarnationOf(ctx), lease.Epoch, e)
	}
	return []document{doc}, nil
}

// sourceOf returns the source of a document that is written conditionally.
func sourceOf(topic, incarnation string, epoch int64, e *sluice.Event) *cosmos.Source {
	return &cosmos.Source{Topic: topic + " " + incarnation, Partition: e.Partition, Epoch: epoch, Sequence: e.Sequence}
}

// document returns the event's document without its source.
func (t *cosmosTarget) document(e *sluice.Event) (document, error) {
	operation, err := t.operationOf(e)
	if err != nil {
		return document{}, fmt.Errorf("delete_when: %w", err)
	}
	picked := make([]jsonpick.Value, t.paths)
	doc := document{Operation: operation, PartitionKey: make([]any, len(t.parts))}
	if len(e.Body) > 0 || operation != cosmos.Delete {
		if doc.Body, err = jsonpick.UTF8(e.Body); err == nil {
			err = t.picker.Pick(doc.Body, picked)
		}
		if err != nil {
			return document{}, fmt.Errorf("body: %w", err)
		}
	}
	if err := t.setID(&doc, e, picked); err != nil {
		return document{}, fmt.Errorf("id: %s: %w", t.id, err)
	}
	for i := range t.parts {
		part := &t.parts[i]
		if err := t.setKeyPart(&doc, i, e, picked); err != nil {
			return document{}, fmt.Errorf("partition key: %s: %w", part.origin, err)
		}
	}
	switch operation {
	case cosmos.Delete:
		doc.Body = nil
		return doc, nil
	case cosmos.Patch:
		doc.Body, err = t.patchOf(e)
		return doc, err
	}
	if err := t.ttl.addTo(&doc, e, picked); err != nil {
		return document{}, fmt.Errorf("ttl: %w", err)
	}
	return doc, nil
}

// operationOf returns what is done with the document of an event.
func (t *cosmosTarget) operationOf(e *sluice.Event) (cosmos.Operation, error) {
	switch {
	case t.tombstones && e.Body == nil:
		return cosmos.Delete, nil
	case t.deleteWhen.given == nil:
		return t.operation, nil
	}
	deleted, err := t.deleteWhen.matches(e)
	if deleted && err == nil {
		return cosmos.Delete, nil
	}
	return t.operation, err
}

// setID sets the document's id: a number becomes its text, as it is written in the event. The id of
// the body is replaced where the document's is made of it.
func (t *cosmosTarget) setID(doc *document, e *sluice.Event, picked []jsonpick.Value) error {
	id, err := t.id.scalar(e, picked)
	if err != nil || id.kind != text && id.kind != number {
		return orError(err, "is missing, or neither a text nor a number")
	}
	doc.ID = string(id.text)
	if c := cosmos.BadIDCharacter(doc.ID); c != "" {
		return fmt.Errorf("%.80q contains %s, which no id in Cosmos DB may have: put another character in its place, as in id: 'replace(%s, %q, \"_\")'", doc.ID, c, t.id, c)
	}
	own := picked[t.ownID]
	if own.Kind == jsonpick.Missing || doc.Operation == cosmos.Delete || !t.id.madeOf("id") {
		return nil
	}
	if held, err := ofJSON(own); err == nil && held.kind == text && string(held.text) == doc.ID {
		return nil
	}
	doc.Body, err = withMember(doc.Body, "id", doc.ID)
	return err
}

// madeOf reports whether a value is that of a property of the body, or a function of it.
func (o origin) madeOf(property string) bool {
	return slices.ContainsFunc(o.leaves(), func(leaf origin) bool {
		return leaf.field == fieldPath && len(leaf.path) == 1 && leaf.path[0].Key == property
	})
}

// withMember returns a JSON object in which a property has a text as its value, once.
func withMember(body []byte, property, value string) ([]byte, error) {
	out := []byte{'{'}
	s := jsonscan.New(body, maxBodyDepth)
	done := false
	err := s.Object(func(name []byte) error {
		held, err := s.Value()
		if err != nil {
			return err
		}
		if jsonscan.Unquote(name) != nil && string(jsonscan.Unquote(name)) == property {
			if done {
				return nil
			}
			done = true
			if held, err = json.Marshal(value); err != nil {
				return err
			}
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), held...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	return append(out, '}'), nil
}

// maxBodyDepth is how deep a document may nest: the account's limit.
const maxBodyDepth = 128

// setKeyPart sets a component of the partition key, and adds it to the document if it is not of it.
func (t *cosmosTarget) setKeyPart(doc *document, i int, e *sluice.Event, picked []jsonpick.Value) error {
	part := &t.parts[i]
	v, err := part.origin.scalar(e, picked)
	if err != nil {
		return err
	}
	if v.kind == missing && t.withoutKey && doc.Body != nil {
		doc.PartitionKey[i] = cosmos.Undefined
		return nil
	}
	if doc.PartitionKey[i], err = keyValue(v); err != nil {
		return err
	}
	if part.property == "" || doc.Operation == cosmos.Delete {
		return nil
	}
	doc.Body, err = part.addTo(doc.Body, doc.PartitionKey[i], picked[part.slot])
	return err
}

// addTo adds the time to live to a document, if there is one.
func (l *timeToLive) addTo(doc *document, e *sluice.Event, picked []jsonpick.Value) error {
	if l.node == nil {
		return nil
	}
	seconds := int64(l.constant / time.Second)
	if l.constant == 0 {
		v, err := l.part.origin.scalar(e, picked)
		if err != nil || v.kind == missing || v.kind == null {
			return err
		}
		whole, err := toInteger(v, -1, maxTTL)
		if err != nil {
			return fmt.Errorf("%s: %w", l.part.origin, err)
		}
		if seconds = whole.integer; seconds == 0 {
			return fmt.Errorf("%s: is 0: a document lives for 1 second at least, or -1: for ever", l.part.origin)
		}
	}
	var err error
	doc.Body, err = l.part.addTo(doc.Body, seconds, picked[l.part.slot])
	return err
}

func orError(err error, otherwise string) error {
	if err != nil {
		return err
	}
	return errors.New(otherwise)
}

func keyValue(v scalar) (any, error) {
	switch v.kind {
	case missing:
		return nil, errors.New("is missing")
	case null:
		return nil, nil
	case text:
		return string(v.text), nil
	case number:
		return json.Number(v.text), nil
	case boolean:
		return string(v.text) == "true", nil
	}
	return nil, errors.New("is neither a text, a number, a boolean nor null")
}

// addTo adds the value to the document, unless the document has it.
func (part *keyPart) addTo(body []byte, value any, held jsonpick.Value) ([]byte, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	if held.Kind != jsonpick.Missing {
		if slices.Equal(encoded, held.Raw) {
			return body, nil
		}
		return nil, fmt.Errorf("the body has another value in its property %s", part.property)
	}
	name, err := json.Marshal(part.property)
	if err != nil {
		return nil, err
	}
	open := strings.IndexByte(string(body), '{')
	if open < 0 {
		return nil, errors.New("body: is not a JSON object")
	}
	rest := strings.TrimLeft(string(body[open+1:]), " \t\r\n")
	out := make([]byte, 0, len(body)+len(name)+len(encoded)+3)
	out = append(append(append(append(out, '{'), name...), ':'), encoded...)
	if rest != "" && rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...), nil
}
