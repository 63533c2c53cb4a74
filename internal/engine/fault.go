package engine

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Fault says whose fault it is that an event, or a record of it, failed. It decides
// whether the failure counts, and who waits.
type Fault uint8

const (
	// FaultEvent: the event's own. The failure counts, and after Settings.Attempts the
	// event becomes a dead letter.
	FaultEvent Fault = iota
	// FaultRejected: the event's own, and another attempt would not help. It becomes a
	// dead letter at once.
	FaultRejected
	// FaultDeferred: the event's own, and to be tried again after a time that the error states. It
	// is a dead letter until then.
	FaultDeferred
	// FaultRetry: nobody's. What failed is tried again after a time that the error
	// states, as often as needed; nothing counts.
	FaultRetry
	// FaultEnvironment: that of something which every event needs, such as a store, an
	// API or the network. The partition waits with back-off; nothing counts.
	FaultEnvironment
)

// FaultOf returns whose fault an error of a handler, of the function that makes records
// or of a sink is. An error can be marked several times, for example a decoder's outage
// by sluice.TypedBy: then the mark that spares the event applies.
func FaultOf(err error) Fault {
	var retry *driver.RetryError
	var deferred *driver.DeferError
	switch {
	case errors.As(err, &retry):
		return FaultRetry
	case errors.Is(err, driver.ErrOutage):
		return FaultEnvironment
	case errors.As(err, &deferred):
		return FaultDeferred
	case errors.Is(err, driver.ErrRejected):
		return FaultRejected
	}
	return FaultEvent
}

// Counts reports whether a failure is an attempt at the event.
func (f Fault) Counts() bool { return f == FaultEvent || f.Final() }

// Final reports whether the event becomes a dead letter without another attempt.
func (f Fault) Final() bool { return f == FaultRejected || f == FaultDeferred }

// StatedWait returns how long to wait before another attempt, as a [*driver.RetryError] states
// it; 0 if err states nothing.
func StatedWait(err error) time.Duration {
	var retry *driver.RetryError
	if errors.As(err, &retry) {
		return max(retry.After, 0)
	}
	return 0
}

// Unproved reports whether an event was rejected by a mapping that has mapped no event since the
// process began, so that the mapping itself may be wrong. Such a mapping's error says so by a
// method Unproved. A mapping has no effects: it can be tried on the events that wait.
func Unproved(err error) bool {
	mapping, ok := errors.AsType[interface {
		error
		Unproved() bool
	}](err)
	return ok && mapping.Unproved()
}

// Blamed returns the events that a handler's error blames, each once, in order.
// An index outside the batch is ignored.
func Blamed(err error, n int) []*driver.EventError {
	var list []*driver.EventError
	var walk func(error)
	walk = func(err error) {
		switch err := err.(type) {
		case nil:
		case *driver.EventError:
			if err.Index >= 0 && err.Index < n && err.Err != nil {
				list = append(list, err)
			}
		case interface{ Unwrap() error }:
			walk(err.Unwrap())
		case interface{ Unwrap() []error }:
			for _, e := range err.Unwrap() {
				walk(e)
			}
		}
	}
	walk(err)
	slices.SortStableFunc(list, func(a, b *driver.EventError) int { return cmp.Compare(a.Index, b.Index) })
	return slices.CompactFunc(list, func(a, b *driver.EventError) bool { return a.Index == b.Index })
}

// Shifted returns the error of a handler that had n events of a batch, from an index on, as one of
// the whole batch: the events that it blames have the batch's indices.
func Shifted(err error, from, n int) error {
	blamed := Blamed(err, n)
	if from == 0 || len(blamed) == 0 || !FaultOf(err).Counts() {
		return err
	}
	list := make([]error, len(blamed))
	for i, b := range blamed {
		list[i] = &driver.EventError{Index: b.Index + from, Err: b.Err}
	}
	return errors.Join(list...)
}

// HeldBack is why an event of a key waits: an earlier one of the key is a dead letter. Nothing was
// tried.
type HeldBack struct{ Why string }

func (h *HeldBack) Error() string { return "held back: " + h.Why }
