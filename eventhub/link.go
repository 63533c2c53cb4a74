package eventhub

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// closeTimeout bounds how long close waits for the broker to detach the link.
const closeTimeout = 3 * time.Second

// link is one receiver link on one partition, over a connection of its own. It is
// used by one goroutine at a time, except for close.
type link struct {
	source    *Source
	partition string
	guard     *connectionGuard
	client    *azeventhubs.ConsumerClient
	receiver  *azeventhubs.PartitionClient
	credited  int  // events requested that have not come
	delivers  bool // an event has come

	life   context.Context // ends with the link
	end    context.CancelFunc
	closed sync.Once
}

// attach opens a link with an epoch at a start position, and requests the first
// credit events. It returns once the link is attached, with the events that came
// until then.
func (s *Source) attach(ctx context.Context, partition string, start azeventhubs.StartPosition, epoch int64, credit int) (*link, []*azeventhubs.ReceivedEventData, error) {
	path := fmt.Sprintf("%s/ConsumerGroups/%s/Partitions/%s", s.hub, s.cfg.ConsumerGroup, partition)
	l := &link{source: s, partition: partition, guard: newConnectionGuard(s.dial, path, s.cfg.PrefetchBytes)}
	l.life, l.end = context.WithCancel(context.Background())
	var err error
	if l.client, err = s.consumer(l.guard); err != nil {
		return nil, nil, fmt.Errorf("client: %w", err)
	}
	// Prefetching by the SDK is off, because it counts events and not bytes: take
	// grants the credit.
	l.receiver, err = l.client.NewPartitionClient(partition, &azeventhubs.PartitionClientOptions{
		StartPosition: start, OwnerLevel: &epoch, Prefetch: -1,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("receiver: %w", err)
	}
	if err := s.register(l); err != nil {
		return nil, nil, err
	}

	bound, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	standing, stop := context.WithCancel(bound)
	defer stop()
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-l.guard.attachedCh:
			stop()
		case <-l.life.Done():
			stop()
		case <-standing.Done():
		}
	})
	events, err := l.receiver.ReceiveEvents(standing, credit, nil)
	stop()
	watch.Wait()
	switch {
	case err == nil || cancelled(err) && l.guard.isUp():
		l.credited = credit
		l.came(events)
		return l, events, nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case l.life.Err() != nil:
		err = errClosed
	case bound.Err() != nil:
		err = s.explain(l.name(), fmt.Errorf("no link within %v", s.cfg.Timeout))
	default:
		err = l.explain(err)
	}
	l.close(endedContext) // there is no link to detach
	return nil, nil, err
}

// name returns the link's name in messages.
func (l *link) name() string { return l.source.partitionName(l.partition) }

// partitionName returns a partition's name in messages.
func (s *Source) partitionName(partition string) string {
	return fmt.Sprintf("hub %s, partition %s", s.hub, partition)
}

// closedError is the error of a Read on a closed link.
func (l *link) closedError() error { return fmt.Errorf("%s: the reader is closed", l.name()) }

// endedContext makes ReceiveEvents return what has arrived already: it checks the
// events received so far before it checks its context.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// take returns the events that have arrived, at most credit, perhaps none. Once half of
// the credit is used it lets the broker send up to credit again.
func (l *link) take(credit int) ([]*azeventhubs.ReceivedEventData, error) {
	// The SDK grants the difference between the number of events requested here
	// and what was granted before.
	if l.credited <= credit/2 {
		l.credited = credit
	}
	events, err := l.receiver.ReceiveEvents(endedContext, l.credited, nil)
	switch {
	case l.life.Err() != nil:
		return nil, l.closedError()
	case err != nil && !cancelled(err):
		return nil, l.explain(err)
	}
	l.came(events)
	return events, nil
}

// came counts events that were received.
func (l *link) came(events []*azeventhubs.ReceivedEventData) {
	l.credited = max(0, l.credited-len(events))
	l.delivers = l.delivers || len(events) > 0
}

// linger waits for d, or until ctx or the link ends.
func (l *link) linger(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-l.life.Done():
	}
}

// wait waits for the next event.
func (l *link) wait(ctx context.Context) ([]*azeventhubs.ReceivedEventData, error) {
	l.guard.intake.wait(true)
	defer l.guard.intake.wait(false)
	events, err := l.receiver.ReceiveEvents(ctx, 1, nil)
	switch {
	case err == nil:
		l.came(events)
		return events, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case l.life.Err() != nil:
		return nil, l.closedError()
	}
	return nil, l.explain(err)
}

// close detaches the link, if the broker answers in time, and closes the
// connection in any case. It may be called again, and waits for the first call.
func (l *link) close(ctx context.Context) {
	l.closed.Do(func() {
		l.end()
		l.source.unregister(l)
		ctx, cancel := context.WithTimeout(ctx, min(closeTimeout, l.source.cfg.Timeout))
		defer cancel()
		if l.guard.intake.close() {
			cancel() // the broker's answer comes after events for which there is no room
		}
		_ = l.receiver.Close(ctx) // closing the connection ends the link too
		_ = l.client.Close(ctx)
	})
}
