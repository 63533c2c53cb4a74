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
	// Until returns when there is nothing more to do. Nil: run until interrupted.
	Until func(context.Context) error
	Log   *slog.Logger
}

// Run runs a consumer until interrupted ends, or until cfg.Until returns, and then stops it
// gracefully. A signal during the stop cancels the batches in progress.
func Run(ctx, interrupted context.Context, c Consumer, cfg *RunConfig) error {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(work) }()
	reached := make(chan error, 1)
	var waiting sync.WaitGroup
	if cfg.Until != nil {
		waiting.Go(func() { reached <- cfg.Until(work) })
	}
	defer func() { cancel(); waiting.Wait() }()

	var result error
	select {
	case err := <-ended:
		return err
	case result = <-reached:
	case <-interrupted.Done():
		cfg.Log.Info("stopping", "cause", context.Cause(interrupted))
		if cfg.Until != nil {
			result = errors.New("interrupted before it had caught up")
		}
	}
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
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
