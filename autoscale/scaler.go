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

// ScalerConfig holds the options of a [Scaler]. The zero value takes every default.
type ScalerConfig struct {
	// Interval is the time between reports of the number of instances. Default: 1 min.
	Interval time.Duration
	// MaxAttempts is how often an action is attempted before it is abandoned.
	// Default: 5.
	MaxAttempts int
	// RetryMin and RetryMax bound the wait between attempts, which starts at RetryMin
	// and doubles. Defaults: 1 s and 30 s.
	RetryMin, RetryMax time.Duration
	// Timeout bounds each attempt, and the counting of the instances for a report.
	// Default: 5 min.
	Timeout time.Duration
	// OnCount is called with the number of instances that the target reports, or with the
	// error, and OnAttempt with each attempt of an action, and its error if it failed. Both
	// must return soon.
	OnCount   func(instances int, err error)
	OnAttempt func(Action, error)
	// OnRound is called by Run before each report, also while the store or the queues fail: for a
	// liveness probe. It must return soon.
	OnRound func()
	// Clock replaces the system's clock in tests.
	Clock Clock
	// Log receives actions and failures. Default: nothing is logged.
	Log *slog.Logger
}

// Scaler carries out a resource's actions, one at a time and each once, and reports
// the number of instances. It refuses actions beyond the resource's limits, whoever
// has sent them. Run one scaler per resource.
type Scaler struct {
	resource string
	limits   actionLimits
	target   Target
	store    Store
	queues   Queues
	cfg      ScalerConfig
}

// NewScaler returns the scaler of a resource. Of the resource it uses the name, the
// limits, and the largest steps of a rule that is a [StepLimiter]; give it the same
// as the logic. It fails if the limits contradict each other. It uses the queues for
// actions and reports, and closes neither them nor the target nor the store.
func NewScaler(resource *Resource, target Target, store Store, queues Queues, cfg *ScalerConfig) (*Scaler, error) {
	limits, err := resource.actionLimits()
	if err != nil {
		return nil, err
	}
	s := &Scaler{resource: resource.Name, limits: limits, target: target, store: boundedStore{store}, queues: queues.bounded()}
	if cfg != nil {
		s.cfg = *cfg
	}
	s.cfg.Interval = cmp.Or(s.cfg.Interval, time.Minute)
	s.cfg.MaxAttempts = cmp.Or(s.cfg.MaxAttempts, 5)
	s.cfg.RetryMin = cmp.Or(s.cfg.RetryMin, time.Second)
	s.cfg.RetryMax = cmp.Or(s.cfg.RetryMax, 30*time.Second)
	s.cfg.Timeout = cmp.Or(s.cfg.Timeout, 5*time.Minute)
	s.cfg.Clock = clockOr(s.cfg.Clock)
	s.cfg.Log = logOr(s.cfg.Log).With("resource", resource.Name)
	return s, nil
}

// Run reports at once and then at the interval, and carries out the actions that it
// receives, until ctx ends; then it returns nil. An action that is interrupted this
// way has no outcome, and is delivered again to the next Run. Errors of the target,
// the store and the queues are logged and retried.
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
			if s.cfg.OnRound != nil {
				s.cfg.OnRound()
			}
			err = s.sendReport(ctx)
		case <-ctx.Done():
			return nil
		}
		if err != nil && ctx.Err() == nil {
			s.cfg.Log.Error("scaler failed, will be retried", "error", err)
			_ = s.cfg.Clock.Sleep(ctx, retryPause)
		}
	}
}

// sendReport sends the number of instances and the outcome of the last action.
func (s *Scaler) sendReport(ctx context.Context) error {
	o, err := s.store.Outcome(ctx, s.resource)
	if err != nil {
		return fmt.Errorf("load outcome: %w", err)
	}
	return s.report(ctx, o)
}

// report sends the number of instances and an outcome, which may be nil.
func (s *Scaler) report(ctx context.Context, o *Outcome) error {
	n, err := s.countWithin(ctx, s.cfg.Timeout)
	if err != nil {
		return err
	}
	body, err := json.Marshal(Report{Resource: s.resource, Time: s.cfg.Clock.Wall().UTC(), Instances: n, Outcome: o})
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if err := s.queues.Reports.Send(ctx, body); err != nil {
		return fmt.Errorf("send report: %w", err)
	}
	return nil
}

