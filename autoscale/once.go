package autoscale

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Round is what [Autoscaler.Once] has done.
type Round struct {
	Records []Record // the decision, and outcomes of actions, in their order
	Unread  []Point  // the metrics that could not be read
	// Pending is the action that was not completed in time; nil if there is none. The
	// next round continues it.
	Pending *Action
}

// Once makes one round, for timers: it completes the action that an earlier round has left, reads
// the metrics, decides, and carries out the action decided on. Cooldowns and windows are those of
// the store, so it needs one that outlives the process. Actions have wait in all; one that is not
// completed by then is continued by the next round, and is an error if attempts have failed. What a
// process that is killed leaves is completed by the next round too. Hold the resource's lease
// meanwhile, so that rounds do not overlap: see [Holder].
//
// A step that fails does not prevent the others; the errors are joined. Once must not be
// called concurrently, nor while Run runs.
func (a *Autoscaler) Once(ctx context.Context, wait time.Duration) (*Round, error) {
	round := &Round{}
	onRecord := a.logic.cfg.OnRecord
	a.logic.cfg.OnRecord = func(r Record) {
		round.Records = append(round.Records, r)
		if onRecord != nil {
			onRecord(r)
		}
	}
	defer func() { a.logic.cfg.OnRecord = onRecord }()
	acting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()

	err := a.scaler.sendReport(ctx)
	if err == nil {
		err = drain(ctx, a.reports, a.logic.handleReports) // sends the action that is pending
	}
	errs := []error{err, a.act(ctx, acting)}
	points := a.collector.Read(ctx)
	for _, p := range points {
		if p.State == Failed {
			round.Unread = append(round.Unread, p)
		}
	}
	a.collector.send(ctx, points)
	errs = append(errs, drain(ctx, a.metrics, a.logic.handlePoints), a.act(ctx, acting), a.logic.purge(ctx))
	m, err := a.logic.store.Load(ctx, a.logic.resource.Name)
	if err != nil {
		err = fmt.Errorf("load state: %w", err)
	} else {
		round.Pending = m.Pending
	}
	return round, errors.Join(append(errs, err)...)
}

// act carries out the actions that were sent, while acting lasts, and applies their
// outcomes. An action that is cut short stays pending; that is an error only if attempts
// have failed.
func (a *Autoscaler) act(ctx, acting context.Context) error {
	err := drain(acting, a.actions, a.scaler.handleActions)
	if _, failing := errors.AsType[*failingError](err); !failing && acting.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	return errors.Join(err, drain(ctx, a.reports, a.logic.handleReports))
}

// drain processes the messages that are in a queue.
func drain(ctx context.Context, q *MemoryQueue, handle func(context.Context, batch) error) error {
	for {
		messages, _, _ := q.take(batchSize)
		if len(messages) == 0 {
			return nil
		}
		if err := handle(ctx, batch{queue: q, messages: messages}); err != nil {
			return err
		}
	}
}
