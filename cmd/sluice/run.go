package main

import (
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
	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
	"github.com/sluice-go/sluice/cmd/sluice/internal/progress"
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
	flags.web.addScaling(f)
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
	all, err := a.openAll(interrupted, stages)
	if err != nil {
		return unless(interrupted, err)
	}
	defer all.close(ctx)
	finish := func() error { return nil }
	if flags.history != "" {
		if all[0].observer, finish, err = recorded(all[0].monitor, flags.history); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, finish()) }()
	b, err := a.board(interrupted, &flags.web, "sluice-data", all.seen()...)
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
	consumer, err := all.consumer(interrupted, b, g)
	if err != nil {
		return unless(interrupted, err)
	}
	var until func(context.Context) error
	if flags.untilCaughtUp {
		until = func(ctx context.Context) error { return all.caughtUp(ctx, flags.within) }
	}
	err = a.watch(ctx, func() error {
		return a.consume(ctx, interrupted, consumer, flags.stopTimeout, until)
	}, all.monitors()...)
	for _, w := range all {
		w.log.Info("stopped", w.figures()...)
	}
	return err
}

// watch shows how work goes while it does.
func (a *app) watch(ctx context.Context, do func() error, stages ...progress.Stage) error {
	var watching sync.WaitGroup
	watched, unwatch := context.WithCancel(ctx)
	watching.Go(func() { progress.ShowStages(watched, a.screen, stages...) })
	err := do()
	unwatch()
	watching.Wait()
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
			result = errors.New("interrupted before it had caught up")
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
		return errors.Join(result, err)
	}
	return result
}

// closeParts takes its time, but not for ever.
func closeParts(ctx context.Context, parts *pipeline.Parts) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = parts.Close(ctx)
}