// countWithin is count with a deadline: a target must not delay the actions for ever.
func (s *Scaler) countWithin(ctx context.Context, timeout time.Duration) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, timeoutError(fmt.Sprintf("not completed within %v", timeout)))
	defer cancel()
	return s.count(ctx)
}

// count returns the number of instances that the target reports.
func (s *Scaler) count(ctx context.Context) (int, error) {
	n, err := instances(ctx, s.target)
	if err == nil && (n < 0 || n > MaxInstances) {
		err = fmt.Errorf("the target reports %d instances: must be 0 to %d", n, MaxInstances)
	}
	if err != nil {
		n, err = 0, fmt.Errorf("count instances: %w", err)
	}
	if s.cfg.OnCount != nil {
		s.cfg.OnCount(n, err)
	}
	return n, err
}

// instances calls a target. A panic becomes an error.
func instances(ctx context.Context, t Target) (n int, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the target panicked: %v", r)
		}
	}()
	return t.Instances(ctx)
}

// handleActions carries out the actions of a batch. If the store or a queue fails,
// the action is delivered again. The logic is informed of refused actions, so that it
// does not wait for them. Their outcome is not saved: it would supersede actions with
// lower numbers.
func (s *Scaler) handleActions(ctx context.Context, a batch) error {
	last, err := s.store.Outcome(ctx, s.resource)
	if err != nil {
		return fmt.Errorf("load outcome: %w", err)
	}
	bound := int64(maxNumberGap)
	if last != nil {
		bound += last.Number
	}
	var refused []Outcome
	actions, messages := decodeBatch(ctx, a, s.cfg.Log, func(a Action) error {
		switch {
		case a.Resource != s.resource:
			return otherResource(a.Resource, s.resource)
		case a.step != 0: // it gets its numbers when it is its turn
			return nil
		case a.Number < 1 || a.To < 0 || a.To > MaxInstances:
			return fmt.Errorf("%w: action %d to %d instances", errBadMessage, a.Number, a.To)
		case a.Number > bound:
			return fmt.Errorf("%w: action %d, where no number above %d can have been reached: check who may send to the queue", errBadMessage, a.Number, bound)
		}
		err := s.limits.check(a)
		if err != nil {
			refused = append(refused, Outcome{Number: a.Number, Time: s.cfg.Clock.Wall().UTC(), Err: oneLine(err)})
		}
		return err
	})
	for _, o := range refused {
		if err := s.report(ctx, &o); err != nil {
			return err
		}
	}
	done := 0
	stop := s.keepLocked(ctx, a.queue, messages)
	defer func() {
		stop() // first: extending a message changes the receipt by which it is deleted
		deleteAll(ctx, a.queue, messages[:done], s.cfg.Log)
	}()
	for _, action := range actions {
		if err := s.carryOut(ctx, action); err != nil {
			return err
		}
		done++
	}
	return nil
}

// carryOut carries out an action, unless that or a later one has been, and reports.
func (s *Scaler) carryOut(ctx context.Context, action Action) error {
	action.Reason = line(action.Reason)
	last, err := s.store.Outcome(ctx, s.resource)
	if err != nil {
		return fmt.Errorf("load outcome: %w", err)
	}
	if action.step != 0 {
		if action, err = s.numbered(ctx, action, last); err != nil {
			return err
		}
	}
	if last != nil && last.Number > action.Number {
		s.cfg.Log.Warn("action superseded, it is not carried out", "action", action.Number, "last", last.Number)
	}
	if action.Number > 0 && (last == nil || last.Number < action.Number) {
		o, err := s.execute(ctx, action)
		if err != nil {
			return err
		}
		o.Message = action.message
		if err := s.store.SetOutcome(ctx, s.resource, o); err != nil {
			return fmt.Errorf("save outcome: %w", err)
		}
	}
	return s.sendReport(ctx)
}

