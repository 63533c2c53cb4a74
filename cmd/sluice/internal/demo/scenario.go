package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/catchup"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/pipeline"
)

// partitions is how many each hub has.
const partitions = 4

// scenario is what the demos have in common: a hub over a directory, or a topic of Kafka, a producer of
// numbered records, and a pipeline that reads them.
type scenario struct {
	dir      string
	name     string           // of the hub or the topic
	where    string           // what it is and where, for people
	hub      *emulator.Server // nil: there is none
	dial     func() (connection, error)
	closeLog func() error
	pipeline *pipeline.Pipeline
	parts    *pipeline.Parts
	record   func(i int64) (record, error) // number i, counted from 0
}

// record is what is sent.
type record struct {
	body []byte
	key  string // the partition key, which goes by the record's place; empty for none
}

// startScenario opens the directory, which is created if it is missing, and starts
// the hub in it, and more that are empty. One process at a time can have it.
func startScenario(dir string, log *slog.Logger, name string, more ...string) (*scenario, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("demo's directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("demo's directory: %w", err)
	}
	hubs := []emulator.Hub{{Name: name, Partitions: partitions}}
	for _, other := range more {
		hubs = append(hubs, emulator.Hub{Name: other, Partitions: partitions})
	}
	// The load and the counts of what is lost need runtime information that is exact.
	hub, err := emulator.Start(hubs, &emulator.Config{Dir: filepath.Join(dir, "hub"), Log: log, AsAzure: &emulator.AsAzure{}})
	if err != nil {
		return nil, err
	}
	return &scenario{
		dir: dir, name: name, hub: hub, where: fmt.Sprintf("hub       %s (hub %s)", hub.ConnectionString(), name),
		dial: func() (connection, error) { return dialHub(hub.ConnectionString(), name) }, closeLog: hub.Close,
	}, nil
}

// Close closes the pipeline and the log.
func (l *scenario) Close(ctx context.Context) error {
	var err error
	if l.parts != nil {
		err = l.parts.Close(ctx)
	}
	return errors.Join(err, l.closeLog())
}

// open opens the pipeline.
func (l *scenario) open(ctx context.Context, p *pipeline.Pipeline) (err error) {
	l.pipeline = p
	l.parts, err = p.Open(ctx)
	return err
}

// Pipeline is the one that reads the hub.
func (l *scenario) Pipeline() *pipeline.Pipeline { return l.pipeline }

// Parts are the pipeline's.
func (l *scenario) Parts() *pipeline.Parts { return l.parts }

// Where names the hub or topic and its address, for people.
func (l *scenario) Where() string { return l.where }

// Connection is the connection string of the hub, while it is open.
func (l *scenario) Connection() string { return l.hub.ConnectionString() }

// owner is always the same, so that a restart after a crash need not wait for the leases to expire.
// The lock on the hub's directory ensures that there is only one process.
const owner = "demo"

// Run produces records until the hub has so many, and consumes them. With once
// it returns when all that was produced is committed; without once it continues to produce at a low
// rate until ctx ends, which is no error. stopped returns the halted partitions.
func (l *scenario) Run(ctx context.Context, events int64, once bool, opts *pipeline.Options, stopped func() map[string]error) error {
	opts.Owner = owner
	consumer, err := l.parts.Consumer(ctx, opts)
	if err != nil {
		return err
	}
	return l.run(ctx, events, once, consumer, func(ctx context.Context) error { return awaitEnd(ctx, l.parts, stopped) })
}

// runner is a consumer, or several.
type runner interface {
	Run(ctx context.Context) error
	Stop(ctx context.Context) error
}

// run is Run with a consumer that is made. done waits until it has consumed
// all there is.
func (l *scenario) run(ctx context.Context, events int64, once bool, consumer runner, done func(context.Context) error) error {
	working, fail := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	// The consumer outlives ctx, so that it is stopped gracefully.
	work.Go(func() {
		if err := consumer.Run(context.WithoutCancel(ctx)); err != nil {
			fail(err)
		}
	})
	err := l.produceAll(working, events)
	switch {
	case err == nil && once:
		err = done(working)
	case err == nil:
		err = l.produceSlowly(working)
	}
	cause := context.Cause(working)
	fail(nil)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = consumer.Stop(stopping)
	work.Wait()
	switch {
	case ctx.Err() != nil && !once:
		return nil
	case cause != nil:
		return cause
	}
	return err
}

func awaitEnd(ctx context.Context, parts *pipeline.Parts, stopped func() map[string]error) error {
	ends, err := catchup.Now(ctx, parts.Source)
	if err != nil {
		return err
	}
	return ends.Wait(ctx, parts.Checkpoints, stopped)
}
