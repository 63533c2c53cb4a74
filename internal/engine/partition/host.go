package partition

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
)

// Host is what assignments need of the consumer that holds them. All of it is safe for concurrent
// use.
type Host struct {
	Settings *engine.Settings
	Source   driver.Source
	Leases   driver.LeaseStore
	Delivery Delivery
	Renewals Renewals
	Stopping context.Context // ends when the consumer is to stop
	Suspects chan struct{}   // a token: one event suspected of killing the process is tried at a time
	Copies   chan struct{}   // a token: dead letters of one partition are copied at a time
	Begun    *Begun

	// Describe asks the log for the topic, with the group as the stores spell it.
	Describe func(ctx context.Context) (driver.Topic, error)
	// RedrivesDue reports whether an assignment's partition may have redrives that are due.
	RedrivesDue func(ctx context.Context, a *Assignment) (bool, error)
	// Held returns how many partitions the consumer holds.
	Held func() int
	// Fail ends the consumer.
	Fail func(err error)
	// Ended is called when an assignment has released its lease, and why.
	Ended func(lease driver.Lease, cause error)
}

// Renewals decides when leases are renewed, and renews several at once if the store can.
type Renewals interface {
	// Due returns when a lease is renewed that should be renewed at a time: then, or a little
	// earlier.
	Due(at engine.Deadline) engine.Deadline
	// Pause returns how long to sleep before it is looked again whether a lease is due.
	Pause(tick time.Duration, due engine.Deadline) time.Duration
	// Together renews an assignment's lease with others that are due, and reports whether it has.
	// It takes no longer than left.
	Together(a *Assignment, left time.Duration) bool
}

// Delivery makes events take effect, as sluice.Delivery says.
type Delivery interface {
	// Deliver delivers a partition's events until the assignment ends, and
	// returns why.
	Deliver(a *Assignment) error
	// Redrive runs the redrives that are due on a partition, and nothing else.
	Redrive(a *Assignment) (applied, failed int, err error)
	// RedriveDue reports whether there are any.
	RedriveDue(ctx context.Context, group driver.Group, partition string) (bool, error)
	// Store returns the store of checkpoints and dead letters, nil if there is none.
	Store() any
}

// Begun is what a process remembers of partitions that it has had a checkpoint of. Its zero value
// is empty.
type Begun struct {
	mu   sync.Mutex
	list map[string]beganAt // by partition
}

type beganAt struct {
	incarnation string
	position    int64
}

// load returns what is remembered of a partition in an incarnation of the topic.
func (b *Begun) load(partition, incarnation string) (position int64, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	began, known := b.list[partition]
	return began.position, known && began.incarnation == incarnation
}

func (b *Begun) Store(partition, incarnation string, position int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.list == nil {
		b.list = map[string]beganAt{}
	}
	b.list[partition] = beganAt{incarnation, position}
}

// The methods with which the consumer acts on an assignment.

// ReopenOther has the log opened again if a reader is open that is of another incarnation of the
// topic.
func (a *Assignment) ReopenOther(incarnation string) {
	if r := a.reading.Load(); r != nil && r.incarnation != incarnation {
		r.buffer.fail(ErrReopen)
	}
}

// HandOver has the partition released when what is in progress is done.
func (a *Assignment) HandOver() { a.stop() }

// Leaving reports whether the partition is being released.
func (a *Assignment) Leaving() bool { return a.Idle.Err() != nil }

// AcquiredAt returns when the lease was acquired, by Clock.Elapsed.
func (a *Assignment) AcquiredAt() time.Duration { return a.Acquired }

// Delaying returns what the assignment waits for.
func (a *Assignment) Delaying() (list []string) {
	for _, t := range a.tracks.delaying() {
		if what, _, _, _ := t.load(); what != nil {
			list = append(list, what.what)
		}
	}
	return list
}

// ErrAskedTogether is the error of a request that another partition began, which reports it.
var ErrAskedTogether = errors.New("another partition's request has failed")
