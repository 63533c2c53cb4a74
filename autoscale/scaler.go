package autoscale

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// ScalerConfig holds what has a default. The zero value is ready to use.
type ScalerConfig struct {
	// Interval is how often it reports how many instances there are. Default: 1 min.
	Interval time.Duration
	// MaxAttempts is how often an action is tried before it is given up. Default: 5.
	MaxAttempts int
	// RetryMin and RetryMax are the wait after the first failure, and the longest;
	// it doubles in between. Defaults: 1 s and 30 s.
	RetryMin, RetryMax time.Duration
	// Timeout is what one try may take. Default: 5 min.
	Timeout time.Duration
	// Clock is the time. Default: the system's.
	Clock Clock
	// Log is told what is done and what fails. Default: nothing is logged.
	Log *slog.Logger
}

// Scaler carries out a resource's actions, one at a time and each once, and
// reports.
type Scaler struct {
	resource string
	target   Target
	store    Store
	queues   Queues
	cfg      ScalerConfig
}

// NewScaler returns the scaler of a resource. Of the queues it uses those for
// actions and reports.
func NewScaler(resource string, target Target, store Store, queues Queues, cfg *ScalerConfig) *Scaler {
	s := &Scaler{resource: resource, target: target, store: store, queues: queues}
	if cfg != nil {
		s.cfg = *cfg
	}
	s.cfg.Interval = cmp.Or(s.cfg.Interval, time.Minute)
	s.cfg.MaxAttempts = cmp.Or(s.cfg.MaxAttempts, 5)
	s.cfg.RetryMin = cmp.Or(s.cfg.RetryMin, time.Second)
	s.cfg.RetryMax = cmp.Or(s.cfg.RetryMax, 30*time.Second)
	s.cfg.Timeout = cmp.Or(s.cfg.Timeout, 5*time.Minute)
	s.cfg.Clock = clockOr(s.cfg.Clock)
	s.cfg.Log = logOr(s.cfg.Log)
	return s
}

// Run reports at once and then at the interval, and carries out what it is
// sent, until ctx ends. It returns nil then. An action that is cut off then is
// not given up: it comes again.
func (s *Scaler) Run(ctx context.Context) error {
	actions, ticks := make(chan batch), make(chan struct{})
	var owned sync.WaitGroup
	defer owned.Wait()
	owned.Go(func() { receive(ctx, s.queues.Actions, actions, s.cfg.Clock, s.cfg.Log) })
	owned.Go(func() {
		for ctx.Err() == nil {
			select {
			case ticks <- struct{}{}:
			case <-ctx.Done():
			}
			_ = s.cfg.Clock.Sleep(ctx, s.cfg.Interval)
		}
	})
	for {
		var err error
		select {
		case a := <-actions:
			err = s.handleActions(ctx, a)
			close(a.done)
		case <-ticks:
			err = s.sendReport(ctx)
		case <-ctx.Done():
			return nil
		}
		if err != nil && ctx.Err() == nil {
			s.cfg.Log.Error("scaler", "resource", s.resource, "error", err)
			_ = s.cfg.Clock.Sleep(ctx, retryPause)
		}
	}
}

// sendReport tells how many instances there are, and the outcome of the last action.
func (s *Scaler) sendReport(ctx context.Context) error {
	n, err := s.count(ctx)
	if err != nil {
		return err
	}
	o, err := s.store.Outcome(ctx, s.resource)
	if err != nil {
		return fmt.Errorf("load outcome: %w", err)
	}
	body, err := json.Marshal(Report{Resource: s.resource, Time: s.cfg.Clock.Wall().UTC(), Instances: n, Outcome: o})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := s.queues.Reports.Send(ctx, body); err != nil {
		return fmt.Errorf("send report: %w", err)
	}
	return nil
}

// count asks the target how many instances there are.
func (s *Scaler) count(ctx context.Context) (int, error) {
	n, err := s.target.Instances(ctx)
	if err == nil && (n < 0 || n > MaxInstances) {
		err = fmt.Errorf("%d are out of the question", n)
	}
	if err != nil {
		return 0, fmt.Errorf("count instances: %w", err)
	}
	return n, nil
}

