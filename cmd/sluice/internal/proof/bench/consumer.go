//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// eventsPerBatch is the largest batch of either contender.
const eventsPerBatch = 1000

// job is the work of a consumer process: to read so many events of each
// partition of a hub.
type job struct {
	Contender  string
	Hub        string // connection string
	Partitions int
	Events     int    // of each partition
	Database   string // URL as in a pipeline file; empty for a contender that only reads
	Raw        bool   // write bodies as they are, without decoding
	Live       bool   // events are published meanwhile: measure how long each takes
	Profiles   string // prefix of the paths of profiles; empty for none
}

const (
	sluiceContender   = "sluice"
	observedContender = "sluice, observed" // with metrics, spans and the dashboard
	handContender     = "by hand"
	readContender     = "read only" // by hand, without a database
)

// consume runs a contender's process.
func consume(ctx context.Context, p *parent, line []byte) error {
	var j job
	if err := json.Unmarshal(line, &j); err != nil {
		return err
	}
	run := map[string]func(context.Context, *job, *meter) error{
		sluiceContender: runSluice, observedContender: runSluice, handContender: runByHand, readContender: runByHand,
	}[j.Contender]
	m := &meter{job: &j, parent: p}
	if err := run(ctx, &j, m); err != nil {
		return fmt.Errorf("%s: %w", j.Contender, err)
	}
	return p.send(m.stats)
}

// startBarrier holds the partitions back until all of them wait at it, then
// starts the clock and lets all of them continue.
type startBarrier struct {
	meter *meter
	mu    sync.Mutex
	left  int
	open  chan struct{}
	err   error
}

func newStartBarrier(partitions int, m *meter) *startBarrier {
	return &startBarrier{meter: m, left: partitions, open: make(chan struct{})}
}

// wait waits until all partitions wait. Later calls return at once.
func (g *startBarrier) wait(ctx context.Context) error {
	g.mu.Lock()
	if g.left--; g.left == 0 {
		g.err = g.meter.start()
		close(g.open)
	}
	g.mu.Unlock()
	select {
	case <-g.open:
		return g.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// published is the time in the body of an event: when it was published.
func published(body []byte) (time.Time, error) {
	var r struct {
		At time.Time `json:"at"`
	}
	err := json.Unmarshal(body, &r)
	return r.At, err
}
