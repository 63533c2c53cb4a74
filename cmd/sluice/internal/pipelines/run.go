package pipelines

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Consumer is a consumer, or several that run as one.
type Consumer interface {
	Run(ctx context.Context) error
	Stop(ctx context.Context) error
}

// RunConfig says when [Run] ends.
type RunConfig struct {
	// StopTimeout limits a graceful stop. Then the batches in progress are cancelled.
	StopTimeout time.Duration
	// Wait returns when there is nothing more to do. Nil: run until interrupted.
	Wait func(context.Context) error
	Log  *slog.Logger
}

// EndTimeout limits what follows a graceful stop: batches in progress are cancelled, leases
// released, and connections closed. Each request has a bound, but with a database, a hub and a
// collector that do not answer these add up to most of a minute.
const EndTimeout = 9 * time.Second

// ExitLate ends the process with exit code 1 if it is still there when the time for a graceful stop
// and EndTimeout have passed since stopping has ended: before it is killed from outside, and with a
// line in the log. Leases that it has not released expire. The function that it returns ends the
// wait.
func ExitLate(stopping context.Context, stopTimeout time.Duration, log *slog.Logger) (ended func()) {
	return watchdog(stopping, stopTimeout+EndTimeout, func(limit time.Duration) {
		log.Error("not stopped in time, exiting", "after", limit, "next", "look above for what does not answer: its leases expire by themselves, and what was not committed is done again")
		os.Exit(1)
	})
}

// watchdog calls late if ended is not called within a limit of the end of stopping.
func watchdog(stopping context.Context, limit time.Duration, late func(limit time.Duration)) (ended func()) {
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-stopping.Done():
		case <-done:
			return
		}
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-timer.C:
			late(limit)
		case <-done:
		}
	})
	return func() { close(done); waiting.Wait() }
}

// Run runs a consumer until interrupted ends, or until cfg.Wait returns, and then stops it
// gracefully. A signal during the stop cancels the batches in progress.
func Run(ctx, interrupted context.Context, c Consumer, cfg *RunConfig) error {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(work) }()
	reached := make(chan error, 1)
	var waiting sync.WaitGroup
	if cfg.Wait != nil {
		waiting.Go(func() { reached <- cfg.Wait(work) })
	}
	defer func() { cancel(); waiting.Wait() }()

	var result error
	again := make(chan os.Signal, 1)
	defer signal.Stop(again)
	select {
	case err := <-ended:
		return err
	case result = <-reached:
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	case <-interrupted.Done():
		// Before the log line: an operator may send the second signal as soon as it appears.
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		cfg.Log.Info("stopping", "cause", context.Cause(interrupted))
		if cfg.Wait != nil {
			result = errors.New("interrupted before it had caught up")
		}
	}
	stopping, stopped := context.WithTimeout(ctx, cfg.StopTimeout)
	defer stopped()
	waiting.Go(func() {
		select {
		case <-again:
			cancel()
		case <-work.Done():
		}
	})
	if err := c.Stop(stopping); err != nil {
		cfg.Log.Warn("batches in progress were cancelled", "after", cfg.StopTimeout)
	}
	if err := <-ended; err != nil && work.Err() == nil {
		return errors.Join(result, err)
	}
	return result
}
