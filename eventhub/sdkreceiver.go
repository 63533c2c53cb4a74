package eventhub

import (
	"context"
	"fmt"
	"sync"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// sdkReceiver receives with the SDK's client, whose connection a connectionGuard watches.
type sdkReceiver struct {
	link      *link
	guard     *connectionGuard
	client    *azeventhubs.ConsumerClient
	partition *azeventhubs.PartitionClient // set by open; mu guards it
	credited  int                          // events requested that have not come

	mu     sync.Mutex
	closed bool
}

func newSDKReceiver(l *link) (*sdkReceiver, error) {
	r := &sdkReceiver{link: l, guard: newConnectionGuard(l.source.dial, l.path, &l.intake)}
	var err error
	if r.client, err = l.source.consumer(r.guard); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return r, nil
}

// open implements receiver.
func (r *sdkReceiver) open(ctx context.Context, start azeventhubs.StartPosition, epoch int64, credit int) ([]*driver.Event, error) {
	// Prefetching by the SDK is off, because it counts events and not bytes: take
	// grants the credit.
	options := &azeventhubs.PartitionClientOptions{StartPosition: start, Prefetch: -1}
	if epoch != driver.NoEpoch {
		options.OwnerLevel = &epoch
	}
	partition, err := r.client.NewPartitionClient(r.link.partition, options)
	if err != nil {
		return nil, fmt.Errorf("receiver: %w", err)
	}
	if !r.keep(partition) {
		return nil, errClosed
	}
	standing, stop := context.WithCancel(ctx)
	defer stop()
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-r.guard.attachedCh:
			stop()
		case <-standing.Done():
		}
	})
	events, err := partition.ReceiveEvents(standing, credit, nil)
	stop()
	watch.Wait()
	if err != nil && !(cancelled(err) && r.guard.isUp()) {
		return nil, err
	}
	r.credited = credit
	return r.convert(events), nil
}

// keep notes the partition's client for close, unless that was called.
func (r *sdkReceiver) keep(partition *azeventhubs.PartitionClient) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.partition = partition
	return !r.closed
}

// take implements receiver. With an ended context, ReceiveEvents returns what has arrived: it
// checks the events received so far before it checks its context.
func (r *sdkReceiver) take(credit int) ([]*driver.Event, error) {
	// The SDK grants the difference between the number of events requested here
	// and what was granted before.
	if r.credited <= credit/2 {
		r.credited = credit
	}
	events, err := r.partition.ReceiveEvents(endedContext, r.credited, nil)
	if err != nil && !cancelled(err) {
		return nil, err
	}
	return r.convert(events), nil
}

// wait implements receiver.
func (r *sdkReceiver) wait(ctx context.Context) ([]*driver.Event, error) {
	events, err := r.partition.ReceiveEvents(ctx, 1, nil)
	if err != nil {
		return nil, err
	}
	return r.convert(events), nil
}

// convert converts events that were received.
func (r *sdkReceiver) convert(in []*azeventhubs.ReceivedEventData) []*driver.Event {
	r.credited = max(0, r.credited-len(in))
	events := make([]*driver.Event, len(in))
	var memory eventMemory
	for i := range in {
		events[i] = memory.next(len(in[i].Body), len(in)-i)
		convert(events[i], in[i], r.link.partition)
		in[i] = nil // the SDK's message with the body
	}
	return events
}

// failure implements receiver.
func (r *sdkReceiver) failure() failure {
	f := failure{cause: r.guard.cause(), undecodable: r.guard.undecodable(), sequence: -1, amid: true, attached: r.guard.isUp()}
	if late := r.guard.refusal(); late != nil {
		f.refusal = late
	}
	return f
}

// close implements receiver.
func (r *sdkReceiver) close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	partition := r.partition
	r.mu.Unlock()
	if partition != nil {
		_ = partition.Close(ctx) // closing the connection ends the link too
	}
	_ = r.client.Close(ctx)
}
