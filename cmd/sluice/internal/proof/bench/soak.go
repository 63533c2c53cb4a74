//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pipeline"
)

// soakJob is the work of a consumer process that runs until it is ended, whatever fails meanwhile.
type soakJob struct {
	Hub        string // connection string
	Partitions string // of a pipeline file: all or balanced
	Database   string
	Log        string // file for the engine's log, to which it is appended
}

// reportEvery is how often such a process reports.
const reportEvery = 250 * time.Millisecond

// soakLine is what it reports.
type soakLine struct {
	Committed map[string]int64 `json:"committed"` // by partition: up to which event
	Published spread           `json:"published_to_committed"`
}

// numbered makes the body of a partition's event n.
func numbered(n, size int, at time.Time) []byte {
	body := fmt.Appendf(make([]byte, 0, size), `{"at":"%s","number":%d,"payload":"`, at.UTC().Format(timeLayout), n)
	body = append(body, padding[:max(0, min(len(padding), size-len(body)-len(`"}`)))]...)
	return append(body, `"}`...)
}

// soakTable holds the id of each event, and no payload: 100,000,000 events take 7 GB.
const soakTable = `CREATE TABLE soaked (hub_partition integer, number bigint, at timestamptz)`

const soakPipeline = `
source:
  eventhub: {connection: "${HUB}", hub: bench}
partitions: ${PARTITIONS}
database: "${DATABASE_URL}"
target:
  insert:
    table: soaked
    columns:
      hub_partition: {from: partition, type: integer}
      number: {from: body.number, type: integer}
      at: {from: body.at, type: timestamp}
`

// soak runs a pipeline as `sluice run` does until the parent ends it.
func soak(ctx context.Context, p *parent, line []byte) (err error) {
	var j soakJob
	if err := json.Unmarshal(line, &j); err != nil {
		return err
	}
	file, err := os.OpenFile(j.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	parsed, err := pipeline.Parse("soak.yaml", []byte(soakPipeline), func(name string) (string, bool) {
		value, ok := map[string]string{"HUB": j.Hub, "PARTITIONS": j.Partitions, "DATABASE_URL": j.Database}[name]
		return value, ok
	})
	if err != nil {
		return err
	}
	parts, err := parsed.Open(ctx)
	if err != nil {
		return err
	}
	defer parts.Close(context.WithoutCancel(ctx))
	w := &soakWatch{committed: map[string]int64{}}
	log := slog.New(slog.NewTextHandler(file, nil)).With("pid", os.Getpid())
	options := &pipeline.Options{Observer: driver.Observers(sluice.LogObserver(log), w)}
	options.Hooks.Batch = func(_ context.Context, b sluice.Batch) error { return w.timed(b.Events) }
	c, err := parts.Consumer(ctx, options)
	if err != nil {
		return err
	}
	var reporting sync.WaitGroup
	running, stop := context.WithCancel(ctx)
	defer reporting.Wait()
	defer stop()
	reporting.Go(func() {
		for tick := time.NewTicker(reportEvery); ; {
			select {
			case <-tick.C:
			case <-running.Done():
				tick.Stop()
				return
			}
			if p.send(w.line()) != nil {
				return // the parent has ended
			}
		}
	})
	if err := c.Run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// soakWatch collects what a process reports. It is safe for concurrent use.
type soakWatch struct {
	mu        sync.Mutex
	committed map[string]int64
	published []time.Duration
}

// Observe implements [driver.Observer].
func (w *soakWatch) Observe(o driver.Observation) {
	if o.Kind != driver.KindCommitted {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.committed[o.Partition] = o.To.Sequence + 1
}

// timed times events that are committed now.
func (w *soakWatch) timed(events []*sluice.Event) error {
	now := time.Now()
	took := make([]time.Duration, len(events))
	for i, e := range events {
		at, err := published(e.Body)
		if err != nil {
			return err
		}
		took[i] = now.Sub(at)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published = append(w.published, took...)
	return nil
}

// line is what has happened since the last one.
func (w *soakWatch) line() soakLine {
	w.mu.Lock()
	took := w.published
	w.published = nil
	l := soakLine{Committed: maps.Clone(w.committed)}
	w.mu.Unlock()
	l.Published = spreadOf(took)
	return l
}
