package eventhubs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/datadir"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

// Config describes an event hub.
type Config struct {
	Name           string   // as Azure allows: letters, digits, '.', '-' and '_', a letter or digit at both ends
	Partitions     int      // 1 to 1024
	ConsumerGroups []string // besides $Default; if empty, every name is a consumer group
}

// Options adjusts a [Broker]. The zero value and nil work.
type Options struct {
	SegmentBytes int64            // size of a log's segment files; default 64 MiB, 1 MiB in memory
	Now          func() time.Time // default [time.Now]

	// Retention is how long events are kept, RetentionBytes how many bytes of a
	// partition's newest events, with 40 bytes of overhead per event. By default
	// all events are kept. Events are removed with a delay: a hundredth of
	// Retention, at most a minute; for RetentionBytes a second.
	Retention      time.Duration
	RetentionBytes int64
	// OnRetentionError is called with the error if old events could not be removed.
	// The removal is retried.
	OnRetentionError func(error)
}

// Broker is a set of event hubs. Its methods may be called concurrently.
type Broker struct {
	dir    string // "" if in memory
	lock   *datadir.DirLock
	now    func() time.Time
	log    disklog.Config
	mu     sync.RWMutex
	hubs   map[string]*Hub // by lower-case name
	order  []string        // lower-case names as configured
	closed bool

	retention *retention // nil: all events are kept
	closing   sync.Once
}

// Open opens the hubs stored in dir, and creates those that don't exist. A hub may be
// opened with more partitions than it was created with; fewer is a [*ShrinkError].
// Other hubs in dir are not touched. With dir "" the hubs are empty and live in
// memory until Close.
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
		// Only whole segments free space.
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
		lock, err := datadir.Lock(dir)
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
			err = fmt.Errorf("event hub %s is configured twice: remove one, names are case-insensitive", c.Name)
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

// Hub returns an event hub by its name, which is case-insensitive.
func (b *Broker) Hub(name string) (*Hub, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	h, ok := b.hubs[strings.ToLower(name)]
	return h, ok
}

// Hubs returns the event hubs in the order of their configuration.
func (b *Broker) Hubs() []*Hub {
	b.mu.RLock()
	defer b.mu.RUnlock()
	hubs := make([]*Hub, len(b.order))
	for i, key := range b.order {
		hubs[i] = b.hubs[key]
	}
	return hubs
}

// Recreate deletes a hub and creates it again, empty and with a later creation time.
// Partitions of the old one return [ErrDeleted] from then on.
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

// timestamp returns the time in whole milliseconds, the precision of Azure's creation
// and enqueued times.
func (b *Broker) timestamp() time.Time { return b.now().UTC().Truncate(time.Millisecond) }
