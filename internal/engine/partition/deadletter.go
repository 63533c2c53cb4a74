package partition

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/property"
)

// IsFinal reports whether a failed event becomes a dead letter: it was rejected,
// or this was its last attempt.
func (a *Assignment) IsFinal(err error, attempt int) bool {
	return engine.FaultOf(err).Final() || attempt >= a.Settings.Attempts
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
		Error: ErrorText(failure), Attempts: attempts, Event: *e, HasBody: true,
	}
	if engine.FaultOf(failure) == engine.FaultEvent {
		d.Attempts = min(attempts, a.Settings.Attempts) // those of a hold are not counted
	}
	a.setStatus(&d, failure)
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
	if _, held := errors.AsType[*engine.HeldBack](failure); held && len(a.Settings.RetryLater) > 0 {
		a.waitForEarlier(d, failure)
		return
	}
	d.Attempts++
	d.Error, d.FailedAt = ErrorText(failure), a.Settings.Clock.Wall().UTC()
	a.setStatus(d, failure)
}

// waitForEarlier has a dead letter wait for an earlier one of its key, for as long as that is
// there. That is no attempt. It looks after as long as it has waited already, so that many that
// wait long cost little.
func (a *Assignment) waitForEarlier(d *driver.DeadLetter, failure error) {
	waits := a.Settings.RetryLater
	rest := min(max(a.Settings.Clock.Wall().Sub(d.FailedAt), waits[0]), slices.Max(waits))
	d.Error = ErrorText(failure)
	d.Status, d.NextAttempt = driver.StatusRetry, a.storeTime().Add(rest).UTC()
}

// setStatus decides whether a dead letter is tried again by itself, or waits for an operator.
func (a *Assignment) setStatus(d *driver.DeadLetter, failure error) {
	wait, again := a.Settings.NextAttempt(failure, d.Attempts)
	if !again || NeedsOperator(failure) {
		d.Status, d.NextAttempt = driver.StatusDead, time.Time{}
		return
	}
	d.Status, d.NextAttempt = driver.StatusRetry, a.storeTime().Add(wait).UTC()
}

// Attempt describes another attempt at an event, after so many that failed.
func (a *Assignment) Attempt(failed int, redriven bool) driver.Attempt {
	last := a.Settings.Attempts + len(a.Settings.RetryLater)
	return driver.Attempt{Number: failed + 1, Last: failed+1 >= last, Redriven: redriven, Group: a.Topic.Group}
}

// RetriedIn returns how long after its failure a dead letter is tried again, 0 if it is not.
func (a *Assignment) RetriedIn(d *driver.DeadLetter) time.Duration {
	if d.Status != driver.StatusRetry {
		return 0
	}
	return max(d.NextAttempt.Sub(a.storeTime()), time.Millisecond).Round(time.Millisecond)
}

// noteStoreTime notes the store's clock, by a checkpoint that was just claimed.
func (a *Assignment) noteStoreTime(cp *driver.Checkpoint) {
	if !cp.Updated.IsZero() {
		a.storeClock.Store(cp.Updated.UnixNano() - int64(a.Settings.Clock.Elapsed()))
	}
}

// storeTime estimates the store's clock: by the last claim, so that it is behind by the time of
// that request at most. The process's wall clock may be off by hours, and dead letters are due by
// the store's.
func (a *Assignment) storeTime() time.Time {
	if at := a.storeClock.Load(); at != 0 {
		return time.Unix(0, at+int64(a.Settings.Clock.Elapsed()))
	}
	return a.Settings.Clock.Wall()
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
