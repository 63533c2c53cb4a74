package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/memory"
	"github.com/sluice-go/sluice/stamp"
)

// Settings are the configuration of a consumer, with every default filled in. sluice.Config says
// what the fields mean.
type Settings struct {
	Partitions           int // 0: all; negative: balanced
	Ordinal, Replicas    int // Replicas 0: any partition
	Owner                string
	Start                driver.Start
	LeaseFor, RenewEvery time.Duration
	AssignEvery          time.Duration
	AssignBurst          int
	MaxBatch             int
	PrefetchBytes        int
	FillFor              time.Duration // 0: a batch waits for nothing
	FillTo               int
	Memory               *memory.Budget
	Attempts             int
	RetryMin, RetryMax   time.Duration
	RetryLater           []time.Duration
	RedriveEvery         time.Duration
	BodyLimit            int
	CopyDeadLetters      func(ctx context.Context, dead []driver.DeadLetter) error
	StallAfter           time.Duration
	SilentAfter          time.Duration
	StampsFrom           []stamp.Source
	Filter               func(*driver.Event) bool
	Hooks                Hooks
	Observer             driver.Observer
	Clock                driver.Clock
	Seed                 uint64
}

// Hooks are called at the steps of a partition's assignment: see sluice.Hooks.
type Hooks struct {
	Assigned func(ctx context.Context, lease driver.Lease, at driver.Checkpoint) error
	Renewed  func(ctx context.Context, lease driver.Lease) error
	Released func(ctx context.Context, lease driver.Lease, cause error) error
	Batch    func(ctx context.Context, b driver.Batch) error
	Error    func(ctx context.Context, lease driver.Lease, err error) error
}

// Backoff returns new waits between attempts, from RetryMin to RetryMax.
func (s *Settings) Backoff(r *rand.Rand) *clock.Backoff {
	return &clock.Backoff{Min: s.RetryMin, Max: s.RetryMax, Rand: r}
}

// NextAttempt returns how long an event waits as a dead letter before it is tried again, after so
// many attempts of which the last ended with failure. again is false if it waits for an operator.
func (s *Settings) NextAttempt(failure error, attempts int) (wait time.Duration, again bool) {
	var deferred *driver.DeferError
	switch FaultOf(failure) {
	case FaultDeferred:
		errors.As(failure, &deferred)
		return deferred.After, true
	case FaultRejected:
		return 0, false
	}
	if n := max(attempts-s.Attempts, 0); n < len(s.RetryLater) {
		return s.RetryLater[n], true
	}
	return 0, false
}

// Observe adds time and owner to an observation and passes it to the observer.
func (s *Settings) Observe(o driver.Observation) {
	o.Time, o.Owner = s.Clock.Wall(), s.Owner
	_ = Guard(func() error { s.Observer.Observe(o); return nil })
}

// Handles reports whether an event is handled: see sluice.Config.Filter.
func (s *Settings) Handles(e *driver.Event) bool {
	if s.Filter == nil || e.Undecodable != "" {
		return true
	}
	handled := true
	_ = Guard(func() error { handled = s.Filter(e); return nil })
	return handled
}

// Handled returns the events that are handled.
func (s *Settings) Handled(events []*driver.Event) []*driver.Event {
	if s.Filter == nil {
		return events
	}
	list := make([]*driver.Event, 0, len(events))
	for _, e := range events {
		if s.Handles(e) {
			list = append(list, e)
		}
	}
	return list
}

// ProgressAfter is how long nothing must be done to be reported as a stall: a little longer than
// StallAfter, so that a single long call is reported by its name.
func (s *Settings) ProgressAfter() time.Duration {
	return s.StallAfter + min(s.StallAfter/10, 2*time.Second)
}
