package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/kafka"
)

const (
	// publishEvery bounds how often progress is published.
	publishEvery = 5 * time.Second
	// publishAll is how often partitions whose checkpoint stays are published again, because Kafka
	// forgets the offsets of groups without members (offsets.retention.minutes, a week by default).
	publishAll = time.Hour
	// publishTimeout bounds one request.
	publishTimeout = 15 * time.Second
)

// offsetCommitter is the part of a [kafka.Source] that a progressPublisher needs.
type offsetCommitter interface {
	ConsumerGroup(ctx context.Context, name string) (kafka.ConsumerGroup, error)
	CommitOffsets(ctx context.Context, name string, positions map[string]driver.Position) error
}

// progressPublisher publishes the checkpoints of the partitions that this process holds as offsets of
// a consumer group of Kafka, after they were stored. Only programs that show lag read them. It is a
// [sluice.Observer].
type progressPublisher struct {
	group string
	log   offsetCommitter
	next  sluice.Observer // gets failures; may be nil

	mu   sync.Mutex
	held map[string]driver.Position // the checkpoints of the partitions that are held
	due  map[string]driver.Position // those to publish

	failing bool // used by its goroutine only
	stop    context.CancelFunc
	ended   chan struct{}
}

// startPublishing returns a publisher, which works until close. It is refused if the group has
// members, whose offsets these are. If the brokers do not answer, it tries later.
func startPublishing(ctx context.Context, group string, log offsetCommitter, next sluice.Observer) (*progressPublisher, error) {
	asking, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	found, err := log.ConsumerGroup(asking, group)
	const named = 3
	switch members := found.Members; {
	case len(members) > 0:
		return nil, fmt.Errorf("progress_group %s: %w: %s: stop them, or name a group that no program reads in", group, kafka.ErrGroupActive, strings.Join(members[:min(len(members), named)], ", "))
	case errors.Is(err, sluice.ErrRefused):
		return nil, fmt.Errorf("progress_group: %w", err)
	}
	p := &progressPublisher{group: group, log: log, next: next, held: map[string]driver.Position{}, due: map[string]driver.Position{}, ended: make(chan struct{})}
	var working context.Context
	working, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	go p.run(working)
	return p, nil
}

// Observe implements [sluice.Observer].
func (p *progressPublisher) Observe(o sluice.Observation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch o.Kind {
	case sluice.KindClaimed, sluice.KindCommitted:
		if o.To != driver.Unset {
			p.held[o.Partition], p.due[o.Partition] = o.To, o.To
		}
	case sluice.KindReleased:
		delete(p.held, o.Partition) // what is due is published all the same
	case sluice.KindLost:
		delete(p.held, o.Partition)
		delete(p.due, o.Partition) // another owner may be further
	}
}

func (p *progressPublisher) run(ctx context.Context) {
	defer close(p.ended)
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	all := time.Now()
	for {
		select {
		case <-tick.C:
			if time.Since(all) >= publishAll {
				all = time.Now()
				p.mu.Lock()
				maps.Copy(p.due, p.held)
				p.mu.Unlock()
			}
			p.publish(ctx)
		case <-ctx.Done():
			p.publish(context.WithoutCancel(ctx))
			return
		}
	}
}

// publish publishes what is due. What fails stays due.
func (p *progressPublisher) publish(ctx context.Context) {
	p.mu.Lock()
	due := p.due
	p.due = map[string]driver.Position{}
	p.mu.Unlock()
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	err := p.log.CommitOffsets(ctx, p.group, due)
	if err == nil {
		p.failing = false
		return
	}
	p.mu.Lock()
	maps.Copy(due, p.due)
	p.due = due
	p.mu.Unlock()
	if p.failing || p.next == nil { // reported once, until it works again
		return
	}
	p.failing = true
	p.next.Observe(sluice.Observation{Kind: sluice.KindHookFailed, Time: time.Now(), Err: fmt.Errorf("publish progress to Kafka, tried again every %v: %w", publishEvery, err)})
}

// close publishes what is due, and ends the publisher.
func (p *progressPublisher) close(context.Context) error {
	p.stop()
	<-p.ended
	return nil
}
