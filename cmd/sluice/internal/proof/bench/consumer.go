//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// eventsPerBatch is the largest batch of the loop by hand, unless the job says otherwise.
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
	Idle       bool   // no events come: do not sample the heap, which would keep the process busy
	Warm       int    // so many events of each partition, the first ones, are not timed
	Body       int    // bytes of a body, for contenders without a hub
	Batch      int    // events of the largest transaction; 0: each contender's default
	Profiles   string // prefix of the paths of profiles; empty for none
}

const (
	sluiceContender   = "sluice"
	observedContender = "sluice, observed" // with metrics, spans and the dashboard
	handContender     = "by hand"
	memoryContender   = "sluice from memory"
	aloneContender    = "database alone"
	readContender     = "read by hand"        // without a database, as the next two
	sdkContender      = "read, receiver: sdk" // a Source, with the SDK's receiver
	ownContender      = "read, receiver: own" // with our own

	noDatabase = "none"
)

// consume runs a contender's process.
func consume(ctx context.Context, p *parent, line []byte) error {
	var j job
	if err := json.Unmarshal(line, &j); err != nil {
		return err
	}
	run := map[string]func(context.Context, *job, *meter) error{
		sluiceContender: runSluice, observedContender: runSluice, handContender: runByHand, readContender: runByHand,
		memoryContender: runSluice, aloneContender: runAlone,
		sdkContender: runReader, ownContender: runReader,
	}[j.Contender]
	m := &meter{job: &j, parent: p}
	if err := run(ctx, &j, m); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", j.Contender, err), m.abandon())
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

// wait waits until all partitions wait. Later calls return at once, and all calls if no events
// come: the partitions of an idle process are acquired in more time than a log may take to open.
func (g *startBarrier) wait(ctx context.Context) error {
	g.mu.Lock()
	if g.left--; g.left == 0 {
		g.err = g.meter.start()
		close(g.open)
	}
	err := g.err
	g.mu.Unlock()
	if g.meter.job.Idle {
		return err
	}
	select {
	case <-g.open:
		return g.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// published is the time in the body of an event: when it was published. It is near the beginning,
// and reading it must cost much less than the consumer's own decoding.
func published(body []byte) (time.Time, error) {
	const name = `"at":"`
	from := bytes.Index(body, []byte(name)) + len(name)
	if from < len(name) || len(body) < from+len(timeLayout) {
		return time.Time{}, fmt.Errorf("an event has no time: %.100s", body)
	}
	return time.Parse(timeLayout, string(body[from:from+len(timeLayout)]))
}
