// Package demo runs the whole of Sluice on one machine: an embedded hub, a
// producer of real flight records, and a pipeline into SQLite. Stopped at any
// moment and started again it goes on where it was, and nothing is sent or
// written twice.
package demo

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/catchup"
	"github.com/sluice-go/sluice/pipeline"
)

const (
	hubName    = "flights"
	partitions = 4
)

// Demo is a hub and a pipeline over one directory.
type Demo struct {
	dir     string
	hub     *emulator.Server
	parts   *pipeline.Parts
	flights *flights
	files   files
}

// Open opens the directory, which is created if it is missing, and starts the
// hub in it. One process at a time can have it.
func Open(ctx context.Context, dir string, log *slog.Logger) (*Demo, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("demo's directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("demo's directory: %w", err)
	}
	d := &Demo{dir: dir}
	if d.flights, err = unpackFlights(); err != nil {
		return nil, err
	}
	hubs := []emulator.Hub{{Name: hubName, Partitions: partitions}}
	if d.hub, err = emulator.Start(hubs, &emulator.Config{Dir: filepath.Join(dir, "hub"), Log: log}); err != nil {
		return nil, err
	}
	if err := d.open(ctx); err != nil {
		d.Close(ctx)
		return nil, err
	}
	return d, nil
}

func (d *Demo) open(ctx context.Context) (err error) {
	if d.files, err = writeFiles(d.dir, d.hub.ConnectionString()); err != nil {
		return err
	}
	p, err := pipeline.Load(d.files.strict)
	if err != nil {
		return err
	}
	d.parts, err = p.Open(ctx)
	return err
}

// Close closes the database and the hub.
func (d *Demo) Close(ctx context.Context) {
	if d.parts != nil {
		_ = d.parts.Close(ctx)
	}
	_ = d.hub.Close()
}

// Connection is the connection string of the hub, while it is open.
func (d *Demo) Connection() string { return d.hub.ConnectionString() }

// owner is always the same: the lock on the hub's directory sees to it that
// there is one such process, and so a restart after a crash need not wait for
// the leases to expire.
const owner = "demo"

// Run produces records until the hub has so many, and consumes them. With once
// it returns when all that was produced is committed; else it goes on producing
// at a gentle rate until ctx ends, which is no error. stopped tells of
// partitions that can't go on.
func (d *Demo) Run(ctx context.Context, events int64, once bool, observer sluice.Observer, stopped func() map[string]error) error {
	consumer, err := d.parts.Consumer(ctx, &pipeline.Options{Owner: owner, Observer: observer})
	if err != nil {
		return err
	}
	working, fail := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	// The consumer outlives ctx, to be stopped in good order.
	work.Go(func() {
		if err := consumer.Run(context.WithoutCancel(ctx)); err != nil {
			fail(err)
		}
	})
	err = d.produceAll(working, events)
	switch {
	case err == nil && once:
		err = d.awaitEnd(working, stopped)
	case err == nil:
		err = d.produceGently(working)
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

func (d *Demo) awaitEnd(ctx context.Context, stopped func() map[string]error) error {
	ends, err := catchup.Now(ctx, d.parts.Source)
	if err != nil {
		return err
	}
	return ends.Wait(ctx, d.parts.Checkpoints, stopped)
}
