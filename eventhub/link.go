package eventhub

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/memory"
)

// closeTimeout bounds how long close waits for the broker to detach the link.
const closeTimeout = 3 * time.Second

// link is one receiver link on one partition, over a connection of its own. It is
// used by one goroutine at a time, except for close.
type link struct {
	source    *Source
	partition string
	path      string // the source address
	intake    intake // counts what the connection brings
	receiver  receiver
	delivers  bool // an event has come

	life   context.Context // ends with the link
	end    context.CancelFunc
	closed sync.Once
}

// receiver does the AMQP of a link: the SDK's client, or our own. It is used by one goroutine at a
// time, except for close.
type receiver interface {
	// open connects, attaches the link, and requests the first credit events. It returns the
	// events that came until the link was attached.
	open(ctx context.Context, start azeventhubs.StartPosition, epoch int64, credit int) ([]*driver.Event, error)
	// take returns the events that have arrived, perhaps none. Once half of the credit is used it
	// lets the broker send up to credit again.
	take(credit int) ([]*driver.Event, error)
	// wait waits for the next events.
	wait(ctx context.Context) ([]*driver.Event, error)
	// failure returns what is known about the link's end beside the error.
	failure() failure
	// close detaches the link, if the broker answers before ctx ends, and closes the connection.
	// It may be called while open runs.
	close(ctx context.Context)
}

// failure is what a receiver knows about the end of its link.
type failure struct {
	cause       error  // that of the connection, or errDetached; nil if neither has failed
	refusal     error  // why the broker has detached the link after it was attached; nil if it has not
	undecodable string // why an event could not be decoded; empty if it could
	sequence    int64  // that event's number; -1 if it is not known
	amid        bool   // events after that one may have been returned
	attached    bool   // the link was attached
}

// attach opens a link with an epoch at a start position, and requests the first
// credit events. It returns once the link is attached, with the events that came
// until then.
func (s *Source) attach(ctx context.Context, partition string, start azeventhubs.StartPosition, epoch int64, credit int) (*link, []*driver.Event, error) {
	l := &link{
		source: s, partition: partition, path: fmt.Sprintf("%s/ConsumerGroups/%s/Partitions/%s", s.hub, s.cfg.ConsumerGroup, partition),
		intake: intake{limit: s.cfg.PrefetchBytes, startAfresh: s.startAfresh, memory: memory.FromContext(ctx).ReceivedAccount()},
	}
	l.life, l.end = context.WithCancel(context.Background())
	var err error
	if l.receiver, err = s.receiver(l); err != nil {
		return nil, nil, err
	}
	if err := s.register(l); err != nil {
		return nil, nil, err
	}
	bound, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	defer context.AfterFunc(l.life, cancel)()
	l.intake.wait(true) // the handshake may be larger than its limit
	events, err := l.receiver.open(bound, start, epoch, credit)
	l.intake.wait(false)
	switch {
	case err == nil:
		l.delivers = len(events) > 0
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

// receiver returns the receiver of the kind that the configuration names.
func (s *Source) receiver(l *link) (receiver, error) {
	if s.cfg.Receiver == OwnReceiver {
		return &ownReceiver{link: l}, nil
	}
	return newSDKReceiver(l)
}

// name returns the link's name in messages.
func (l *link) name() string { return l.source.partitionName(l.partition) }

// partitionName returns a partition's name in messages.
func (s *Source) partitionName(partition string) string {
	return fmt.Sprintf("hub %s, partition %s", s.hub, partition)
}

// closedError is the error of a Read on a closed link.
func (l *link) closedError() error { return fmt.Errorf("%s: the reader is closed", l.name()) }

// endedContext is for what must not wait.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// take returns the events that have arrived, perhaps none, and requests more up to credit.
func (l *link) take(credit int) ([]*driver.Event, error) {
	events, err := l.receiver.take(credit)
	switch {
	case l.life.Err() != nil:
		return nil, l.closedError()
	case err != nil:
		return nil, l.explain(err)
	}
	l.delivers = l.delivers || len(events) > 0
	return events, nil
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

// wait waits for the next events.
func (l *link) wait(ctx context.Context) ([]*driver.Event, error) {
	l.intake.wait(true)
	defer l.intake.wait(false)
	events, err := l.receiver.wait(ctx)
	switch {
	case err == nil:
		l.delivers = true
		return events, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case l.life.Err() != nil:
		return nil, l.closedError()
	}
	return nil, l.explain(err)
}

// waitFor is wait for at most d; it returns no events and no error if none come. The time is waited
// in parts, of which each begins after the one before: a pause of this process longer than d passes
// one part at most, so that what has come meanwhile is found in the next.
func (l *link) waitFor(ctx context.Context, d time.Duration) ([]*driver.Event, error) {
	const parts = 4
	for range parts {
		part, cancel := context.WithTimeout(ctx, d/parts)
		events, err := l.wait(part)
		over := err != nil && err == part.Err()
		cancel()
		if !over || ctx.Err() != nil {
			return events, err
		}
	}
	return nil, nil
}

// close detaches the link, if the broker answers in time, and closes the
// connection in any case. It may be called again, and waits for the first call.
func (l *link) close(ctx context.Context) {
	l.closed.Do(func() {
		l.end()
		l.source.unregister(l)
		ctx, cancel := context.WithTimeout(ctx, min(l.source.closeTimeout, l.source.cfg.Timeout))
		defer cancel()
		if l.intake.close() {
			cancel() // the broker's answer comes after events for which there is no room
		}
		l.receiver.close(ctx)
	})
}

// allocatedTogether is how many bytes of events share an allocation. With what the messages of our
// own receiver share, an event that is in use keeps less than 64 KiB of others.
const allocatedTogether = 16 << 10

// eventMemory allocates several events at once, but not many bytes: one event keeps the others in
// memory.
type eventMemory struct{ free []driver.Event }

// next returns an event whose message has size bytes, of which left are still to be allocated.
func (m *eventMemory) next(size, left int) *driver.Event {
	if len(m.free) == 0 {
		m.free = make([]driver.Event, min(max(1, allocatedTogether/(overhead+size)), left))
	}
	e := &m.free[0]
	m.free = m.free[1:]
	return e
}
