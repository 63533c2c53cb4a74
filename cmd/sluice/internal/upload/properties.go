package upload

import (
	"fmt"
	"time"

	"github.com/sluice-go/sluice/sender"
)

// Properties are what messages for Service Bus have beside key and body. A field that a record does not
// have, or that is null, sets nothing.
type Properties struct {
	Subject        string        `json:"subject,omitempty"` // of all messages
	SubjectField   string        `json:"subject_field,omitempty"`
	ReplyTo        string        `json:"reply_to,omitempty"`
	TTL            time.Duration `json:"ttl,omitempty"`             // in nanoseconds
	ScheduledField string        `json:"scheduled_field,omitempty"` // a time in RFC 3339
	// CorrelationField is the only one that event hubs and Kafka have too.
	CorrelationField string `json:"correlation_field,omitempty"`
}

// set sets the properties of a record's message.
func (p *Properties) set(m *sender.Message) error {
	m.Subject, m.ReplyTo, m.TTL = p.Subject, p.ReplyTo, p.TTL
	if p.SubjectField+p.ScheduledField+p.CorrelationField == "" {
		return nil
	}
	object, ok := fieldsOf(m.Body)
	if !ok {
		return fmt.Errorf("field %s%s%s: the record is not a JSON object", p.SubjectField, p.ScheduledField, p.CorrelationField)
	}
	var scheduled string
	for _, f := range []struct {
		name string
		to   *string
	}{{p.SubjectField, &m.Subject}, {p.CorrelationField, &m.CorrelationID}, {p.ScheduledField, &scheduled}} {
		text, _, err := fieldText(object, f.name)
		if f.name == "" || err == nil && text == "" {
			continue
		}
		if err != nil {
			return fmt.Errorf("field %s %w: it must be a string, a number or a boolean", f.name, err)
		}
		*f.to = text
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
