package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
)

// Consumers are the consumers of several stages, which run and stop together. The
// zero value is empty and ready to use.
type Consumers struct {
	stages []stage
}

type stage struct {
	name     string
	consumer *sluice.Consumer
}

// Add adds a stage's consumer. It must not be called after Run.
func (t *Consumers) Add(name string, c *sluice.Consumer) {
	t.stages = append(t.stages, stage{name, c})
}

// stopTimeout bounds the graceful stop of the other stages when one has failed.
const stopTimeout = 30 * time.Second

// Run runs all consumers until they are stopped, as [sluice.Consumer.Run] does for
// one. When one fails, Run stops the others gracefully. The error names the stage.
func (t *Consumers) Run(ctx context.Context) error {
	failed := make(chan error, len(t.stages))
	var running sync.WaitGroup
	for _, s := range t.stages {
		running.Go(func() {
			if err := s.consumer.Run(ctx); err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("stage %s: %w", s.name, err)
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		running.Wait()
	}()
	var err error
	select {
	case err = <-failed:
		stopping, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		_ = t.Stop(stopping) // cancels what is in progress when the time is up
		<-ended
	case <-ended:
	}
	for {
		select {
		case more := <-failed:
			err = errors.Join(err, more)
		default:
			if err == nil {
				err = ctx.Err()
			}
			return err
		}
	}
}

// Stop stops all consumers at the same time, as [sluice.Consumer.Stop] does for one.
func (t *Consumers) Stop(ctx context.Context) error {
	errs := make([]error, len(t.stages))
	var stopping sync.WaitGroup
	for i, s := range t.stages {
		stopping.Go(func() { errs[i] = s.consumer.Stop(ctx) })
	}
	stopping.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
