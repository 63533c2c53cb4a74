package pipeline

import (
	"time"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/sender"
)

// busProperties are the properties of messages for Service Bus that events do not have.
type busProperties struct {
	replyTo string
	ttl     time.Duration
	columns []column // the properties that come from events: a value that is missing or null sets nothing
}

// keys returns the keys of target.servicebus for them.
func (b *busProperties) keys(t *messageTarget) strictyaml.Keys {
	from := func(name string, typ columnType) func(strictyaml.Node) {
		return func(n strictyaml.Node) {
			if origin, ok := readOrigin(n); ok {
				b.columns = append(b.columns, column{name: name, node: n, origin: origin, typ: typ})
				t.compile()
			}
		}
	}
	return strictyaml.Keys{
		"subject":        from("subject", typeText),
		"correlation_id": from("correlation_id", typeText),
		"scheduled":      from("scheduled", typeTimestamp),
		"reply_to":       func(n strictyaml.Node) { n.Text(&b.replyTo) },
		"ttl":            func(n strictyaml.Node) { n.DurationIn(&b.ttl, time.Millisecond, sender.MaxTTL) },
	}
}

// set sets the properties of a message, of the values of the columns.
func (b *busProperties) set(m *sender.Message, row []any) {
	m.ReplyTo, m.TTL = b.replyTo, b.ttl
	for i, c := range b.columns {
		switch v := row[i].(type) {
		case time.Time:
			m.ScheduledFor = v
		case string:
			if c.name == "subject" {
				m.Subject = v
			} else {
				m.CorrelationID = v
			}
		}
	}
}
