package autoscale

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// LogicConfig holds the options of a [Logic]. The zero value takes every default.
type LogicConfig struct {
	// Retention is how long records are kept. Default: 30 days.
	Retention time.Duration
	// ResendAfter is the time after which an action without an outcome is sent again.
	// Default: 1 min.
	ResendAfter time.Duration
	// OnRecord is called with each record after it was saved, on the goroutine of
	// Run. It must return soon.
	OnRecord func(Record)
	// OnRound is called by Run once per [Limits.Interval], also while the store or the queues fail
	// or no points arrive: for a liveness probe. It must return soon.
	OnRound func()
	// Clock replaces the system's clock in tests.
	Clock Clock
	// Log receives failures. Default: nothing is logged.
	Log *slog.Logger
}

// Logic keeps the windows of a resource and decides whenever points arrive. If none
// arrive for [Limits.StaleAfter], it records a decision to change nothing once per
// interval.
type Logic struct {
	resource Resource
	store    Store
	queues   Queues
	cfg      LogicConfig

	lastSuccess time.Duration // when an action succeeded, by the monotonic clock
	hasActed    bool          // an action has succeeded since the start
	lastPoints  time.Duration // when points last arrived
	sent        int64         // the number of the action sent last
	sentAt      time.Duration
	purgedAt    time.Duration
}

// Queues are the three queues that join the parts.
type Queues struct {
	Metrics, Actions, Reports Queue
}

// NewLogic returns the logic of a resource. It fails if the limits contradict each
// other. It does not close the store or the queues.
func NewLogic(resource *Resource, store Store, queues Queues, cfg *LogicConfig) (*Logic, error) {
	l := &Logic{resource: *resource, store: boundedStore{store}, queues: queues.bounded()}
	if cfg != nil {
		l.cfg = *cfg
	}
	l.cfg.Retention = cmp.Or(l.cfg.Retention, 30*24*time.Hour)
	l.cfg.ResendAfter = cmp.Or(l.cfg.ResendAfter, time.Minute)
	l.cfg.Clock = clockOr(l.cfg.Clock)
	l.cfg.Log = logOr(l.cfg.Log).With("resource", resource.Name)
	limits, err := resource.Limits.WithDefaults()
	if err != nil {
		return nil, fmt.Errorf("limits of %s: %w", resource.Name, err)
	}
	l.resource.Limits = limits
	return l, nil
}

// Run decides until ctx ends; then it returns nil. Errors of the store and the
// queues are logged and retried.
func (l *Logic) Run(ctx context.Context) error {
	metrics, reports := make(chan batch), make(chan batch)
	var receiving sync.WaitGroup
	receiving.Go(func() { receive(ctx, l.queues.Metrics, metrics, l.cfg.Clock, l.cfg.Log) })
	receiving.Go(func() { receive(ctx, l.queues.Reports, reports, l.cfg.Clock, l.cfg.Log) })
	defer receiving.Wait()

	ticks := make(chan struct{})
	receiving.Go(func() {
		for l.cfg.Clock.Sleep(ctx, l.resource.Limits.Interval) == nil {
			select {
			case ticks <- struct{}{}:
			case <-ctx.Done():
			}
		}
	})
	l.lastPoints = l.cfg.Clock.Elapsed()
	l.purgedAt = l.lastPoints - purgeInterval
	for {
		var err error
		select {
		case a := <-metrics:
			err = l.handlePoints(ctx, a)
			close(a.done)
		case a := <-reports:
			err = l.handleReports(ctx, a)
			close(a.done)
		case <-ticks:
			if l.cfg.OnRound != nil {
				l.cfg.OnRound()
			}
			err = l.onTick(ctx)
		case <-ctx.Done():
			return nil
		}
		if err != nil && ctx.Err() == nil {
			l.cfg.Log.Error("decision failed, will be retried", "error", err)
			_ = l.cfg.Clock.Sleep(ctx, retryPause)
		}
	}
}

// handlePoints adds points from the collector to the windows, and decides if one of
// them was new.
func (l *Logic) handlePoints(ctx context.Context, a batch) error {
	points, messages := decodeBatch(ctx, a, l.cfg.Log, func(p Point) error {
		switch {
		case p.Resource != l.resource.Name:
			return otherResource(p.Resource, l.resource.Name)
		case !slices.Contains(l.resource.Metrics, p.Metric):
			return fmt.Errorf("%w: %q is not a metric of %s", errBadMessage, p.Metric, p.Resource)
		case p.Time.IsZero():
			return fmt.Errorf("%w: it has no time", errBadMessage)
		}
		return nil
	})
	if len(points) == 0 {
		return nil
	}
	err := l.update(ctx, func(m *ResourceState, now time.Time) []Record {
		added := false
		for _, p := range points {
			p.Cause = line(p.Cause)
			added = m.AddPoint(p) || added
		}
		if !added {
			return nil
		}
		return []Record{l.resource.Decide(m, now, l.sinceAction())}
	})
	if err != nil {
		return err
	}
	l.lastPoints = l.cfg.Clock.Elapsed()
	deleteAll(ctx, a.queue, messages, l.cfg.Log)
	return nil
}

