package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/catchup"
	"github.com/sluice-go/sluice/internal/history"
	"github.com/sluice-go/sluice/internal/monitor"
	"github.com/sluice-go/sluice/pipeline"
)

type runFlags struct {
	stage         string
	untilCaughtUp bool
	within        time.Duration
	stopTimeout   time.Duration
	history       string
	web           webFlags
	metrics       metricsFlags
}

func (a *app) run() *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "run PIPELINE.yaml",
		Short: "Run a pipeline until interrupted",
		Long: `Run a pipeline, or all stages of a file that has several. SIGINT and SIGTERM stop
it in good order: batches in progress are finished and committed, partitions given
back. A second signal, or the end of --stop-timeout, cancels them; nothing
half-done is committed either way. A stage that fails for good ends the others in
good order.`,
		Example: "  sluice run flights.yaml\n  sluice run flights.yaml --until-caught-up --within 5m\n  sluice run stages.yaml --stage clean",
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			if flags.within <= 0 || flags.stopTimeout <= 0 {
				return misused("--within and --stop-timeout must be positive")
			}
			return a.runPipeline(ctx, args[0], flags)
		}),
	}
	f := cmd.Flags()
	stageFlag(f, &flags.stage)
	f.BoolVar(&flags.untilCaughtUp, "until-caught-up", false, "end once all partitions of the hub, whoever owns them, are done up to where they end now, stage after stage; of a stage in memory this process must own all")
	f.DurationVar(&flags.within, "within", 10*time.Minute, "with --until-caught-up: fail after this `time`")
	f.DurationVar(&flags.stopTimeout, "stop-timeout", 30*time.Second, "`time` for batches in progress when stopped")
	f.StringVar(&flags.history, "history", "", "append what is claimed and committed to a `file`, a line of JSON each, for audits and tests")
	flags.web.add(f)
	flags.metrics.add(f)
	return cmd
}

func (a *app) runPipeline(ctx context.Context, path string, flags runFlags) (err error) {
	interrupted, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	stages, err := chosen(path, flags.stage)
	if err != nil {
		return err
	}
	if len(stages) > 1 && flags.history != "" {
		return misused("--history is of one stage: name it with --stage")
	}
	var works []*work
	defer func() {
		for _, w := range works {
			closeParts(ctx, w.parts)
		}
	}()
	for _, p := range stages {
		w, err := a.open(interrupted, p, len(stages) > 1)
		if err != nil {
			return unless(interrupted, err)
		}
		works = append(works, w)
	}
	finish := func() error { return nil }
	if flags.history != "" {
		if works[0].observer, finish, err = recorded(works[0].monitor, flags.history); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, finish()) }()
	list := make([]seen, len(works))
	for i, w := range works {
		list[i] = seen{w.Name, w.parts}
	}
	b, err := a.board(interrupted, &flags.web, "sluice-data", list...)
	if err != nil {
		return unless(interrupted, err)
	}
	defer b.close()
	if b != nil {
		a.log.Info("dashboard", "at", b.String())
	}
	g, err := a.gauges(ctx, &flags.metrics)
	if err != nil {
		return err
	}
	defer g.close()
	var all runner
	var watched []monitor.Stage
	together := &pipeline.Together{}
	for _, w := range works {
		if err := g.join(w); err != nil {
			return err
		}
		c, err := w.parts.Consumer(interrupted, b.join(w.Name, &pipeline.Options{Observer: w.observer}))
		if err != nil {
			return unless(interrupted, err)
		}
		together.Add(w.Name, c)
		all = c
		watched = append(watched, monitor.Stage{Name: w.Name, Monitor: w.monitor})
	}
	if len(works) > 1 {
		all = together
	}
	var until func(context.Context) error
	if flags.untilCaughtUp {
		until = func(ctx context.Context) error { return caughtUp(ctx, works, flags.within) }
	}

	var watching sync.WaitGroup
	watch, unwatch := context.WithCancel(ctx)
	watching.Go(func() { monitor.ShowStages(watch, a.screen, watched...) })
	err = a.consume(ctx, interrupted, all, flags.stopTimeout, until)
	unwatch()
	watching.Wait()
	for _, w := range works {
		w.log.Info("stopped", w.figures()...)
	}
	return err
}

// work is a pipeline that is run.
type work struct {
	*pipeline.Pipeline
	parts    *pipeline.Parts
	monitor  *monitor.Monitor
	observer sluice.Observer
	log      *slog.Logger
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
	w.monitor = monitor.New(w.log)
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

// recorded joins an observer with the writer of a history, if there is to be
// one. A history that could not be written whole is an error at the end.
func recorded(observer sluice.Observer, path string) (sluice.Observer, func() error, error) {
	if path == "" {
		return observer, func() error { return nil }, nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("history: %w", err)
	}
	w := history.NewWriter(file)
	return sluice.Observers(observer, w), func() error {
		if err := errors.Join(w.Err(), file.Close()); err != nil {
			return fmt.Errorf("history: %w", err)
		}
		return nil
	}, nil
}

// unless drops the error of something that was interrupted.
func unless(interrupted context.Context, err error) error {
	if interrupted.Err() != nil {
		return nil
	}
	return err
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
func caughtUp(ctx context.Context, works []*work, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for _, w := range works {
		ends, err := catchup.Now(ctx, w.parts.Source)
		if err == nil {
			err = ends.Wait(ctx, w.parts.Checkpoints, w.monitor.Stopped)
		}
		if err != nil && len(works) > 1 {
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

// runner is a consumer, or several.
type runner interface {
	Run(ctx context.Context) error
	Stop(ctx context.Context) error
}

// consume runs consumers until interrupted, or until what it is given to wait
// for. Another signal cancels.
func (a *app) consume(ctx, interrupted context.Context, c runner, stopTimeout time.Duration, until func(context.Context) error) error {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(work) }()
	reached := make(chan error, 1)
	var waiting sync.WaitGroup
	if until != nil {
		waiting.Go(func() { reached <- until(work) })
	}
	defer func() { cancel(); waiting.Wait() }()

	var result error
	select {
	case err := <-ended:
		return err
	case result = <-reached:
	case <-interrupted.Done():
		a.log.Info("stopping", "cause", context.Cause(interrupted))
		if until != nil {
			a.log.Warn("interrupted before it had caught up")
		}
	}
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	stopping, stopped := context.WithTimeout(ctx, stopTimeout)
	defer stopped()
	waiting.Go(func() {
		select {
		case <-again:
			cancel()
		case <-work.Done():
		}
	})
	if err := c.Stop(stopping); err != nil {
		a.log.Warn("batches in progress were cancelled", "after", stopTimeout)
	}
	if err := <-ended; err != nil && work.Err() == nil {
		return cmp.Or(result, err)
	}
	return result
}

// closeParts takes its time, but not for ever.
func closeParts(ctx context.Context, parts *pipeline.Parts) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = parts.Close(ctx)
}
