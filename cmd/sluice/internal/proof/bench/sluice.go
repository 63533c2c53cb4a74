//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/progress"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pipeline"
)

const pipelineHead = `
source:
  eventhub: {connection: "${HUB}", hub: bench}
partitions: all
database: "${DATABASE_URL}"
target:
  insert:
`

const pipelineDecoded = pipelineHead + `
    table: readings
    columns:
      hub_partition: partition
      sequence_number: sequence
      device: body.device
      at: {from: body.at, type: timestamp}
      delay: {from: body.delay, type: integer}
      distance: {from: body.distance, type: integer}
      payload: body.payload
`

const pipelineRaw = pipelineHead + `
    table: raw
    columns:
      hub_partition: partition
      sequence_number: sequence
      body: {from: body, type: text}
`

// runSluice consumes as `sluice run` does.
func runSluice(ctx context.Context, j *job, m *meter) (err error) {
	text := pipelineDecoded
	if j.Raw {
		text = pipelineRaw
	}
	if j.Batch > 0 {
		text = fmt.Sprintf("batch: %d\n%s", j.Batch, text)
	}
	if j.Idle {
		text = "assign: {burst: 64}\n" + text
	}
	p, err := pipeline.Parse("bench.yaml", []byte(text), func(name string) (string, bool) {
		value, ok := map[string]string{"HUB": j.Hub, "DATABASE_URL": j.Database}[name]
		return value, ok
	})
	if err != nil {
		return err
	}
	parts, err := p.Open(ctx)
	if err != nil {
		return err
	}
	defer parts.Close(context.WithoutCancel(ctx))

	goal := newGoal(j, m)
	source := parts.Source
	if j.Contender == memoryContender {
		source = newMemorySource(parts.Group, j)
	}
	options := &pipeline.Options{
		Source:   barrierSource{source, newStartBarrier(j.Partitions, m)},
		Observer: driver.Observers(progress.New(slog.New(slog.DiscardHandler)), goal),
	}
	if j.Live {
		options.Hooks.Batch = func(_ context.Context, b sluice.Batch) error { return goal.timed(b.Events) }
	}
	if j.Contender == observedContender {
		l, err := observe(ctx, p, parts, options)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.close()) }()
	}
	c, err := parts.Consumer(ctx, options)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	var failed error
	running.Go(func() { failed = c.Run(ctx) })
	defer running.Wait()
	select {
	case <-goal.reached:
		err = m.stop()
	case err = <-goal.failed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if stopped := c.Stop(stopping); err == nil {
		err = stopped
	}
	running.Wait()
	if err == nil {
		err = failed
	}
	return err
}

// barrierSource opens no partition until all are about to be opened.
type barrierSource struct {
	driver.Source
	barrier *startBarrier
}

func (s barrierSource) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	if err := s.barrier.wait(ctx); err != nil {
		return nil, err
	}
	return s.Source.Open(ctx, partition, after, epoch)
}

// goal observes a consumer until it has committed all events.
type goal struct {
	meter   *meter
	last    int64
	reached chan struct{}
	failed  chan error

	mu       sync.Mutex
	left     int
	untimed  int // while Live: events that are not timed yet
	complete bool
}

func newGoal(j *job, m *meter) *goal {
	g := &goal{meter: m, last: int64(j.Events) - 1, reached: make(chan struct{}), failed: make(chan error, 1), left: j.Partitions}
	if j.Live {
		g.untimed = j.Events * j.Partitions
	}
	return g
}

// Observe implements [driver.Observer]. Any failure makes the measurement void.
func (g *goal) Observe(o driver.Observation) {
	switch o.Kind {
	case driver.KindCommitted:
		g.meter.committed()
		if o.To.Sequence == g.last {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.left--
			g.check()
		}
	case driver.KindFailed, driver.KindFenced, driver.KindUnknown, driver.KindRetried, driver.KindParked, driver.KindLost, driver.KindHalted, driver.KindHookFailed:
		select {
		case g.failed <- fmt.Errorf("%v: %w", o.Kind, o.Err):
		default:
		}
	}
}

// timed times events that are committed now.
func (g *goal) timed(events []*sluice.Event) error {
	for _, e := range events {
		if err := g.meter.timed(e.Sequence, e.Enqueued, e.Body); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.untimed -= len(events)
	g.check()
	return nil
}

func (g *goal) check() {
	if !g.complete && g.left == 0 && g.untimed == 0 {
		g.complete = true
		close(g.reached)
	}
}
