package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/strictyaml"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
	"github.com/sluice-go/sluice/sender"
)

// hubTarget is the next hub, and what becomes of an event on the way there.
type hubTarget struct {
	hub
	key     bool     // the mapping's first column is the partition key; else it is the event's own
	mapping *mapping // key and body
	whole   bool     // the body is the event's as it is
}

// maxKey is how many characters a partition key may have,
// https://learn.microsoft.com/azure/event-hubs/event-hubs-quotas.
const maxKey = 128

// readNext reads target.eventhub.
func (p *Pipeline) readNext(n strictyaml.Node) {
	t := &hubTarget{whole: true}
	p.next = t
	var columns []column
	keys := strictyaml.Keys{"hub": func(n strictyaml.Node) { n.Text(&t.name) }}
	if p.memory == nil {
		keys["key"] = func(n strictyaml.Node) {
			from, ok := readOrigin(n)
			t.key = true
			columns = append([]column{{name: "key", at: n, from: from, typ: typeText, required: ok}}, columns...)
		}
		keys["body"] = func(n strictyaml.Node) {
			t.whole = false
			body := readColumns(n)
			if len(body) == 0 {
				n.Fail("has no fields: write them as NAME: {from: …, type: …}")
			}
			columns = append(columns, body...)
		}
	} else {
		keys["key"] = p.memory.readKey
	}
	if !t.read(n, keys) {
		return
	}
	if t.at == nil {
		t.namespace = p.hub.namespace
	}
	if t.at == nil { // neither has the source one, which is told
		return
	}
	// As for a source: what is wrong with the words is told at once.
	source, err := t.source()
	if err != nil {
		t.at.Fail("%w", err)
		return
	}
	if g := source.Group(); g.Topic == p.Group.Topic && g.Namespace == p.Group.Namespace {
		n.Fail("hub %s is the one that is read: events would go round for ever", g.Topic)
	}
	t.mapping = newMapping("field", columns)
}

// messages makes an event's message.
func (t *hubTarget) messages(_ context.Context, e *sluice.Event) ([]*sender.Message, error) {
	m := &sender.Message{Key: e.Key}
	row := make([]any, len(t.mapping.columns))
	if err := t.mapping.fill(row, make([]jsonpick.Value, t.mapping.paths), e); err != nil {
		return nil, err
	}
	columns := t.mapping.columns
	if t.key {
		m.Key, _ = row[0].(string)
		if utf8.RuneCountInString(m.Key) > maxKey {
			return nil, fmt.Errorf("key: %s: has more than %d characters", columns[0].from, maxKey)
		}
		row, columns = row[1:], columns[1:]
	}
	if t.whole {
		m.Body, m.MessageID, m.CorrelationID, m.ContentType = e.Body, e.MessageID, e.CorrelationID, e.ContentType
		m.Properties = maps.Clone(e.Properties)
		return []*sender.Message{m}, nil
	}
	m.ContentType = "application/json"
	var err error
	m.Body, err = appendObject(nil, columns, row)
	return []*sender.Message{m}, err
}

// appendObject writes a row as a JSON object.
func appendObject(b []byte, columns []column, row []any) ([]byte, error) {
	b = append(b, '{')
	for i, c := range columns {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(c.name)
		if err != nil {
			return nil, err
		}
		b = append(append(b, name...), ':')
		if b, err = c.typ.appendJSON(b, row[i]); err != nil {
			return nil, fmt.Errorf("field %s: %w", c.name, err)
		}
	}
	return append(b, '}'), nil
}

// appendJSON writes a converted value as JSON, numbers with all their digits.
func (t columnType) appendJSON(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case time.Time:
		return append(v.AppendFormat(append(b, '"'), time.RFC3339Nano), '"'), nil
	case string:
		if t == typeNumeric || t == typeJSON {
			return append(b, v...), nil
		}
	}
	text, err := json.Marshal(v) // texts, doubles, and bytes as base64
	return append(b, text...), err
}

// open makes the sink, after a look at the hub. Parts closes it.
func (t *hubTarget) open(ctx context.Context, parts *Parts) (*sender.Sink, error) {
	// As with a database: what is wrong with the hub is told at the start.
	if err := t.check(ctx); err != nil {
		return nil, err
	}
	transport, err := t.transport()
	if err != nil {
		return nil, err
	}
	parts.closeFirst(transport.Close)
	sink := sender.NewSink(transport, nil)
	parts.closeFirst(sink.Close)
	return sink, nil
}

// deliver makes the delivery into the hub.
func (t *hubTarget) deliver(ctx context.Context, p *Pipeline, parts *Parts) (sluice.Delivery, error) {
	sink, err := t.open(ctx, parts)
	if err != nil {
		return nil, err
	}
	return atLeastOnce(p, parts, sender.Stamped(t.messages), sink, func(m *sender.Message) string { return m.Key })
}

// check sees that the hub is there.
func (t *hubTarget) check(ctx context.Context) error {
	source, err := t.source()
	if err != nil {
		return err
	}
	_, err = source.Describe(ctx)
	return errors.Join(err, source.Close(ctx))
}
