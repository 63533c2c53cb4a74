package formats

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/sluice-go/sluice/internal/jsonscan"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// Envelope is what is around the value in a body of JSON.
type Envelope string

// The envelopes.
const (
	noEnvelope Envelope = ""
	// Connect is that of Kafka Connect's JSON converter: {"schema": …, "payload": …}. Logical types
	// become what columns take: times, dates, decimal numbers. Without a schema the body is the
	// value.
	Connect Envelope = "connect"
	// Debezium is that of a change event, in that of Connect or alone. The body becomes the row,
	// which is that before a delete, with the fields __op, __deleted, __table and others, as
	// Debezium's own ExtractNewRecordState names them.
	Debezium Envelope = "debezium"
)

// unavailable stands for a value that has not changed and that Debezium does not know
// (unavailable.value.placeholder): the field of an update is left out.
const (
	unavailable     = `"__debezium_unavailable_value"`
	unavailableList = `[` + unavailable + `]`
)

// SkipsNulls reports whether a null value stands for nothing: the tombstone that follows a delete
// of Debezium.
func (d *Decoder) SkipsNulls() bool {
	return d != nil && d.cfg.NullBodies && d.cfg.Envelope == Debezium
}

// HasChanges reports whether events are changes of rows.
func (d *Decoder) HasChanges() bool { return d != nil && d.cfg.Envelope == Debezium }

// open returns the value in an envelope, as JSON of at most limit bytes.
func (d *Decoder) open(body []byte, limit int) ([]byte, error) {
	body, err := jsonpick.UTF8(body)
	if err != nil {
		return nil, fmt.Errorf("the body %w", err)
	}
	root, err := membersOf(body)
	if err != nil {
		return nil, err
	}
	var schema *connectSchema
	value := body
	if root["payload"] != nil && (len(root) == 1 || len(root) == 2 && root["schema"] != nil) {
		value = root["payload"]
		if raw := root["schema"]; raw != nil && raw[0] != 'n' {
			if schema, err = d.schemas.parse(raw); err != nil {
				return nil, err
			}
		}
	}
	if d.cfg.Envelope == Debezium {
		return changed(value, schema, limit)
	}
	if schema == nil {
		return value, nil
	}
	w := newConnectWriter(len(value), limit)
	if err := w.value(jsonscan.New(value, maxJSONDepth), schema); err != nil {
		return nil, err
	}
	return w.out, w.room()
}

// membersOf returns the members of an object, by their keys.
func membersOf(body []byte) (map[string][]byte, error) {
	scan := jsonscan.New(body, maxJSONDepth)
	if scan.Peek() != '{' {
		return nil, errors.New("the body is no JSON object")
	}
	members := map[string][]byte{}
	err := scan.Object(func(key []byte) error {
		raw, err := scan.Value()
		members[string(jsonscan.Unquote(key))] = raw
		return err
	})
	if err == nil {
		err = scan.End()
	}
	return members, err
}

// changed returns the row of a change event.
func changed(body []byte, schema *connectSchema, limit int) ([]byte, error) {
	event, err := membersOf(body)
	if err != nil {
		return nil, err
	}
	op := string(event["op"])
	state := "after"
	switch op {
	case `"c"`, `"u"`, `"r"`:
	case `"d"`:
		state = "before"
	case `"t"`:
		state = ""
	case "":
		return nil, errors.New("the body is no change event of Debezium: it has no op (one that was flattened needs no envelope)")
	case `"m"`:
		return nil, errors.New(`the event is a message of the database, which has no row (op m)`)
	default:
		return nil, fmt.Errorf("the change event has the op %.20s: known are c, r, u, d and t", op)
	}
	w := newConnectWriter(len(event[state]), limit)
	w.out = append(w.out, `{"__op":`+op+`,"__deleted":`+strconv.FormatBool(op == `"d"`)...)
	if at := event["ts_ms"]; at != nil {
		w.out = append(append(w.out, `,"__ts_ms":`...), at...)
	}
	if source, err := membersOf(event["source"]); err == nil {
		for _, field := range sourceFields {
			if raw := source[field.from]; raw != nil {
				w.out = append(append(w.out, `,"`+field.to+`":`...), raw...)
			}
		}
	}
	if state != "" {
		if len(event[state]) == 0 || event[state][0] != '{' {
			return nil, fmt.Errorf("the change event of op %s has no row in %s: a table needs a primary key, or REPLICA IDENTITY FULL", op, state)
		}
		if err := w.row(event[state], schema.member(state), op == `"u"`); err != nil {
			return nil, err
		}
	}
	w.out = append(w.out, '}')
	return w.out, w.room()
}

// sourceFields are what the row gets of the event's source.
var sourceFields = []struct{ from, to string }{{"ts_ms", "__source_ts_ms"}, {"schema", "__schema"}, {"table", "__table"}, {"lsn", "__lsn"}}

// ownFields are those of the event beside the row's, which hide columns of these names: a column
// must not decide what the event is.
var ownFields = []string{"__op", "__deleted", "__ts_ms", "__source_ts_ms", "__schema", "__table", "__lsn"}

// row appends the fields of a row to an object that has some. Only an update may lack some.
func (w *connectWriter) row(row []byte, schema *connectSchema, update bool) error {
	scan := jsonscan.New(row, maxJSONDepth)
	return scan.Object(func(key []byte) error {
		name := string(jsonscan.Unquote(key))
		if slices.Contains(ownFields, name) {
			_, err := scan.Value()
			return err
		}
		before := len(w.out)
		w.out = append(append(append(w.out, ','), key...), ':')
		from := len(w.out)
		if err := w.value(scan, schema.member(name)); err != nil {
			return err
		}
		if value := string(w.out[from:]); value == unavailable || value == unavailableList {
			if !update {
				return fmt.Errorf("field %s: Debezium does not know its value, which did not change when the row got another key: set REPLICA IDENTITY FULL on the table", key)
			}
			w.out = w.out[:before]
		}
		return nil
	})
}