// handleActions carries out the actions of an arrival. One that fails half-way, in
// the store or in a queue, comes again.
func (s *Scaler) handleActions(ctx context.Context, a batch) error {
	actions, messages := decodeBatch(ctx, a, s.cfg.Log, func(a Action) error {
		switch {
		case a.Resource != s.resource:
			return fmt.Errorf("%w: of the resource %q, not %q", errBadMessage, a.Resource, s.resource)
		case a.Number < 1 || a.To < 0 || a.To > MaxInstances:
			return fmt.Errorf("%w: action %d to %d instances", errBadMessage, a.Number, a.To)
		}
		return nil
	})
	done := 0
	stop := s.keepLocked(ctx, a.queue, messages)
	defer func() {
		stop() // first: extending a message changes what it is deleted by
		deleteAll(ctx, a.queue, messages[:done], s.cfg.Log)
	}()
	for _, action := range actions {
		last, err := s.store.Outcome(ctx, s.resource)
		if err != nil {
			return fmt.Errorf("load outcome: %w", err)
		}
		if last == nil || last.Number < action.Number {
			o, err := s.execute(ctx, action)
			if err != nil {
				return err
			}
			if err := s.store.SetOutcome(ctx, s.resource, o); err != nil {
				return fmt.Errorf("save outcome: %w", err)
			}
		}
		if err := s.sendReport(ctx); err != nil {
			return err
		}
		done++
	}
	return nil
}

// keepLocked keeps messages locked until the function that it returns is called.
func (s *Scaler) keepLocked(ctx context.Context, q Queue, messages []*Message) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var holding sync.WaitGroup
	holding.Go(func() {
		for s.cfg.Clock.Sleep(ctx, extendInterval) == nil {
			for _, m := range messages {
				// One that is lost is carried out twice at most in name: To is a count.
				_ = q.Extend(ctx, m)
			}
		}
	})
	return func() { cancel(); holding.Wait() }
}

// extendInterval is well below the lock time of queues, 30 s.
const extendInterval = 10 * time.Second

// errStopped: the scaler stopped before an action had an outcome.
var errStopped = errors.New("stopped before the action was done")

// execute does what an action says, as often as it takes, and returns its outcome.
// The error is that there is none yet.
func (s *Scaler) execute(ctx context.Context, a Action) (Outcome, error) {
	wait := s.cfg.RetryMin
	for n := 1; ; n++ {
		err := s.attempt(ctx, a)
		if ctx.Err() != nil {
			return Outcome{}, errStopped
		}
		o := Outcome{Number: a.Number, Time: s.cfg.Clock.Wall().UTC(), Attempts: n}
		log := s.cfg.Log.With("resource", a.Resource, "action", a.Number, "from", a.From, "to", a.To, "tries", n)
		var stale *staleActionError
		switch {
		case err == nil:
			log.Info("scaled")
			return o, nil
		case n >= s.cfg.MaxAttempts || errors.As(err, &stale):
			log.Error("action given up", "error", err)
			o.Err = oneLine(err)
			return o, nil
		}
		log.Warn("action failed: it is tried again", "in", wait, "error", err)
		if s.cfg.Clock.Sleep(ctx, wait) != nil {
			return Outcome{}, errStopped
		}
		wait = min(2*wait, s.cfg.RetryMax)
	}
}

// staleActionError is an action that no longer fits: somebody else has scaled.
type staleActionError struct{ now, from, to int }

func (e *staleActionError) Error() string {
	return fmt.Sprintf("there are %d instances, neither %d nor %d: somebody else has scaled", e.now, e.from, e.to)
}

// attempt does what an action says, unless it is done already: by a try that was
// cut off, or before a crash.
func (s *Scaler) attempt(ctx context.Context, a Action) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the target panicked: %v", r)
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Timeout, fmt.Errorf("not done within %v", s.cfg.Timeout))
	defer cancel()
	now, err := s.count(ctx)
	switch {
	case err != nil:
		return err
	case now == a.To:
		return nil
	case now != a.From:
		return &staleActionError{now, a.From, a.To}
	}
	err = s.target.Scale(withAction(ctx, a), a.To)
	if err == nil {
		return nil
	}
	if now, counted := s.count(ctx); counted == nil && now == a.To {
		return nil // only the answer was lost
	}
	return fmt.Errorf("scale to %d: %w", a.To, err)
}