// handleReports applies reports from the scaler.
func (l *Logic) handleReports(ctx context.Context, a batch) error {
	reports, messages := decodeBatch(ctx, a, l.cfg.Log, func(r Report) error {
		switch {
		case r.Resource != l.resource.Name:
			return otherResource(r.Resource, l.resource.Name)
		case r.Instances < 0 || r.Instances > MaxInstances:
			return fmt.Errorf("%w: %d instances", errBadMessage, r.Instances)
		}
		return nil
	})
	if len(reports) == 0 {
		return nil
	}
	succeeded := false
	err := l.update(ctx, func(m *ResourceState, now time.Time) (records []Record) {
		succeeded = false
		for _, r := range reports {
			if r.Outcome != nil {
				r.Outcome.Err = line(r.Outcome.Err)
			}
			if record := m.ApplyReport(r, now); record != nil {
				records = append(records, *record)
				succeeded = succeeded || record.Kind == ActionSucceeded
			}
		}
		return records
	})
	if err != nil {
		return err
	}
	if succeeded {
		l.hasActed, l.lastSuccess = true, l.cfg.Clock.Elapsed()
	}
	deleteAll(ctx, a.queue, messages, l.cfg.Log)
	return nil
}

// purgeInterval is how often old records are deleted.
const purgeInterval = time.Hour

// onTick sends the pending action again if its outcome is overdue, records that no
// points arrive, and deletes old records.
func (l *Logic) onTick(ctx context.Context) error {
	now := l.cfg.Clock.Elapsed()
	silent := now-l.lastPoints > l.resource.Limits.StaleAfter
	err := l.update(ctx, func(m *ResourceState, now time.Time) []Record {
		if !silent {
			return nil
		}
		return []Record{l.resource.Decide(m, now, l.sinceAction())}
	})
	if err != nil {
		return err
	}
	if now-l.purgedAt >= purgeInterval {
		l.purgedAt = now
		return l.purge(ctx)
	}
	return nil
}

// purge deletes old records.
func (l *Logic) purge(ctx context.Context) error {
	return l.store.DeleteRecords(ctx, l.resource.Name, l.cfg.Clock.Wall().Add(-l.cfg.Retention))
}

// sinceAction returns the time since an action succeeded, by the monotonic clock;
// Never if none has in this process.
func (l *Logic) sinceAction() time.Duration {
	if !l.hasActed {
		return Never
	}
	return l.cfg.Clock.Elapsed() - l.lastSuccess
}

// maxConflicts is how often an update is repeated because another process has saved
// the state in the meantime.
const maxConflicts = 10

// update loads the state, changes it with fn, saves it with the records that fn
// returns, and sends the pending action if necessary. The action is saved before it
// is sent, so that the state has every action that was sent.
func (l *Logic) update(ctx context.Context, fn func(m *ResourceState, now time.Time) []Record) error {
	for conflicts := 0; ; conflicts++ {
		m, err := l.store.Load(ctx, l.resource.Name)
		if err != nil {
			return fmt.Errorf("load state: %w", err)
		}
		before := *m
		records := fn(m, l.cfg.Clock.Wall().UTC())
		if len(records) > 0 || !m.equalReport(&before) {
			err = l.store.Save(ctx, m, records...)
			if errors.Is(err, ErrConflict) && conflicts < maxConflicts {
				continue
			}
			if err != nil {
				return fmt.Errorf("save state: %w", err)
			}
		}
		for _, r := range records {
			if l.cfg.OnRecord != nil {
				l.cfg.OnRecord(r)
			}
		}
		return l.sendPending(ctx, m.Pending)
	}
}

// sendPending sends a, unless this process has sent it within ResendAfter.
func (l *Logic) sendPending(ctx context.Context, a *Action) error {
	now := l.cfg.Clock.Elapsed()
	if a == nil || a.Number == l.sent && now-l.sentAt < l.cfg.ResendAfter {
		return nil
	}
	body, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode action %d: %w", a.Number, err)
	}
	if err := l.queues.Actions.Send(ctx, body); err != nil {
		return fmt.Errorf("send action %d: %w", a.Number, err)
	}
	l.sent, l.sentAt = a.Number, now
	return nil
}

// equalReport reports whether m and o are equal in what reports can change. Points
// need no comparison: new ones always come with a record.
func (m *ResourceState) equalReport(o *ResourceState) bool {
	return m.Instances == o.Instances && m.Actions == o.Actions && m.Reported.Equal(o.Reported) && (m.Pending == nil) == (o.Pending == nil)
}
