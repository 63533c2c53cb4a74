package deadletters

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-go/sluice/driver"
)

// JSON is a dead letter as the command line prints it and as copies hold it.
type JSON struct {
	ID            int64                   `json:"id"`
	Status        driver.DeadLetterStatus `json:"status"`
	Partition     string                  `json:"partition"`
	Sequence      int64                   `json:"sequence"`
	Offset        string                  `json:"offset,omitempty"`
	Incarnation   string                  `json:"incarnation"`
	Key           string                  `json:"key,omitempty"`
	Enqueued      *time.Time              `json:"enqueued,omitempty"`
	FailedAt      time.Time               `json:"failed_at"`
	NextAttempt   *time.Time              `json:"next_attempt,omitempty"`
	Attempts      int                     `json:"attempts"`
	Error         string                  `json:"error"`
	MessageID     string                  `json:"message_id,omitempty"`
	CorrelationID string                  `json:"correlation_id,omitempty"`
	ContentType   string                  `json:"content_type,omitempty"`
	Properties    map[string]string       `json:"properties,omitempty"`
	HasBody       bool                    `json:"has_body"`
	Body          *string                 `json:"body,omitempty"`
	BodyBytes     []byte                  `json:"body_base64,omitempty"` // where it is not text
}

// Describe returns a dead letter as JSON.
func Describe(d *driver.DeadLetter) JSON {
	e := &d.Event
	j := JSON{
		ID: d.ID, Status: d.Status, Partition: e.Partition, Sequence: e.Sequence, Offset: e.Offset, Incarnation: d.Incarnation, Key: e.Key,
		Enqueued: optional(e.Enqueued), FailedAt: d.FailedAt.UTC(), NextAttempt: optional(d.NextAttempt), Attempts: d.Attempts, Error: d.Error,
		MessageID: e.MessageID, CorrelationID: e.CorrelationID, ContentType: e.ContentType, HasBody: d.HasBody,
	}
	for name, value := range e.Properties {
		if j.Properties == nil {
			j.Properties = make(map[string]string)
		}
		j.Properties[name] = fmt.Sprint(value)
	}
	switch {
	case e.Body == nil:
	case utf8.Valid(e.Body):
		text := string(e.Body)
		j.Body = &text
	default:
		j.BodyBytes = e.Body
	}
	return j
}

// optional is a time in UTC, nil for the zero time.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// CopyType is the type of the CloudEvents that are copies of dead letters.
const CopyType = "sluice.deadletter"

// Copy returns the body of a copy of a dead letter: [JSON], the names of what it belongs to, and
// the command that redrives it, which is command and the ID. There is none if command is empty.
func Copy(d *driver.DeadLetter, command string) ([]byte, error) {
	body := struct {
		Namespace string `json:"namespace"`
		Topic     string `json:"topic"`
		Group     string `json:"consumer_group"`
		JSON
		Redrive string `json:"redrive,omitempty"`
	}{Namespace: d.Group.Namespace, Topic: d.Group.Topic, Group: d.Group.Name, JSON: Describe(d)}
	if command != "" {
		body.Redrive = fmt.Sprint(command, " ", d.ID)
	}
	return json.Marshal(body)
}

// CopyID returns the message id of a dead letter's copies, by which a receiver can recognize
// repeats. It has less than 100 characters.
func CopyID(d *driver.DeadLetter) string {
	identity := strings.Join([]string{d.Group.Namespace, d.Group.Topic, d.Group.Name, d.Incarnation, d.Event.Partition}, "\x00")
	digest := sha256.Sum256([]byte(identity))
	return fmt.Sprintf("deadletter-%d-%d-%x", d.ID, d.Event.Sequence, digest[:16])
}
