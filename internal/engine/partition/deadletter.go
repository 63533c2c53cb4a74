package partition

import (
	"cmp"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/property"
)

// IsFinal reports whether a failed event becomes a dead letter: it was rejected,
// or this was its last attempt.
func (a *Assignment) IsFinal(err error, attempt int) bool {
	return engine.FaultOf(err) == engine.FaultRejected || attempt >= a.Settings.Attempts
}

// maxText is the largest message id, correlation id or content type in bytes that a dead
// letter stores whole.
const maxText = 4 << 10

// NewDeadLetter makes a dead letter of an event. It holds the event unless that is larger
// than Config.BodyLimit or has a longer text than maxText: then it holds the beginnings of
// the texts.
func (a *Assignment) NewDeadLetter(e *driver.Event, failure error, attempts int) driver.DeadLetter {
	d := driver.DeadLetter{
		Group: a.Topic.Group, Incarnation: a.Incarnation, FailedAt: a.Settings.Clock.Wall().UTC(),
		Error: ErrorText(failure), Attempts: attempts, Status: driver.StatusDead, Event: *e, HasBody: true,
	}
	properties, err := property.EncodeEvent(e)
	size := len(e.Body) + len(properties) + len(e.Key) + len(e.MessageID) + len(e.CorrelationID) + len(e.ContentType)
	longest := max(len(e.MessageID), len(e.CorrelationID), len(e.ContentType))
	if limit := a.Settings.BodyLimit; err != nil || limit < 0 || size > limit || longest > maxText {
		d.HasBody, d.Event.Body, d.Event.Properties, d.Event.Headers = false, nil, nil, nil
		d.Event.MessageID, d.Event.CorrelationID, d.Event.ContentType = beginning(e.MessageID), beginning(e.CorrelationID), beginning(e.ContentType)
	}
	return d
}

// beginning returns a text if it is at most maxText long, else its beginning. It copies that,
// so that the text itself is not kept.
func beginning(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + " …"
}

// RedriveFailed updates a dead letter whose redrive has failed.
func (a *Assignment) RedriveFailed(d *driver.DeadLetter, failure error) {
	d.Status, d.NextAttempt = driver.StatusDead, time.Time{}
	d.Attempts++
	d.Error, d.FailedAt = ErrorText(failure), a.Settings.Clock.Wall().UTC()
}

// ErrorText returns an error's text, bounded and never empty: an attempt on
// record without a text is one that never returned.
func ErrorText(err error) string {
	const limit = 8 << 10
	text := cmp.Or(err.Error(), "error without a text")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + " …"
	}
	return text
}
