package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/catchup"
	"github.com/sluice-go/sluice/cmd/sluice/internal/progress"
	"github.com/sluice-go/sluice/pipeline"
)

// work is a pipeline that is run.
type work struct {
	*pipeline.Pipeline
	parts    *pipeline.Parts
	monitor  *progress.Monitor
	observer sluice.Observer
	log      *slog.Logger
}

// works are the pipelines of a file, at least one, that are run as one.
type works []*work

// openAll opens pipelines and sees that their hubs answer.
func (a *app) openAll(ctx context.Context, stages []*pipeline.Pipeline) (works, error) {
	var all works
	for _, p := range stages {
		w, err := a.open(ctx, p, len(stages) > 1)
		if err != nil {
			all.close(ctx)
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

func (all works) close(ctx context.Context) {
	for _, w := range all {
		closeParts(ctx, w.parts)
	}
}

// consumer makes the consumer, or several that run as one.
func (all works) consumer(ctx context.Context, b *board, g *gauges) (runner, error) {
	together := &pipeline.Together{}
	for _, w := range all {
		if err := g.join(w, b); err != nil {
			return nil, err
		}
		c, err := w.parts.Consumer(ctx, b.join(w.Name, &pipeline.Options{Observer: w.observer, Traces: g.spans()}))
		if err != nil {
			return nil, err
		}
		if len(all) == 1 {
			return c, nil
		}
		together.Add(w.Name, c)
	}
	return together, nil
}

func (all works) seen() []seen {
	list := make([]seen, len(all))
	for i, w := range all {
		list[i] = seen{name: w.Name, pipeline: w.Pipeline, parts: w.parts, watched: true}
	}
	return list
}

func (all works) monitors() []progress.Stage {
	list := make([]progress.Stage, len(all))
	for i, w := range all {
		list[i] = progress.Stage{Name: w.Name, Monitor: w.monitor}
	}
	return list
}

// open opens a pipeline and sees that its hub answers.
func (a *app) open(ctx context.Context, p *pipeline.Pipeline, oneOfSeveral bool) (*work, error) {
	w := &work{Pipeline: p, log: a.log}
	if oneOfSeveral {
		w.log = a.log.With("stage", p.Name)
	}
	var err error
	if w.parts, err = p.Open(ctx); err != nil {
		return nil, err
	}
	if err := reach(ctx, p, w.parts.Source); err != nil {
		closeParts(ctx, w.parts)
		return nil, err
	}
	w.monitor = progress.New(w.log)
	w.observer = w.monitor
	return w, nil
}

// figures are what a work has done, for the log.
func (w *work) figures() []any {
	f := w.monitor.Figures()
	if w.InMemory {
		m := w.parts.Memory()
		return []any{"events", f.Events, "counted", m.Counted, "repeats", m.Repeats, "untimely", m.Untimely, "held", m.Held,
			"malformed", m.Malformed, "published", m.Published}
	}
	list := []any{"events", f.Events, "dead_letters", f.DeadLetters, "redriven", f.Redriven}
	if f.Streaming {
		list = append(list, "written", f.Written, "retries", f.Retries)
	}
	if f.Cost > 0 {
		list = append(list, "ru", int64(f.Cost))
	}
	return list
}

// reachFor is how long a hub that does not answer is given at the start, for
// one that starts at the same time. Later outages are waited out.
const reachFor = 5 * time.Second

// reach sees that the hub answers.
func reach(ctx context.Context, p *pipeline.Pipeline, source sluice.Source) error {
	deadline := time.Now().Add(reachFor)
	for {
		_, err := source.Describe(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(err, sluice.ErrRefused) || ctx.Err() != nil || time.Now().After(deadline) {
			return cmp.Or(p.Check(ctx), err) // which names the place in the file
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// caughtUp waits for one stage after the other: each has all its events when
// the one before is done.
func (all works) caughtUp(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for _, w := range all {
		ends, err := catchup.Now(ctx, w.parts.Source)
		if err == nil {
			err = ends.Wait(ctx, w.parts.Checkpoints, w.monitor.Stopped)
		}
		if err != nil && len(all) > 1 {
			err = fmt.Errorf("stage %s: %w", w.Name, err)
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
