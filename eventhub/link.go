package eventhub

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// parting bounds how long the broker is given to say goodbye.
const parting = 3 * time.Second

// link is one receiver link on one partition, over a connection of its own. It
// is used by one goroutine at a time, but for close.
type link struct {
	source    *Source
	partition string
	wire      *wire
	client    *azeventhubs.ConsumerClient
	receiver  *azeventhubs.PartitionClient
	asked     int // events asked for that have not come

	life   context.Context // ends with the link
	end    context.CancelFunc
	closed sync.Once
}

// attach opens a link with an epoch at a start, and asks for the first credit
// events. It returns once the link stands.
func (s *Source) attach(ctx context.Context, partition string, start azeventhubs.StartPosition, epoch int64, credit int) (*link, []*azeventhubs.ReceivedEventData, error) {
	path := fmt.Sprintf("%s/ConsumerGroups/%s/Partitions/%s", s.hub, s.cfg.ConsumerGroup, partition)
	l := &link{source: s, partition: partition, wire: newWire(s.dial, path)}
	l.life, l.end = context.WithCancel(context.Background())
	var err error
	if l.client, err = s.consumer(l.wire); err != nil {
		return nil, nil, fmt.Errorf("client: %w", err)
	}
	// Without prefetching by the SDK, which counts events and not bytes: credit
	// is granted by take.
	l.receiver, err = l.client.NewPartitionClient(partition, &azeventhubs.PartitionClientOptions{
		StartPosition: start, OwnerLevel: &epoch, Prefetch: -1,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("receiver: %w", err)
	}
	if err := s.adopt(l); err != nil {
		return nil, nil, err
	}

	bound, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	standing, stop := context.WithCancel(bound)
	defer stop()
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-l.wire.stands:
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
	case err == nil || cancelled(err) && l.wire.up():
		l.asked = credit - len(events)
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
	l.close(expired) // there is nothing to say goodbye to
	return nil, nil, err
}

// name is what messages call the link.
func (l *link) name() string { return fmt.Sprintf("hub %s, partition %s", l.source.hub, l.partition) }

// gone is what a Read on a closed link says.
func (l *link) gone() error { return fmt.Errorf("%s: the reader is closed", l.name()) }

// expired is how ReceiveEvents is asked for what is there already: it looks
// at the events received so far before it looks at its context.
var expired = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// take returns the events that have come, perhaps none, at most credit, and
// lets the broker send up to credit again once half of that is used.
func (l *link) take(credit int) ([]*azeventhubs.ReceivedEventData, error) {
	// The SDK grants the difference between what it is asked for and what was
	// granted before.
	if l.asked <= credit/2 {
		l.asked = credit
	}
	events, err := l.receiver.ReceiveEvents(expired, l.asked, nil)
	switch {
	case l.life.Err() != nil:
		return nil, l.gone()
	case err != nil && !cancelled(err):
		return nil, l.explain(err)
	}
	l.asked -= len(events)
	return events, nil
}

// linger lets a moment pass.
func (l *link) linger(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-l.life.Done():
	}
}

// wait returns the next event.
func (l *link) wait(ctx context.Context) ([]*azeventhubs.ReceivedEventData, error) {
	events, err := l.receiver.ReceiveEvents(ctx, 1, nil)
	switch {
	case err == nil:
		l.asked = max(0, l.asked-len(events))
		return events, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case l.life.Err() != nil:
		return nil, l.gone()
	}
	return nil, l.explain(err)
}

// close ends the link in good order, if the broker answers in time, and the
// connection in any case. It may be called again, and waits for the first call.
func (l *link) close(ctx context.Context) {
	l.closed.Do(func() {
		l.end()
		l.source.forget(l)
		ctx, cancel := context.WithTimeout(ctx, min(parting, l.source.cfg.Timeout))
		defer cancel()
		_ = l.receiver.Close(ctx) // closing the connection ends the link, too
		_ = l.client.Close(ctx)
	})
}
