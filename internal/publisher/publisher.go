// Package publisher publishes the checkpoints of the partitions that a process holds to a place
// that only other programs read, after they were stored.
package publisher

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// finalTimeout bounds the publication at the end, so that a stop does not wait long for a place
// that does not answer.
const finalTimeout = 5 * time.Second

// Checkpoint is where a partition stands.
type Checkpoint struct {
	Position driver.Position
	Epoch    int64 // of the lease of the owner that stored it
	Held     bool  // this process still has that lease, as far as it knows
}

// Config says what is published, and when.
type Config struct {
	// What names the publication in errors, such as "publish progress to Kafka".
	What string
	// Every is the time between two publications.
	Every time.Duration
	// Again, if it is not 0, is the time after which checkpoints that stay are published again.
	Again time.Duration
	// Timeout bounds one publication.
	Timeout time.Duration
	// Publish publishes checkpoints, by partition, and deletes from due those that need no other
	// attempt. It is called by one goroutine at a time. Partitions that are lost meanwhile are not
	// tried again.
	Publish func(ctx context.Context, due map[string]Checkpoint) error
	// Observer gets a failure as [driver.KindHookFailed], once until a publication succeeds. It may
	// be nil.
	Observer driver.Observer
}

// Publisher is a [driver.Observer] that publishes checkpoints. It never delays the delivery. It is
// safe for concurrent use.
type Publisher struct {
	cfg Config

	mu   sync.Mutex
	held map[string]Checkpoint // of the partitions that are held; Unset before the start is stored
	due  map[string]Checkpoint // those to publish

	failing bool // used by its goroutine only
	stop    context.CancelFunc
	ended   chan struct{}
}

// Start returns a publisher, which works until Close.
func Start(cfg Config) *Publisher {
	p := &Publisher{cfg: cfg, held: map[string]Checkpoint{}, due: map[string]Checkpoint{}, ended: make(chan struct{})}
	var working context.Context
	working, p.stop = context.WithCancel(context.Background())
	go p.run(working)
	return p
}

// Observe implements [driver.Observer].
func (p *Publisher) Observe(o driver.Observation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch o.Kind {
	case driver.KindClaimed, driver.KindCommitted:
		p.stored(&o)
	case driver.KindOpened:
		// A start is stored before the first event is read. Who goes on from here needs it: without
		// a checkpoint, a processor begins where its own setting says, which may be the end.
		if p.held[o.Partition] == (Checkpoint{driver.Unset, o.Epoch, true}) {
			p.stored(&o)
		}
	case driver.KindReleased:
		delete(p.held, o.Partition)
		if c, ok := p.due[o.Partition]; ok { // it is published all the same
			c.Held = false
			p.due[o.Partition] = c
		}
	case driver.KindLost:
		delete(p.held, o.Partition)
		delete(p.due, o.Partition) // another owner may be further
	}
}

// stored takes note of a stored checkpoint.
func (p *Publisher) stored(o *driver.Observation) {
	c := Checkpoint{o.To, o.Epoch, true}
	p.held[o.Partition] = c
	if c.Position != driver.Unset {
		p.due[o.Partition] = c
	}
}

func (p *Publisher) run(ctx context.Context) {
	defer close(p.ended)
	tick := time.NewTicker(p.cfg.Every)
	defer tick.Stop()
	all := time.Now()
	for {
		select {
		case <-tick.C:
			if p.cfg.Again > 0 && time.Since(all) >= p.cfg.Again {
				all = time.Now()
				p.mu.Lock()
				maps.Copy(p.due, p.held)
				maps.DeleteFunc(p.due, func(_ string, c Checkpoint) bool { return c.Position == driver.Unset })
				p.mu.Unlock()
			}
			p.publish(ctx, p.cfg.Timeout)
		case <-ctx.Done():
			p.publish(context.WithoutCancel(ctx), min(p.cfg.Timeout, finalTimeout))
			return
		}
	}
}

// publish publishes what is due. What fails stays due.
func (p *Publisher) publish(ctx context.Context, timeout time.Duration) {
	p.mu.Lock()
	tried := maps.Clone(p.due)
	p.mu.Unlock()
	if len(tried) == 0 {
		return
	}
	left := maps.Clone(tried)
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := p.cfg.Publish(limited, left)
	p.mu.Lock()
	for partition, c := range tried {
		now := p.due[partition]
		if _, failed := left[partition]; !failed && now.Position == c.Position && now.Epoch == c.Epoch {
			delete(p.due, partition) // unless there is a newer one
		}
	}
	p.mu.Unlock()
	switch {
	case err == nil:
		p.failing = false
		return
	case ctx.Err() != nil: // stopped: it is published once more
		return
	case p.failing || p.cfg.Observer == nil:
		return
	}
	p.failing = true
	p.cfg.Observer.Observe(driver.Observation{Kind: driver.KindHookFailed, Time: time.Now(), Err: fmt.Errorf("%s, tried again every %v: %w", p.cfg.What, p.cfg.Every, err)})
}

// Close publishes what is due, and ends the publisher. It waits for 5 seconds at most for a place
// that does not answer.
func (p *Publisher) Close(context.Context) error {
	p.stop()
	<-p.ended
	return nil
}
