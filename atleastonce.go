package sluice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/stream"
)

// Ordering says which records [AtLeastOnce] never writes at the same time.
type Ordering uint8

// The orderings. Under each of them, dead letters that are redriven come late. Only
// [KeyHold] keeps an order among them.
const (
	// OrderKey: records of one key are written one after the other, in the log's
	// order; records without a key in any order. A record's key is its event's
	// partition key; see [Keyed] for another.
	OrderKey Ordering = iota
	// OrderPartition: a partition's records are written one after the other.
	OrderPartition
	// OrderNone: records are written in any order.
	OrderNone
)

// KeyPolicy says what happens to later events that have a dead letter's partition
// key.
type KeyPolicy uint8

// The policies.
const (
	// KeyContinue: they are written.
	KeyContinue KeyPolicy = iota
	// KeyHold: they become dead letters too, unwritten, until no dead letter with
	// the key is left but discarded ones. A dead letter is redriven only if no earlier one
	// of its key, of the same partition and incarnation of the topic, is left but
	// discarded ones: its redrive fails otherwise. So a redrive of all of them
	// applies them in order, also over restarts, unless Order is OrderNone or
	// the records have keys of their own ([Keyed]). An empty key holds nothing.
	KeyHold
)

// AtLeastOnceConfig holds what has a default in [AtLeastOnce]. The zero value is
// ready to use.
type AtLeastOnceConfig struct {
	// Order says which records are never in flight together. Default: OrderKey.
	Order Ordering
	// Rate is how many records a second may be sent, retries included. Several
	// consumers may share one. Default: no limit.
	Rate *Rate
	// CheckpointEvery is the time between two checkpoints. Default: 5 s.
	CheckpointEvery time.Duration
	// MaxEvents and MaxBytes are how much may be in flight, in events and in bytes
	// of their bodies and properties. Each partition gets an equal share; when its
	// share is used up, reading stops. A partition with less than its share of
	// bytes in flight admits at least one event, of any size. What is read ahead is
	// not in flight: see [Config].PrefetchBytes. Defaults: 320,000 and 64 MiB.
	MaxEvents int
	MaxBytes  int64
	// MaxAge is how long after it was first submitted to the sink an event may not be
	// done before a [*driver.BacklogError] is observed. With AgeFatal that error ends
	// [Consumer.Run]. Default: 10 min.
	MaxAge   time.Duration
	AgeFatal bool
	// RetryAfter is the wait before another attempt where the sink states none.
	// Default: 2 s.
	RetryAfter time.Duration
	// OnDeadLetter says what happens to later events of a dead letter's key.
	// Default: KeyContinue.
	OnDeadLetter KeyPolicy
}

func (cfg *AtLeastOnceConfig) withDefaults() (AtLeastOnceConfig, error) {
	var c AtLeastOnceConfig
	if cfg != nil {
		c = *cfg
	}
	c.CheckpointEvery = cmp.Or(c.CheckpointEvery, 5*time.Second)
	c.MaxEvents = cmp.Or(c.MaxEvents, 320_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 64<<20)
	c.MaxAge = cmp.Or(c.MaxAge, 10*time.Minute)
	c.RetryAfter = cmp.Or(c.RetryAfter, 2*time.Second)
	switch {
	case c.Order > OrderNone:
		return c, fmt.Errorf("order %d: unknown; use OrderKey, OrderPartition or OrderNone", c.Order)
	case c.OnDeadLetter > KeyHold:
		return c, fmt.Errorf("policy %d for the keys of dead letters: unknown; use KeyContinue or KeyHold", c.OnDeadLetter)
	case c.CheckpointEvery < 0:
		return c, fmt.Errorf("checkpoint every %v: must be positive", c.CheckpointEvery)
	case c.MaxEvents < 0 || c.MaxBytes < 0:
		return c, fmt.Errorf("%d events and %d bytes in flight: must be positive", c.MaxEvents, c.MaxBytes)
	case c.MaxAge < 0:
		return c, fmt.Errorf("events of at most %v in flight: must be positive", c.MaxAge)
	case c.RetryAfter < 0:
		return c, fmt.Errorf("retries after %v: must be positive", c.RetryAfter)
	}
	return c, nil
}