// numbered gives an action of the published autoscaler its numbers. One that has been carried out
// already, or is beyond the limits, gets the number of the last action, so that it is not carried
// out.
func (s *Scaler) numbered(ctx context.Context, a Action, last *Outcome) (Action, error) {
	now, err := s.countWithin(ctx, s.cfg.Timeout)
	if err != nil {
		return a, err
	}
	if last != nil {
		a.Number = last.Number
	}
	if last != nil && last.Message == a.message {
		return a, nil
	}
	next := a
	next.Number, next.From, next.To, next.Decided = a.Number+1, now, now+a.step, s.cfg.Clock.Wall().UTC()
	if err := s.limits.check(next); err != nil {
		s.cfg.Log.Warn("action of the published autoscaler is not carried out", "error", err)
		return a, nil
	}
	return next, nil
}

// keepLocked extends the locks of messages until stop is called.
func (s *Scaler) keepLocked(ctx context.Context, q Queue, messages []*Message) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var holding sync.WaitGroup
	holding.Go(func() {
		for s.cfg.Clock.Sleep(ctx, extendInterval) == nil {
			for _, m := range messages {
				// A lost lock does no harm: To is a number of instances, so that carrying
				// the action out twice has the same effect as once.
				_ = q.Extend(ctx, m)
			}
		}
	})
	return func() { cancel(); holding.Wait() }
}

// extendInterval is well below the queues' default lock time of 30 s.
const extendInterval = 10 * time.Second

// errStopped: the scaler was stopped before an action had an outcome.
var errStopped = errors.New("scaler stopped before the action was completed")

// failingError: the scaler was stopped before an action had an outcome, and attempts have
// failed before.
type failingError struct {
	action   Action
	attempts int   // that have failed
	last     error // of the last one
}

func (e *failingError) Error() string {
	return fmt.Sprintf("action %d, from %d to %d instances, is not completed: %s failed: %v", e.action.Number, e.action.From, e.action.To, attempts(e.attempts), e.last)
}

func (e *failingError) Unwrap() error { return e.last }

// execute attempts an action until it succeeds or is abandoned, and returns its
// outcome. If ctx ends before that, it returns errStopped, or a failingError.
func (s *Scaler) execute(ctx context.Context, a Action) (Outcome, error) {
	wait := s.cfg.RetryMin
	stopped := errStopped
	for n := 1; ; n++ {
		err := s.attempt(ctx, a)
		if ctx.Err() != nil {
			return Outcome{}, stopped
		}
		if s.cfg.OnAttempt != nil {
			s.cfg.OnAttempt(a, err)
		}
		o := Outcome{Number: a.Number, Time: s.cfg.Clock.Wall().UTC(), Attempts: n}
		log := s.cfg.Log.With("action", a.Number, "from", a.From, "to", a.To, "attempts", n)
		var stale *staleActionError
		switch {
		case err == nil:
			log.Info("scaled")
			return o, nil
		case n >= s.cfg.MaxAttempts || errors.As(err, &stale):
			log.Error("action abandoned", "error", err)
			o.Err = oneLine(err)
			return o, nil
		}
		log.Warn("attempt failed, will be retried", "wait", wait, "error", err)
		stopped = &failingError{a, n, err}
		if s.cfg.Clock.Sleep(ctx, wait) != nil {
			return Outcome{}, stopped
		}
		wait = min(2*wait, s.cfg.RetryMax)
	}
}

// staleActionError: the number of instances is neither the one at the decision nor
// the wanted one, so something else has scaled the resource.
type staleActionError struct{ now, from, to int }

func (e *staleActionError) Error() string {
	return fmt.Sprintf("there are %d instances, neither %d nor %d: something else has scaled the resource, the action no longer applies", e.now, e.from, e.to)
}

// attempt carries out an action, unless it is done already: by an attempt that was
// interrupted, or before a crash.
func (s *Scaler) attempt(ctx context.Context, a Action) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the target panicked: %v", r)
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Timeout, timeoutError(fmt.Sprintf("not completed within %v", s.cfg.Timeout)))
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
		return nil // only the response was lost
	}
	return fmt.Errorf("scale to %d: %w", a.To, err)
}
