package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/monitoring"
	"github.com/sluice-go/sluice/cmd/sluice/internal/pipelines"
	"github.com/sluice-go/sluice/cmd/sluice/internal/progress"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

type runFlags struct {
	config        string
	stage         string
	untilCaughtUp bool
	limit         time.Duration
	stopTimeout   time.Duration
	history       string
	web           webFlags
	metrics       string
}

func (a *app) run() *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "run {PIPELINE.yaml|--config PIPELINE.yaml}",
		Short: "Run a pipeline until interrupted",
		Long: `Run a pipeline, or all stages of a file with several stages. SIGINT and SIGTERM stop it
gracefully: batches in progress are finished and committed, and partitions are
released. A second signal, or the end of --stop-timeout, cancels the batches in
progress. A part of a batch is never committed. If a stage fails permanently, the other
stages are stopped gracefully.`,
		Example: "  sluice run flights.yaml\n  sluice run flights.yaml --until-caught-up --within 5m\n  sluice run stages.yaml --stage clean",
		Args:    cobra.MaximumNArgs(1),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			path, err := fileOf(flags.config, args)
			if err != nil {
				return err
			}
			if flags.limit <= 0 || flags.stopTimeout <= 0 {
				return usage.Errorf("--within and --stop-timeout must be positive")
			}
			return a.runPipeline(ctx, path, flags)
		}),
	}
	f := cmd.Flags()
	configFlag(f, &flags.config)
	stageFlag(f, &flags.stage)
	f.BoolVar(&flags.untilCaughtUp, "until-caught-up", false, "exit once the checkpoints of all partitions, also of those that other processes own, have reached the present end of the hub and the dead letters are copied (dead_letters.copy_to), stage after stage; this process must own all partitions of a stage in memory")
	f.DurationVar(&flags.limit, "within", 10*time.Minute, "with --until-caught-up: fail after this `duration`")
	f.DurationVar(&flags.stopTimeout, "stop-timeout", 20*time.Second, "`duration` of a graceful stop; then batches in progress are cancelled, and the process exits within 9s more. Keep the sum of both below the time after which it is killed, 30s in Kubernetes")
	f.StringVar(&flags.history, "history", "", "append each claim and commit to a `file`, one line of JSON each, for audits and tests")
	flags.web.add(f)
	flags.web.addScaling(f)
	f.StringVar(&flags.metrics, "metrics", "", "serve /metrics (Prometheus), /livez and /readyz over plain HTTP at this `address`, such as 127.0.0.1:9090")
	return cmd
}

func (a *app) runPipeline(ctx context.Context, path string, flags runFlags) (err error) {
	interrupted, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	stopping, begin := context.WithCancel(interrupted)
	defer begin()
	defer pipelines.ExitLate(stopping, flags.stopTimeout, a.log)()
	stages, err := loadStages(interrupted, path, flags.stage)
	if err != nil {
		return err
	}
	if len(stages) > 1 && flags.history != "" {
		return usage.Errorf("--history records one stage: choose it with --stage")
	}
	all, err := pipelines.Open(interrupted, stages, a.log)
	if err != nil {
		return unlessInterrupted(interrupted, err)
	}
	defer all.Close(ctx)
	if flags.history != "" {
		finish, openErr := all[0].Record(flags.history)
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, finish()) }()
	}
	d, err := a.openDashboard(interrupted, &flags.web, "sluice-data", all.Shown()...)
	if err != nil {
		return unlessInterrupted(interrupted, err)
	}
	defer d.Close()
	if d != nil {
		a.log.Info("dashboard", "at", d.String())
	}
	m, err := a.startMonitoring(ctx, flags.metrics)
	if err != nil {
		return err
	}
	defer m.Close()
	consumer, err := all.Consumer(interrupted, d, m)
	if err != nil {
		return unlessInterrupted(interrupted, err)
	}
	cfg := &pipelines.RunConfig{StopTimeout: flags.stopTimeout, Log: a.log}
	if flags.untilCaughtUp {
		cfg.Wait = func(ctx context.Context) error {
			defer begin()
			return all.WaitCaughtUp(ctx, flags.limit)
		}
	}
	err = progress.ShowDuring(ctx, a.screen, func() error { return pipelines.Run(ctx, interrupted, consumer, cfg) }, all.Stages()...)
	begin()
	all.LogStopped()
	return err
}

// listen listens at the address that a flag names.
func listen(flag, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("%s %s: %w: choose another port; port 0 picks a free one", flag, address, syscall.EADDRINUSE)
	case err != nil:
		err = fmt.Errorf("%s %s: %w", flag, address, errors.Unwrap(err))
	}
	return listener, err
}

// startMonitoring serves metrics and probes at an address, if there is one.
func (a *app) startMonitoring(ctx context.Context, address string) (*monitoring.Monitoring, error) {
	var listener net.Listener
	if address != "" {
		var err error
		if listener, err = listen("--metrics", address); err != nil {
			return nil, err
		}
	}
	return monitoring.Start(ctx, listener, a.log)
}

// unlessInterrupted drops the error of something that was interrupted.
func unlessInterrupted(interrupted context.Context, err error) error {
	if interrupted.Err() != nil {
		return nil
	}
	return err
}