// AtLeastOnce writes each event at least once to a store that cannot join the
// checkpoint's transaction: many at a time, completed in any order. store keeps
// checkpoints and dead letters. records makes an event's records; it must depend
// on nothing but the event, and its error sends the event to the dead letters at
// once. sink writes the records. A nil cfg takes every default.
//
// The checkpoint is the furthest event below which all are written or are dead
// letters. Events after it that are done are stored with it. So a crash repeats
// at most what was in flight, and what was completed since the last checkpoint.
//
// Where the sink is the log of a next stage that is [Transactional], records with
// a [stamp.Stamp] (see [stamp.Of]) make the effects of both stages exactly once. Records
// of one event and number must go to the same partition each time.
//
// [Hooks].Batch is not called.
func AtLeastOnce[R any](store driver.AtLeastOnceStore, records func(context.Context, *Event) ([]R, error), sink driver.Sink[R], cfg *AtLeastOnceConfig) Delivery {
	c, err := cfg.withDefaults()
	var key func(R) string
	if keyed, is := sink.(*keyedSink[R]); is {
		sink, key = keyed.Sink, keyed.key
	}
	workers, _ := any(sink).(*WorkerSink)
	missing := firstNil("at least once", part{"store", isNil(store), ""}, part{"function that makes records", records == nil, passFunction}, part{"sink", isNil(sink), ""})
	switch {
	case missing != nil:
		err = missing
	case workers != nil && workers.fn == nil:
		err = errors.New("at least once: the sink is a WorkerSink without a function: make it with Workers")
	case c.Rate != nil && !c.Rate.rate.Made():
		err = errors.New("at least once: Rate is a zero value: make it with NewRate or NewClusterRate")
	}
	if err != nil {
		return delivery{err: err}
	}
	settings := &stream.Config{
		Ordering: stream.Ordering(c.Order), CheckpointEvery: c.CheckpointEvery, MaxEvents: c.MaxEvents, MaxBytes: c.MaxBytes,
		MaxAge: c.MaxAge, AgeFatal: c.AgeFatal, RetryAfter: c.RetryAfter, HoldKeys: c.OnDeadLetter == KeyHold,
	}
	if c.Rate != nil {
		settings.Rate = &c.Rate.rate
	}
	return delivery{stream.New(store, records, sink, key, settings), nil}
}

// Rate is how many records a second [AtLeastOnce] may send, over all partitions of all
// consumers that share it, retries included. Every one-second window of grants stays at or
// below it; with enough records waiting, none is noticeably below. The bound is on grants,
// not on arrivals: the way to the store can bring requests closer together. It is safe for
// concurrent use.
type Rate struct{ rate stream.Rate }

// NewRate returns a rate of 1 to 1,000,000 records a second for one process.
func NewRate(perSecond int) (*Rate, error) {
	r := new(Rate)
	if err := r.rate.Init(perSecond, false); err != nil {
		return nil, err
	}
	return r, nil
}

// NewClusterRate returns a rate that all processes of a consumer group keep together
// without talking to each other. Each partition has a share, and the owner of the
// partition may use it; the shares are whole numbers that add up to perSecond. Every
// process must state the same rate, which must be at least the number of partitions.
// The share of a partition that is idle or has no owner is not used, so a cluster whose
// partitions are filled unevenly runs below the rate, never above it. An owner waits a
// second before it uses a share that belonged to another.
//
// If partitions are added to the topic, the shares of a process become smaller when it
// acquires one of them. Processes that acquire none must be restarted; otherwise all
// together exceed the rate.
func NewClusterRate(perSecond int) (*Rate, error) {
	r := new(Rate)
	if err := r.rate.Init(perSecond, true); err != nil {
		return nil, err
	}
	return r, nil
}

// Set changes the rate while it is in use.
func (r *Rate) Set(perSecond int) error { return r.rate.Set(perSecond) }
