package sluice

import (
	"cmp"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/property"
)

// isFinal reports whether a failed event becomes a dead letter: it was rejected,
// or this was its last attempt.
func (a *assignment) isFinal(err error, attempt int) bool {
	return faultOf(err) == faultRejected || attempt >= a.c.cfg.Attempts
}

// newDeadLetter makes a dead letter of an event. It holds the body unless that
// is larger than Config.BodyLimit.
func (a *assignment) newDeadLetter(e *Event, failure error, attempts int) DeadLetter {
	d := DeadLetter{
		Group: a.topic.Group, Incarnation: a.incarnation, FailedAt: a.c.cfg.Clock.Wall().UTC(),
		Error: errorText(failure), Attempts: attempts, Status: StatusDead, Event: *e, HasBody: true,
	}
	properties, err := property.Encode(e.Properties)
	if limit := a.c.cfg.BodyLimit; err != nil || limit < 0 || len(e.Body)+len(properties) > limit {
		d.HasBody, d.Event.Body, d.Event.Properties = false, nil, nil
	}
	return d
}

// redriveFailed updates a dead letter whose redrive has failed.
func (a *assignment) redriveFailed(d *DeadLetter, failure error) {
	d.Status, d.NextAttempt = StatusDead, time.Time{}
	d.Attempts++
	d.Error, d.FailedAt = errorText(failure), a.c.cfg.Clock.Wall().UTC()
}

// errorText returns an error's text, bounded and never empty: an attempt on
// record without a text is one that never returned.
func errorText(err error) string {
	const limit = 8 << 10
	text := cmp.Or(err.Error(), "error without a text")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + " …"
	}
	return text
}
