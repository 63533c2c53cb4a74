package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	untilCaughtUp bool
	within        time.Duration
	stopTimeout   time.Duration
	history       string
}

func (a *app) run() *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "run PIPELINE.yaml",
		Short: "Run a pipeline until interrupted",
		Long: `Run a pipeline. SIGINT and SIGTERM stop it in good order: batches in progress are
finished and committed, partitions given back. A second signal, or the end of
--stop-timeout, cancels them; nothing half-done is committed either way.`,
		Example: "  sluice run flights.yaml\n  sluice run flights.yaml --until-caught-up --within 5m",
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			if flags.within <= 0 || flags.stopTimeout <= 0 {
				return misused("--within and --stop-timeout must be positive")
			}
			return a.runPipeline(ctx, args[0], flags)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&flags.untilCaughtUp, "until-caught-up", false, "end once all partitions of the hub, whoever owns them, are done up to where they end now")
	f.DurationVar(&flags.within, "within", 10*time.Minute, "with --until-caught-up: fail after this `time`")
	f.DurationVar(&flags.stopTimeout, "stop-timeout", 30*time.Second, "`time` for batches in progress when stopped")
	f.StringVar(&flags.history, "history", "", "append what is claimed and committed to a `file`, a line of JSON each, for audits and tests")
	return cmd
}

func (a *app) runPipeline(ctx context.Context, path string, flags runFlags) (err error) {
	interrupted, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	p, err := pipeline.Load(path)
	if err != nil {
		return err
	}
	parts, err := p.Open(interrupted)
	if err != nil {
		return unless(interrupted, err)
	}
	defer closeParts(ctx, parts)
	if err := reach(interrupted, p, parts.Source); err != nil {
		return unless(interrupted, err)
	}
	m := monitor.New(a.log)
	observer, finish, err := recorded(m, flags.history)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finish()) }()
	c, err := parts.Consumer(interrupted, &pipeline.Options{Observer: observer})
	if err != nil {
		return unless(interrupted, err)
	}
	var until func(context.Context) error
	if flags.untilCaughtUp {
		until = func(ctx context.Context) error { return caughtUp(ctx, parts, m, flags.within) }
	}

	var watching sync.WaitGroup
	watched, unwatch := context.WithCancel(ctx)
	watching.Go(func() { m.Show(watched, a.screen) })
	err = a.consume(ctx, interrupted, c, flags.stopTimeout, until)
	unwatch()
	watching.Wait()
	f := m.Figures()
	figures := []any{"events", f.Events, "dead_letters", f.DeadLetters, "redriven", f.Redriven}
	if f.Streaming {
		figures = append(figures, "written", f.Written, "retries", f.Retries, "ru", int64(f.Cost))
	}
	a.log.Info("stopped", figures...)
	return err
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

func caughtUp(ctx context.Context, parts *pipeline.Parts, m *monitor.Monitor, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ends, err := catchup.Now(ctx, parts.Source)
	if err == nil {
		err = ends.Wait(ctx, parts.Checkpoints, m.Stopped)
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("not caught up within %v: %w", within, err)
	}
	return err
}

// consume runs a consumer until interrupted, or until what it is given to wait
// for. Another signal cancels.
func (a *app) consume(ctx, interrupted context.Context, c *sluice.Consumer, stopTimeout time.Duration, until func(context.Context) error) error {
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
