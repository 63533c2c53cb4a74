package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// origin is the place of a value in an event.
type origin struct {
	field field
	name  string        // of the property or the topic; the text of a literal
	call  *call         // of fieldCall
	path  jsonpick.Path // into the body
	slot  int           // the index of the path's value among those picked
}

type field string

const (
	fieldTopic         field = "topic" // the name of the topic or hub
	fieldPartition     field = "partition"
	fieldSequence      field = "sequence"
	fieldOffset        field = "offset"
	fieldEnqueued      field = "enqueued"
	fieldCreated       field = "created"
	fieldKey           field = "key"
	fieldMessageID     field = "message_id"
	fieldCorrelationID field = "correlation_id"
	fieldContentType   field = "content_type"
	fieldType          field = "type"  // of a CloudEvent
	fieldBody          field = "body"  // as it is
	fieldPath          field = "body." // a value in its JSON
	fieldProperty      field = "properties."
	fieldElement       field = "each."      // a value in an element of insert.each, or the element
	fieldIndex         field = "each_index" // of the element in its array
	fieldCall          field = "function."
	fieldLiteral       field = "literal." // an argument of a call
)

var anyScalar = []columnType{
	typeText, typeSmallint, typeInteger, typeBigint, typeReal, typeDouble, typeNumeric, typeBoolean, typeTimestamp, typeDate, typeBytes,
}

// columnTypes lists the types that a field can be converted to, the default first.
var columnTypes = map[field][]columnType{
	fieldTopic:         {typeText},
	fieldPartition:     {typeText, typeSmallint, typeInteger, typeBigint},
	fieldSequence:      {typeBigint, typeInteger, typeNumeric, typeText},
	fieldOffset:        {typeText, typeBigint},
	fieldEnqueued:      {typeTimestamp, typeText},
	fieldCreated:       {typeTimestamp, typeText},
	fieldKey:           anyScalar,
	fieldMessageID:     anyScalar,
	fieldCorrelationID: anyScalar,
	fieldContentType:   {typeText},
	fieldType:          {typeText},
	fieldBody:          {typeBytes, typeText, typeJSON},
	fieldPath:          append(slices.Clone(anyScalar), typeJSON),
	fieldProperty:      anyScalar,
	fieldElement:       append(slices.Clone(anyScalar), typeJSON),
	fieldIndex:         {typeInteger, typeBigint, typeText},
	fieldCall:          anyScalar,
}

// parseOrigin parses the place of a value that is in no element of an array.
func parseOrigin(text string) (origin, error) {
	from, err := parsePlace(text)
	if err == nil && from.inElement() {
		err = fmt.Errorf("%q: only columns of an insert with the key each can be of an element", text)
	}
	return from, err
}

// parsePlace parses the value of `from:`.
func parsePlace(text string) (origin, error) {
	if isCall(text) {
		return parseCall(text)
	}
	if name, ok := strings.CutPrefix(text, string(fieldProperty)); ok && name != "" {
		return origin{field: fieldProperty, name: name}, nil
	}
	if text == "each" {
		return origin{field: fieldElement}, nil
	}
	for root, of := range map[string]field{"body": fieldPath, "each": fieldElement} {
		if rest, ok := strings.CutPrefix(text, root); ok && rest != "" && (rest[0] == '.' || rest[0] == '[') {
			path, err := jsonpick.ParsePath(rest)
			if err != nil {
				return origin{}, fmt.Errorf("%q: %w", text, err)
			}
			return origin{field: of, path: path}, nil
		}
	}
	f := field(text)
	if _, ok := columnTypes[f]; ok && !strings.HasSuffix(text, ".") {
		return origin{field: f}, nil
	}
	if near := humanize.Nearest(text, plainFields()); near != "" {
		return origin{}, fmt.Errorf("%q: did you mean %s?", text, near)
	}
	return origin{}, fmt.Errorf("%q: write %s, body.PATH, properties.NAME or a function of them", text, strings.Join(plainFields(), ", "))
}

func plainFields() []string {
	var list []string
	for _, f := range slices.Sorted(maps.Keys(columnTypes)) {
		if !strings.HasSuffix(string(f), ".") && f != fieldIndex {
			list = append(list, string(f))
		}
	}
	return list
}

// String returns the form that parseOrigin parses.
func (o origin) String() string {
	switch o.field {
	case fieldPath:
		return "body" + o.path.String()
	case fieldElement:
		return "each" + o.path.String()
	case fieldProperty:
		return string(fieldProperty) + o.name
	case fieldCall:
		return o.call.String()
	case fieldLiteral:
		return strconv.Quote(o.name)
	}
	return string(o.field)
}

// leaves are the places in the event that the value depends on.
func (o origin) leaves() []origin {
	if o.field != fieldCall {
		return []origin{o}
	}
	var list []origin
	for _, a := range o.call.arguments {
		list = append(list, a.leaves()...)
	}
	return list
}

