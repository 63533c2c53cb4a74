// Package pipelines opens the pipelines of a file and runs them as one.
package pipelines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/catchup"
	"github.com/sluice-go/sluice/cmd/sluice/internal/dashboard"
	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
	"github.com/sluice-go/sluice/cmd/sluice/internal/monitoring"
	"github.com/sluice-go/sluice/cmd/sluice/internal/progress"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/pipeline"
)

// Pipeline is a pipeline that is open.
type Pipeline struct {
	*pipeline.Pipeline
	parts    *pipeline.Parts
	monitor  *progress.Monitor
	observer driver.Observer
	log      *slog.Logger
}

// Pipelines are the pipelines of a file, at least one.
type Pipelines []*Pipeline

// Open opens pipelines and checks that their hubs answer.
func Open(ctx context.Context, stages []*pipeline.Pipeline, log *slog.Logger) (Pipelines, error) {
	var all Pipelines
	for _, p := range stages {
		l := log
		if len(stages) > 1 {
			l = log.With("stage", p.Name)
		}
		opened, err := open(ctx, p, l)
		if err != nil {
			all.Close(ctx)
			return nil, err
		}
		all = append(all, opened)
	}
	return all, nil
}

func open(ctx context.Context, p *pipeline.Pipeline, log *slog.Logger) (*Pipeline, error) {
	parts, err := p.Open(ctx)
	if err != nil {
		return nil, err
	}
	if err := reach(ctx, p, parts.Source); err != nil {
		CloseParts(ctx, parts)
		return nil, err
	}
	m := progress.New(log)
	return &Pipeline{Pipeline: p, parts: parts, monitor: m, observer: m, log: log}, nil
}

// reachFor limits how long [Open] waits for a hub that does not answer: it may be starting at the
// same time. Later outages are retried for as long as they last.
const reachFor = 5 * time.Second

// reach checks that the hub answers.
func reach(ctx context.Context, p *pipeline.Pipeline, source driver.Source) error {
	deadline := time.Now().Add(reachFor)
	for {
		_, err := source.Describe(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(err, sluice.ErrRefused) || ctx.Err() != nil || time.Now().After(deadline) {
			return cmp.Or(p.Check(ctx), err) // the error of Check names the line of the file
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// Close closes the pipelines.
func (all Pipelines) Close(ctx context.Context) {
	for _, p := range all {
		CloseParts(ctx, p.parts)
	}
}

// CloseParts closes the parts of a pipeline, even if ctx has ended, within 5 seconds.
func CloseParts(ctx context.Context, parts *pipeline.Parts) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = parts.Close(ctx)
}

// Record appends the history of a pipeline to a file. The function that it returns closes the
// file, and reports if the history is not complete.
func (p *Pipeline) Record(path string) (finish func() error, err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	w := history.NewWriter(file)
	p.observer = driver.Observers(p.observer, w)
	return func() error {
		if err := errors.Join(w.Err(), file.Close()); err != nil {
			return fmt.Errorf("history: %w", err)
		}
		return nil
	}, nil
}

// Consumer makes the consumer of all pipelines.
func (all Pipelines) Consumer(ctx context.Context, d *dashboard.Dashboard, m *monitoring.Monitoring) (Consumer, error) {
	together := &pipeline.Consumers{}
	for _, p := range all {
		observer, err := m.Add(monitoring.Pipeline{Pipeline: p.Pipeline, Parts: p.parts, Log: p.log, OnWarnings: func(list []health.Warning) { d.Warn(p.Name, list) }})
		if err != nil {
			return nil, err
		}
		if observer != nil {
			p.observer = driver.Observers(p.observer, observer)
		}
		c, err := p.parts.Consumer(ctx, d.Options(p.Name, &pipeline.Options{Observer: p.observer, TracerProvider: m.Traces(), MeterProvider: m.Meter()}))
		if err != nil {
			return nil, err
		}
		if len(all) == 1 {
			return c, nil
		}
		together.Add(p.Name, c)
	}
	return together, nil
}

// Shown are the pipelines as the dashboard shows them.
func (all Pipelines) Shown() []dashboard.Pipeline {
	list := make([]dashboard.Pipeline, len(all))
	for i, p := range all {
		list[i] = dashboard.Pipeline{Name: p.Name, Pipeline: p.Pipeline, Parts: p.parts, Watched: true}
	}
	return list
}

// Stages are the pipelines as the status line shows them.
func (all Pipelines) Stages() []progress.Stage {
	list := make([]progress.Stage, len(all))
	for i, p := range all {
		list[i] = progress.Stage{Name: p.Name, Monitor: p.monitor}
	}
	return list
}

// WaitCaughtUp waits for one pipeline after the other: once a stage has caught up, the hub of the
// next one holds all its events. The copies of a stage's dead letters belong to it.
func (all Pipelines) WaitCaughtUp(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for _, p := range all {
		ends, err := catchup.Now(ctx, p.parts.Source)
		if err == nil {
			err = ends.Wait(ctx, p.parts.Checkpoints, p.monitor.Stopped)
		}
		if marks := p.parts.CopyMarks(); err == nil && marks != nil {
			err = ends.WaitCopies(ctx, marks)
		}
		if err != nil && len(all) > 1 {
			err = fmt.Errorf("stage %s: %w", p.Name, err)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("not caught up within %v: %w", within, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// LogStopped logs the totals of each pipeline.
func (all Pipelines) LogStopped() {
	for _, p := range all {
		p.log.Info("stopped", p.stats()...)
	}
}

// stats are the totals of a pipeline, as attributes of a log line.
func (p *Pipeline) stats() []any {
	f := p.monitor.Stats()
	list := []any{"events", f.Events, "dead_letters", f.DeadLetters, "redriven", f.Redriven}
	if p.Rollup {
		m := p.parts.RollupStats()
		f.Filtered = m.Filtered
		list = []any{"events", f.Events, "counted", m.Counted, "repeats", m.Duplicates, "untimely", m.OutsideWindow, "held", m.Incomplete,
			"malformed", m.Malformed, "published", m.Published}
	}
	if f.Filtered > 0 {
		list = append(list, "filtered", f.Filtered)
	}
	if f.AtLeastOnce {
		list = append(list, "written", f.Written, "retries", f.Retries)
	}
	if f.Cost > 0 {
		list = append(list, "ru", int64(f.Cost))
	}
	return list
}
