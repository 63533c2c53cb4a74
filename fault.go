package sluice

import (
	"errors"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// fault says whose fault it is that an event, or a record of it, failed. It decides
// whether the failure counts, and who waits.
type fault uint8

const (
	// faultEvent: the event's own. The failure counts, and after Config.Attempts the
	// event becomes a dead letter.
	faultEvent fault = iota
	// faultRejected: the event's own, and another attempt would not help. It becomes a
	// dead letter at once.
	faultRejected
	// faultRetry: nobody's. What failed is tried again after a time that the error
	// states, as often as needed; nothing counts.
	faultRetry
	// faultEnvironment: that of something which every event needs, such as a store, an
	// API or the network. The partition waits with back-off; nothing counts.
	faultEnvironment
)

// faultOf returns whose fault an error of a handler, of the function that makes records
// or of a sink is. An error can be marked several times, for example a decoder's outage
// by [TypedBy]: then the mark that spares the event applies.
func faultOf(err error) fault {
	var retry *driver.RetryError
	switch {
	case errors.As(err, &retry):
		return faultRetry
	case errors.Is(err, ErrOutage):
		return faultEnvironment
	case errors.Is(err, ErrRejected):
		return faultRejected
	}
	return faultEvent
}

// counts reports whether a failure is an attempt at the event.
func (f fault) counts() bool { return f == faultEvent || f == faultRejected }

// statedWait returns how long to wait before another attempt, as a [*driver.RetryError] states
// it; 0 if err states nothing.
func statedWait(err error) time.Duration {
	var retry *driver.RetryError
	if errors.As(err, &retry) {
		return max(retry.After, 0)
	}
	return 0
}

// unproved reports whether an event was rejected by a mapping that has mapped no event since the
// process began, so that the mapping itself may be wrong. Such a mapping's error says so by a method
// Unproved. A mapping has no effects: it can be tried on the events that wait.
func unproved(err error) bool {
	mapping, ok := errors.AsType[interface {
		error
		Unproved() bool
	}](err)
	return ok && mapping.Unproved()
}
