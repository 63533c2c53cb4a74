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

// job is what a consumer process has to do: read each partition of a hub up to
// its end, or for as long as it takes to get so many events of each.
type job struct {
	Contender  string
	Hub        string // connection string
	Partitions int
	Events     int    // of each partition
	Database   string // URL as in a pipeline file; none for a contender that only reads
	Raw        bool   // write bodies as they are, without decoding
	Live       bool   // events are published meanwhile: measure how long each takes
	Profiles   string // path and the names' beginning, if any are wanted
}

const (
	sluiceContender = "sluice"
	seenContender   = "sluice, looked at" // with metrics, spans and the dashboard
	handContender   = "by hand"
	readContender   = "read only" // by hand, without a database
)

// consume is the process of a contender.
func consume(ctx context.Context, p *parent, line []byte) error {
	var j job
	if err := json.Unmarshal(line, &j); err != nil {
		return err
	}
	run := map[string]func(context.Context, *job, *meter) error{
		sluiceContender: runSluice, seenContender: runSluice, handContender: runByHand, readContender: runByHand,
	}[j.Contender]
	m := &meter{job: &j, parent: p}
	if err := run(ctx, &j, m); err != nil {
		return fmt.Errorf("%s: %w", j.Contender, err)
	}
	return p.say(m.figures)
}

// gate opens for all partitions at once, when the last has arrived; the clock
// runs from then.
type gate struct {
	meter *meter
	mu    sync.Mutex
	left  int
	open  chan struct{}
	err   error
}

func newGate(partitions int, m *meter) *gate {
	return &gate{meter: m, left: partitions, open: make(chan struct{})}
}

// pass waits until the gate opens. Whoever passes again does so at once.
func (g *gate) pass(ctx context.Context) error {
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

// published is the time that a reading carries.
func published(body []byte) (time.Time, error) {
	var r struct {
		At time.Time `json:"at"`
	}
	err := json.Unmarshal(body, &r)
	return r.At, err
}
