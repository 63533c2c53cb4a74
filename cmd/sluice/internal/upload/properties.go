package upload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/kafka"
	"github.com/sluice-go/sluice/sender"
)

// Properties are what messages have beside key and body. A field that a record does not have, or
// that is null, sets nothing.
type Properties struct {
	ContentType    string   `json:"content_type,omitempty"` // empty: that of JSON
	All            []string `json:"property,omitempty"`     // of all messages, as NAME=TEXT
	PropertyFields []string `json:"property_field,omitempty"`
	Headers        []string `json:"header,omitempty"` // of all messages, as NAME=TEXT; of Kafka only

	// These are of Service Bus only.
	Subject        string        `json:"subject,omitempty"` // of all messages
	SubjectField   string        `json:"subject_field,omitempty"`
	ReplyTo        string        `json:"reply_to,omitempty"`
	TTL            time.Duration `json:"ttl,omitempty"`             // in nanoseconds
	ScheduledField string        `json:"scheduled_field,omitempty"` // a time in RFC 3339

	CorrelationField string `json:"correlation_field,omitempty"`
}

// CheckNames returns what is wrong with the names of properties and headers. A name that is given
// twice, or that Sluice sets itself, would replace another value without a word.
func (p *Properties) CheckNames(isKafka bool) error {
	flags := map[string]string{}
	if isKafka {
		flags = map[string]string{kafka.HeaderContentType: "--content-type", kafka.HeaderCorrelationID: "--correlation-field", kafka.HeaderMessageID: "Sluice"}
	}
	for _, f := range []struct {
		flag string
		list []string
	}{{"--property", p.All}, {"--property-field", p.PropertyFields}, {"--header", p.Headers}} {
		for _, entry := range f.list {
			name, whole := entry, true
			if f.flag != "--property-field" {
				name, _, whole = strings.Cut(entry, "=")
			}
			setBy := flags[name]
			switch {
			case !whole:
				return usage.Errorf("%s %s: write it as NAME=TEXT", f.flag, entry)
			case name == "":
				return usage.Errorf("%s: the name must not be empty", f.flag)
			case setBy != "" && (setBy != f.flag || f.flag != "--header"):
				return usage.Errorf("%s %s: %s sets it already", f.flag, name, setBy)
			}
			flags[name] = f.flag
		}
	}
	return nil
}

// set sets the properties of a record's message.
func (p *Properties) set(m *sender.Message) error {
	m.Subject, m.ReplyTo, m.TTL = p.Subject, p.ReplyTo, p.TTL
	for _, entry := range p.Headers {
		name, text, _ := strings.Cut(entry, "=")
		m.Headers = append(m.Headers, sluice.Header{Name: name, Value: []byte(text)})
	}
	if len(p.All)+len(p.PropertyFields) > 0 {
		m.Properties = make(map[string]any, len(p.All)+len(p.PropertyFields))
	}
	for _, entry := range p.All {
		name, text, _ := strings.Cut(entry, "=")
		m.Properties[name] = text
	}
	if p.SubjectField+p.ScheduledField+p.CorrelationField+strings.Join(p.PropertyFields, "") == "" {
		return nil
	}
	object, ok := fieldsOf(m.Body)
	if !ok {
		return errors.New("the record is not a JSON object, and has no fields for properties")
	}
	var scheduled string
	for _, f := range []struct {
		name   string
		target *string
	}{{p.SubjectField, &m.Subject}, {p.CorrelationField, &m.CorrelationID}, {p.ScheduledField, &scheduled}} {
		text, _, err := fieldText(object, f.name)
		if f.name == "" || err == nil && text == "" {
			continue
		}
		if err != nil {
			return fmt.Errorf("field %s %w", f.name, err)
		}
		*f.target = text
	}
	for _, name := range p.PropertyFields {
		value, err := fieldValue(object, name)
		if err != nil {
			return fmt.Errorf("field %s %w", name, err)
		}
		if value != nil {
			m.Properties[name] = value
		}
	}
	if scheduled == "" {
		return nil
	}
	var err error
	if m.ScheduledFor, err = time.Parse(time.RFC3339, scheduled); err != nil {
		return fmt.Errorf("field %s: not a time: write it like 2026-05-04T03:02:01Z", p.ScheduledField)
	}
	return nil
}

// fieldValue returns the value of a field with its type: a string, a boolean, an int64 or a
// float64; nil if it is missing.
func fieldValue(object map[string]json.RawMessage, field string) (any, error) {
	text, there, err := fieldText(object, field)
	if err != nil || !there {
		return nil, err
	}
	switch raw := object[field]; {
	case raw[0] == '"':
		return text, nil
	case raw[0] == 't', raw[0] == 'f':
		return raw[0] == 't', nil
	case !bytes.ContainsAny(raw, ".eE"):
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
	default:
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n, nil
		}
	}
	return nil, fmt.Errorf("has the number %.40s, which does not fit into 64 bits", text)
}
