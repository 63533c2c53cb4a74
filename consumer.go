package sluice

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"
)

// Partitions is how many partitions a consumer takes. It never takes more, and
// nobody takes them from it while it lives.
type Partitions int

// AllPartitions takes every partition that is free.
const AllPartitions Partitions = -1

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Owner names this process in leases and checkpoints; it must be unique
	// among processes, also across restarts. Default: host name, process id
	// and a random part.
	Owner string
	// Start is where a partition without a checkpoint begins. Default: Earliest.
	Start Start
	// LeaseFor is how long a lease lasts without renewal, and RenewEvery how
	// old it gets before it is renewed. LeaseFor must be at least three times
	// RenewEvery. Defaults: 30 s and 10 s; RenewEvery defaults to a third of
	// LeaseFor.
	LeaseFor, RenewEvery time.Duration
	// AssignEvery is the time between two takings of a partition: at most one
	// each. Default: 1 s.
	AssignEvery time.Duration
	// MaxBatch is the largest number of events in a batch. Default: 1,000.
	MaxBatch int
	// Attempts is how often a failing event is tried before it becomes a dead
	// letter; rejected events are tried once. Default: 3.
	Attempts int
	// RetryMin and RetryMax bound the waits between attempts and after
	// outages; a wait doubles from one to the next and is varied at random by
	// a quarter. Defaults: 100 ms and 10 s.
	RetryMin, RetryMax time.Duration
	// RedriveEvery is how often an owner looks for dead letters whose retry is
	// due. Default: 1 s.
	RedriveEvery time.Duration
	// BodyLimit is the largest body in bytes, properties included, that a dead
	// letter stores; of a larger one only the pointer is kept, and a retry
	// reads the log. Default: 256 KiB; negative: bodies are never stored.
	BodyLimit int
	// Hooks are called at the turns of a partition's life.
	Hooks Hooks
	// Observer is told everything.
	Observer Observer
	// Clock and Seed replace time and chance in tests. Defaults: the system's.
	Clock Clock
	Seed  uint64
}

func (cfg *Config) withDefaults() (Config, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.Owner == "" {
		c.Owner = newOwner()
	}
	c.LeaseFor = cmp.Or(c.LeaseFor, 30*time.Second)
	c.RenewEvery = cmp.Or(c.RenewEvery, c.LeaseFor/3)
	c.AssignEvery = cmp.Or(c.AssignEvery, time.Second)
	c.MaxBatch = cmp.Or(c.MaxBatch, 1000)
	c.Attempts = cmp.Or(c.Attempts, 3)
	c.RetryMin = cmp.Or(c.RetryMin, 100*time.Millisecond)
	c.RetryMax = cmp.Or(c.RetryMax, max(10*time.Second, c.RetryMin))
	c.RedriveEvery = cmp.Or(c.RedriveEvery, time.Second)
	c.BodyLimit = cmp.Or(c.BodyLimit, 256<<10)
	if c.Clock == nil {
		c.Clock = systemClock{origin: time.Now()}
	}
	if c.Seed == 0 {
		var b [8]byte
		rand.Read(b[:])
		c.Seed = binary.NativeEndian.Uint64(b[:])
	}
	switch {
	case c.LeaseFor < 0 || c.RenewEvery <= 0 || c.LeaseFor < 3*c.RenewEvery:
		return c, fmt.Errorf("lease of %v renewed every %v: a lease must last at least three renewals, so that one lost renewal does not lose it", c.LeaseFor, c.RenewEvery)
	case c.AssignEvery < 0:
		return c, fmt.Errorf("assign every %v: must be positive", c.AssignEvery)
	case c.MaxBatch < 0:
		return c, fmt.Errorf("batch of at most %d events: must be positive", c.MaxBatch)
	case c.Attempts < 0:
		return c, fmt.Errorf("%d attempts: must be positive", c.Attempts)
	case c.RetryMin < 0 || c.RetryMax < c.RetryMin:
		return c, fmt.Errorf("waits from %v to %v between attempts: must be positive and in order", c.RetryMin, c.RetryMax)
	case c.RedriveEvery < 0:
		return c, fmt.Errorf("redrive every %v: must be positive", c.RedriveEvery)
	}
	return c, nil
}

func newOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var b [4]byte
	rand.Read(b[:])
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(b[:]))
}

// Consumer reads its partitions of a topic and delivers their events.
type Consumer struct {
	source   Source
	leases   LeaseStore
	delivery Delivery
	want     Partitions
	cfg      Config
}

// New makes a consumer that takes so many partitions (a positive number, or
// [AllPartitions]) of the source's topic. A nil cfg takes every default.
func New(source Source, leases LeaseStore, delivery Delivery, partitions Partitions, cfg *Config) (*Consumer, error) {
	if partitions != AllPartitions && partitions <= 0 {
		return nil, fmt.Errorf("%d partitions: state a positive number or AllPartitions", partitions)
	}
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Consumer{source: source, leases: leases, delivery: delivery, want: partitions, cfg: c}, nil
}

// Run takes partitions and delivers their events until the consumer is
// stopped. It returns nil after [Consumer.Stop]. When ctx ends first it stops
// promptly: handlers are cancelled, nothing half-done is committed, leases are
// given back, and it returns ctx's error. It returns early only if the source
// refuses to describe the topic ([ErrRefused]). A consumer runs once.
func (c *Consumer) Run(ctx context.Context) error { return errors.New("under construction") }

// Stop ends Run in good order: no partition is taken any more, batches in
// progress are finished and committed, leases are given back. If ctx ends
// first, the batches still in progress are cancelled and Stop returns ctx's
// error. It returns once Run has let go of everything. It may be called more
// than once, and before Run.
func (c *Consumer) Stop(ctx context.Context) error { return nil }

// Redrive runs the retries that are due on partitions that nobody owns,
// taking each such partition's lease for the time; partitions that are owned
// are their owners' business. It returns how many dead letters were applied.
// It must not be called on a consumer that runs.
func (c *Consumer) Redrive(ctx context.Context) (int, error) { return 0, nil }
