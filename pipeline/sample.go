package pipeline

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
)

// sample is an event as sluice peek --json writes it, and as a test has it.
type sample struct {
	Partition     string                     `json:"partition"`
	Sequence      int64                      `json:"sequence"`
	Offset        string                     `json:"offset"`
	Enqueued      time.Time                  `json:"enqueued"`
	Created       time.Time                  `json:"created"`
	Key           json.RawMessage            `json:"key"`
	MessageID     string                     `json:"message_id"`
	CorrelationID string                     `json:"correlation_id"`
	ContentType   string                     `json:"content_type"`
	Properties    map[string]json.RawMessage `json:"properties"`
	Headers       []sampleHeader             `json:"headers"`
	Body          json.RawMessage            `json:"body"`
	Text          *string                    `json:"body_text"`
	Base64        *string                    `json:"body_base64"`
	Error         string                     `json:"decode_error"`
}

type sampleHeader struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
}

// Of a sample that does not say it.
const (
	samplePartition = "0"
	sampleEnqueued  = "2026-01-01T00:00:00Z"
)

// ParseSample returns an event for a record of a file: a line of sluice peek --json is that event,
// which is one of the system; any other JSON is the body of an event, and is false. A line of peek
// is an object with partition, sequence, and a body in one of peek's forms, and without other keys
// than peek's.
func ParseSample(record []byte, system System) (e *sluice.Event, is bool, err error) {
	s := &sample{}
	lines := json.NewDecoder(bytes.NewReader(record))
	lines.DisallowUnknownFields()
	var given struct{ Partition, Sequence, Body, Body_text, Body_base64 json.RawMessage }
	if bytes.HasPrefix(bytes.TrimSpace(record), []byte("{")) && json.Unmarshal(record, &given) == nil &&
		given.Partition != nil && given.Sequence != nil && (given.Body != nil || given.Body_text != nil || given.Body_base64 != nil) &&
		lines.Decode(s) == nil {
		e, err = s.event(system)
		return e, true, err
	}
	enqueued, _ := time.Parse(time.RFC3339, sampleEnqueued)
	return &sluice.Event{Partition: samplePartition, Enqueued: enqueued, Body: record}, false, nil
}

// event returns the event of a sample.
func (s *sample) event(system System) (*sluice.Event, error) {
	e := &sluice.Event{
		Partition: s.Partition, Sequence: s.Sequence, Offset: s.Offset, Enqueued: s.Enqueued, Created: s.Created,
		MessageID: s.MessageID, CorrelationID: s.CorrelationID, ContentType: s.ContentType,
	}
	if s.Key != nil {
		value, err := propertyOf(s.Key, Kafka)
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		switch v := value.(type) {
		case string:
			e.Key = v
		case []byte:
			e.Key = string(v)
		}
		e.EmptyKey = e.Key == "" && value != nil
	}
	for name, raw := range s.Properties {
		value, err := propertyOf(raw, system)
		if err != nil {
			return nil, fmt.Errorf("properties.%s: %w", name, err)
		}
		if e.Properties == nil {
			e.Properties = map[string]any{}
		}
		e.Properties[name] = value
	}
	for _, h := range s.Headers {
		value, err := propertyOf(h.Value, Kafka)
		if err != nil {
			return nil, fmt.Errorf("headers: %s: %w", h.Name, err)
		}
		header := sluice.Header{Name: h.Name}
		switch v := value.(type) {
		case string:
			header.Value = []byte(v)
		case []byte:
			header.Value = v
		}
		e.Headers = append(e.Headers, header)
	}
	return e, s.readBody(e)
}

func (s *sample) readBody(e *sluice.Event) (err error) {
	switch {
	case s.Base64 != nil:
		if e.Body, err = base64.StdEncoding.DecodeString(*s.Base64); err != nil {
			return errors.New("body_base64: is not base64")
		}
	case s.Text != nil:
		e.Body = []byte(*s.Text)
	case string(s.Body) != "null":
		e.Body = s.Body
	}
	return nil
}

// propertyOf returns the value of a property: in Kafka, whose headers are bytes, a text.
func propertyOf(raw json.RawMessage, system System) (any, error) {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case nil, string:
		return v, nil
	case bool:
		if system == Kafka {
			return string(raw), nil
		}
		return v, nil
	case json.Number:
		if i, err := v.Int64(); err == nil && system != Kafka {
			return i, nil
		}
		if f, err := v.Float64(); err == nil && system != Kafka {
			return f, nil
		}
		return v.String(), nil
	case map[string]any: // bytes, as peek writes them
		if text, ok := v["base64"].(string); ok && len(v) == 1 {
			if b, err := base64.StdEncoding.DecodeString(text); err == nil {
				return b, nil
			}
		}
	}
	return nil, errors.New("write a text, a number, true, false, null or {base64: …}")
}