// nameTopic sets the topic that the pipeline reads in the origins that are one: no event has it.
func (p *Pipeline) nameTopic() {
	for _, m := range p.mappings() {
		for i := range m.columns {
			m.columns[i].origin.nameTopic(p.Group.Topic)
		}
	}
	for _, r := range p.routing.routes {
		if documents, ok := r.target.(*cosmosTarget); ok {
			for _, o := range documents.origins() {
				o.nameTopic(p.Group.Topic)
			}
		}
	}
}

func (o *origin) nameTopic(topic string) {
	switch o.field {
	case fieldTopic:
		o.name = topic
	case fieldCall:
		for i := range o.call.arguments {
			o.call.arguments[i].nameTopic(topic)
		}
	}
}

// inElement reports whether the value depends on an element of an array.
func (o origin) inElement() bool {
	return slices.ContainsFunc(o.leaves(), func(leaf origin) bool { return leaf.field == fieldElement || leaf.field == fieldIndex })
}

// pick adds the paths that the value needs to those that are picked from the body.
func (o *origin) pick(paths *[]jsonpick.Path) { o.pickFrom(fieldPath, paths, 0) }

// pickFrom adds the paths that begin at a root to those that are picked from it: their values come
// after so many others.
func (o *origin) pickFrom(root field, paths *[]jsonpick.Path, others int) {
	switch o.field {
	case root:
		o.slot = others + len(*paths)
		*paths = append(*paths, o.path)
	case fieldCall:
		arguments := slices.Clone(o.call.arguments) // a copy of the origin may be in another mapping
		for i := range arguments {
			arguments[i].pickFrom(root, paths, others)
		}
		o.call = &call{o.call.function, arguments}
	}
}

// optional reports whether an event may lack the field: a sender need not set a
// key, for example, and not every log keeps the sender's time.
func (o origin) optional() bool {
	switch o.field {
	case fieldOffset, fieldCreated, fieldKey, fieldMessageID, fieldCorrelationID, fieldContentType, fieldType:
		return true
	}
	return false
}

// scalar returns the value in an event.
func (o origin) scalar(e *sluice.Event, picked []jsonpick.Value) (scalar, error) {
	switch o.field {
	case fieldPath, fieldElement, fieldIndex:
		return ofJSON(picked[o.slot])
	case fieldBody:
		return scalar{kind: binary, text: e.Body}, nil
	case fieldCall:
		return o.call.scalar(e, picked)
	case fieldLiteral:
		return scalar{kind: text, text: []byte(o.name)}, nil
	case fieldProperty:
		v, ok := e.Properties[o.name]
		if !ok {
			return scalar{}, nil
		}
		value, err := ofProperty(v)
		value.sent = true
		return value, err
	case fieldSequence:
		return scalar{kind: number, text: fmt.Append(nil, e.Sequence)}, nil
	case fieldEnqueued:
		return ofTime(e.Enqueued)
	case fieldCreated:
		return ofTime(e.Created)
	case fieldTopic:
		return ofText(o.name), nil
	case fieldPartition:
		return ofText(e.Partition), nil
	case fieldType:
		return cloudEventType(e)
	case fieldOffset:
		return ofText(e.Offset), nil
	case fieldKey:
		value := ofKey(e)
		value.sent = true
		return value, nil
	case fieldMessageID:
		return ofText(e.MessageID), nil
	case fieldCorrelationID:
		return ofText(e.CorrelationID), nil
	}
	return ofText(e.ContentType), nil
}

// ofTime returns a time as a scalar. The zero time is missing.
func ofTime(at time.Time) (scalar, error) {
	switch {
	case at.IsZero():
		return scalar{}, nil
	case at.After(latestTime):
		return scalar{}, wrongUnit(at)
	}
	return scalar{kind: text, text: at.UTC().AppendFormat(nil, time.RFC3339Nano)}, nil
}

// latestTime is the last one that texts and databases have.
var latestTime = time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)

// wrongUnit is the error of a time after the year 9999: the time of a Kafka record is in
// milliseconds, which a producer sets.
func wrongUnit(at time.Time) error {
	n, unit := at.UnixMilli(), "another unit"
	for _, of := range []struct {
		name string
		time time.Time
	}{{"microseconds", time.UnixMicro(n)}, {"nanoseconds", time.Unix(0, n)}, {"ticks of 100 ns", time.UnixMicro(n / 10)}} {
		if of.time.Year() > 1990 && of.time.Year() < 2100 {
			unit = of.name
			break
		}
	}
	return fmt.Errorf("the record's time is %d ms, after the year 9999: the producer wrote %s in place of milliseconds: correct it there, or leave this column out", n, unit)
}

// ofKey returns an event's key as a scalar: text, or bytes if it is no text. A key that is there
// and empty is not missing.
func ofKey(e *sluice.Event) scalar {
	switch {
	case e.EmptyKey:
		return scalar{kind: text, text: []byte{}}
	case !utf8.ValidString(e.Key):
		return scalar{kind: binary, text: []byte(e.Key)}
	}
	return ofText(e.Key)
}

// ofText returns a string field as a scalar. An empty one is missing.
func ofText(s string) scalar {
	if s == "" {
		return scalar{}
	}
	return scalar{kind: text, text: []byte(s)}
}
