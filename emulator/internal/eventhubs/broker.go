// Package eventhubs is an event broker with the semantics of Azure Event Hubs and
// without a wire: hubs split into partitions, events with sequence numbers,
// offsets and enqueued times, consumer groups, readers with and without epochs.
// Package amqp puts the wire on it, package disklog keeps the events.
//
// Every partition has a log, and so an fsync, of its own. One log for the whole
// broker would let more appends share an fsync, but its readers would have to
// seek where those of a partition's own log read on, every event would need an
// index entry, and retention could not drop whole files. Nor would it be faster:
// the fsyncs of several logs proceed side by side. Eight appenders were measured
// to get as many single events into eight logs as into one, and up to twice as
// many batches of 100 (BenchmarkAppend).
package eventhubs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/dirlock"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

// Config describes an event hub.
type Config struct {
	Name           string   // as Azure allows: letters, digits, '.', '-' and '_', a letter or digit at both ends
	Partitions     int      // 1 to 1024
	ConsumerGroups []string // beside $Default; none means that every name is one
}

// Options adjusts a [Broker]. The zero value and nil work.
type Options struct {
	SegmentBytes int64            // size of a log's segment files; default 64 MiB, 1 MiB in memory
	Now          func() time.Time // default [time.Now]

	// Retention is how long an event is kept, RetentionBytes how much of a
	// partition, its newest events, with 40 bytes of overhead for each. By default
	// everything is. What is beyond may be there for some time yet: a hundredth of
	// Retention, though not more than a minute, and a second's events.
	Retention      time.Duration
	RetentionBytes int64
	// OnRetentionError is told why old events could not be removed. They are tried
	// again.
	OnRetentionError func(error)
}

// Broker is a set of event hubs. Its methods may be called concurrently.
type Broker struct {
	dir    string // "" if in memory
	lock   *dirlock.Lock
	now    func() time.Time
	log    disklog.Config
	mu     sync.RWMutex
	hubs   map[string]*Hub // by lower-case name
	order  []string        // lower-case names as configured
	closed bool

	retention *retention // nil: all events are kept
	closing   sync.Once
}

// Open opens the hubs whose events lie in dir, and creates those that are new.
// A hub may be opened with more partitions than it was created with; fewer is a
// [*ShrinkError]. Hubs in dir that are not asked for stay as they are. With dir
// "" the hubs are empty and live in memory until Close.
//
// One process can have a directory open at a time.
func Open(dir string, hubs []Config, opts *Options) (*Broker, error) {
	if opts == nil {
		opts = &Options{}
	}
	b := &Broker{dir: dir, now: opts.Now, hubs: make(map[string]*Hub)}
	if b.now == nil {
		b.now = time.Now
	}
	if err := opts.validateRetention(); err != nil {
		return nil, err
	}
	b.log = disklog.Config{SegmentBytes: opts.SegmentBytes, Now: b.now}
	if opts.RetentionBytes > 0 && opts.SegmentBytes == 0 {
		// Space comes free by whole segments.
		b.log.SegmentBytes = min(max(opts.RetentionBytes/8, 1<<20), 64<<20)
	}
	for _, c := range hubs {
		if err := c.validate(); err != nil {
			return nil, err
		}
	}
	if dir != "" {
		if err := disklog.MakeDir(dir); err != nil {
			return nil, fmt.Errorf("broker data: %w", err)
		}
		lock, err := dirlock.Acquire(dir)
		if err != nil {
			return nil, fmt.Errorf("broker data: %w", err)
		}
		b.lock = lock
	}
	for _, c := range hubs {
		key := strings.ToLower(c.Name)
		var h *Hub
		err := error(nil)
		if _, twice := b.hubs[key]; twice {
			err = fmt.Errorf("event hub %s is configured twice", c.Name)
		} else {
			h, err = b.openHub(c)
		}
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
		b.hubs[key] = h
		b.order = append(b.order, key)
	}
	if opts.Retention > 0 || opts.RetentionBytes > 0 {
		b.retention = newRetention(b, opts)
		go b.retention.run()
	}
	return b, nil
}

// Hub looks an event hub up, whatever the case of its name.
func (b *Broker) Hub(name string) (*Hub, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	h, ok := b.hubs[strings.ToLower(name)]
	return h, ok
}

// Hubs lists the event hubs in the order in which they were configured.
func (b *Broker) Hubs() []*Hub {
	b.mu.RLock()
	defer b.mu.RUnlock()
	hubs := make([]*Hub, len(b.order))
	for i, key := range b.order {
		hubs[i] = b.hubs[key]
	}
	return hubs
}

// Recreate deletes a hub and creates it again: empty, with a later creation
// time. What was looked up in the old one answers [ErrDeleted] from then on.
func (b *Broker) Recreate(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	key := strings.ToLower(name)
	old, ok := b.hubs[key]
	if !ok {
		return fmt.Errorf("event hub %q: %w", name, ErrUnknownHub)
	}
	created := b.timestamp()
	if !created.After(old.created) {
		created = old.created.Add(time.Millisecond)
	}
	h, err := b.createHub(old.config, created)
	if err != nil {
		return err
	}
	b.hubs[key] = h
	err = old.delete()
	if b.dir != "" {
		err = errors.Join(err, os.RemoveAll(b.incarnationDir(old.config, old.created)))
	}
	if err != nil {
		return fmt.Errorf("remove the old event hub %s: %w", old.name, err)
	}
	return nil
}

// Close closes all logs. Reads, appends and waits in progress end with
// [ErrClosed].
func (b *Broker) Close() error {
	b.closing.Do(b.retention.close)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	var errs []error
	for _, h := range b.hubs {
		errs = append(errs, h.close())
	}
	if b.lock != nil {
		errs = append(errs, b.lock.Unlock())
	}
	return errors.Join(errs...)
}

// timestamp is the time to the millisecond, the precision of Azure's creation and
// enqueued times.
func (b *Broker) timestamp() time.Time { return b.now().UTC().Truncate(time.Millisecond) }
