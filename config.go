package sluice

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/ownername"
	"github.com/sluice-go/sluice/stamp"
)

// Partitions is how many partitions a consumer takes: a positive number,
// [AllPartitions] or [Balanced]. It never takes more, and no other consumer takes
// them from it while it runs.
type Partitions int

const (
	// AllPartitions takes every partition that is free.
	AllPartitions Partitions = 0
	// Balanced takes a fair share: the balanced consumers of a group divide the
	// topic's partitions so that no two differ by more than one. When a consumer
	// joins, those that have too many partitions finish their batches, store their
	// checkpoints and release the surplus; no consumer takes what another holds.
	// Partitions move only when a process joins or leaves. A process that returns
	// within [Config].RenewEvery of a graceful stop moves nothing else.
	//
	// Consumers with a fixed number or AllPartitions may run in the same group.
	// They take what is free and never give it up. The balanced ones divide the
	// rest, without regard to what those still lack. So beside AllPartitions a
	// balanced consumer loses what it hands over.
	//
	// All balanced consumers of a group must have the same LeaseFor and
	// RenewEvery. Each lists the leases once every AssignEvery, which must not be
	// above RenewEvery, and renews one lease more than it has partitions. Where there
	// are more than 256 leases and nothing is to be done, it lists up to four times as
	// seldom.
	Balanced Partitions = -1
)

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Partitions is how many partitions the consumer takes: a positive number,
	// AllPartitions or Balanced. Default: AllPartitions.
	Partitions Partitions
	// Ordinal and Replicas make the division of the partitions a fixed one: of Replicas processes,
	// each takes those whose place among the topic's partitions, divided by Replicas, leaves its
	// Ordinal, from 0 up. So the pods of a StatefulSet never move a partition. They keep leases all
	// the same. Partitions must be AllPartitions. Default: 0 replicas, any partition.
	Ordinal, Replicas int
	// Owner names this process in leases and checkpoints. It must be unique among
	// processes, also across restarts. Default: host name, process id and a
	// random part.
	Owner string
	// Start is where a partition without a checkpoint begins. Default: Earliest.
	Start Start
	// LeaseFor is how long a lease lasts without renewal. RenewEvery is how old it
	// gets before it is renewed. LeaseFor must be at least three times RenewEvery.
	// Defaults: 30 s, and a third of LeaseFor.
	LeaseFor, RenewEvery time.Duration
	// AssignEvery is the time between two attempts to acquire partitions, and
	// AssignBurst how many partitions an attempt acquires at most, one after the
	// other. An attempt lists the leases once. Where several processes start
	// together with a fixed number or AllPartitions, the first may acquire up to
	// AssignBurst partitions before the others have one. Balanced consumers of a
	// group should have the same. Defaults: 1 s; and 1, or a 64th of the topic's partitions
	// if that is more, so that no process needs much longer than a minute for all of them; all,
	// for [Replay] without a lease store.
	AssignEvery time.Duration
	AssignBurst int
	// MaxBatch is the largest number of events in a batch. Transactional and Batches take
	// more than 1,000 only while their transactions, or calls of the handler, last less
	// than a twentieth of LeaseFor, and fewer for a while after an outage. Default: 4,000.
	MaxBatch int
	// PrefetchBytes is how many bytes of events (bodies and properties) a partition
	// reads ahead of the delivery, besides what the [Source] itself prefetches, and
	// how many a batch has at most. One event may be larger. Default: 4 MiB.
	PrefetchBytes int
	// FillFor is how long a batch of [Transactional] or [Batches] waits for further events, counted
	// from when the batch before it was done or, if that is later, its first event was read. It
	// waits no longer once it has FillTo bytes or MaxBatch
	// events, or if nothing more can be read: the link has failed, or Memory is used up. A stop and
	// a hand-over wait for nothing: the next owner reads the events again. Default: 0, it does not
	// wait.
	FillFor time.Duration
	// FillTo is how many bytes of events (bodies and properties) fill a batch that FillFor lets
	// wait, at most PrefetchBytes. Default: PrefetchBytes.
	FillTo int
	// Memory is the budget of bytes for what the senders of events can make the process hold.
	// Consumers with the same one share it. Default: [ProcessMemory].
	Memory *Memory
	// Attempts is how often a failing event is tried before it becomes a dead
	// letter. Rejected events are tried once; outages and retries that an error asks
	// for count nothing. Default: 3.
	//
	// What every event needs may be broken without an error that says so. So an event
	// that has used up its attempts becomes a dead letter only if another event
	// succeeds and one more attempt at it fails, or if there is no other event to try.
	// If 20 events in a row fail, and none succeeds, the partition is held: it is
	// reported as [driver.KindFailed] and [driver.KindStalled], one event at a time is tried, at
	// least once every RetryMax, and none becomes a dead letter until one succeeds.
	Attempts int
	// RetryMin and RetryMax bound the waits between attempts and after outages.
	// Each wait is twice the one before, shortened at random by up to a quarter.
	// Defaults: 100 ms and 10 s.
	RetryMin, RetryMax time.Duration
	// RetryLater are the waits before further attempts at an event that has used up its Attempts.
	// It is a dead letter meanwhile, with [driver.StatusRetry], and the later events go on. With
	// [KeyHold] those of its key become dead letters too, and are tried again after it. After the
	// last of the attempts an event waits for an operator ([driver.StatusDead]), as one does that
	// was rejected. At most 32 waits. Default: 10 s, 1 min, 10 min. None, if the list is empty and
	// not nil.
	RetryLater []time.Duration
	// RedriveEvery is how often an owner looks for dead letters whose redrive is
	// due. Where one request finds those of all partitions ([driver.RedriveFinder]),
	// a redrive begins after twice that at most. Default: 1 s.
	RedriveEvery time.Duration
	// BodyLimit is the largest event in bytes (body, properties, key, message id and
	// other texts) that a dead letter stores. Of a larger one, or one with a text of more
	// than 4 KiB other than the key, only the position and the beginnings of the texts are
	// stored, and a redrive reads the event from the log. Default: 256 KiB; negative:
	// bodies are never stored.
	BodyLimit int
	// CopyDeadLetters, if set, is called with dead letters of a partition, to copy them to where
	// people look, such as a queue of Service Bus: see [CopyTo]. The store must be a
	// [driver.CopyMarks]; it stays the truth, and dead letters are redriven and discarded there.
	//
	// Each dead letter is copied at least once, also those that were stored before CopyDeadLetters
	// was set, unless its redrive succeeds before. One that waits for another attempt is copied
	// when that has failed and none follows. It is marked as copied in the store when the call has
	// returned nil. An [*driver.EventError], or several that are joined, names those by index that
	// were not copied; any other error means that none was. These are tried again, after waits from
	// RetryMin to LeaseFor, and reported as [driver.KindCopyFailed]. ctx ends after LeaseFor, and
	// when the partition is to be released.
	//
	// The partition's owner copies beside the delivery, which never waits for it: at most 16 dead
	// letters at a time, of one of the consumer's partitions at a time.
	CopyDeadLetters func(ctx context.Context, dead []DeadLetter) error
	// StallAfter is how long a call of the user's code or of a driver may last, and how long events
	// may wait with none done, before the partition is reported as stalled ([driver.KindStalled]).
	// Waits that are asked for do not count: for a Rate, by [driver.RetryAfter], between two
	// checkpoints of Batches, and while a reader is paused. Default: LeaseFor.
	StallAfter time.Duration
	// SilentAfter is how long a reader may return nothing although the log holds
	// further events, before it is replaced. The log is asked for that, which takes
	// longer in a topic of hundreds of partitions whose log limits such requests
	// ([driver.BoundsBudget]). Default: two thirds of LeaseFor, so that
	// it is reported within LeaseFor.
	SilentAfter time.Duration
	// StampsFrom are the stages that feed the consumer's topic, and whose [stamp.Stamp]s
	// [Transactional] believes, so that it handles a message once that was sent more
	// often. Other stamps are reported once for each assignment, and their messages
	// handled like those without one. Default: none.
	StampsFrom []stamp.Source
	// Filter reports whether an event is handled. An event that it leaves out counts as done: no
	// handler, sink or [Replayer] gets it, it becomes no dead letter, and
	// [driver.Observation].Filtered counts it. The redrive of a dead letter that it leaves out
	// removes the dead letter. Filter must depend on the event alone, and be safe for concurrent
	// use. An event for which it panics is handled. Default: every event is handled.
	Filter func(*Event) bool
	// Hooks are called at the steps of a partition's assignment.
	Hooks Hooks
	// Logger gets log lines for operators, as [LogObserver] writes them. Default: [slog.Default].
	// For silence: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
	// Observer receives an observation of everything that the engine does, besides the log. Several
	// consumers may have the same. Default: none.
	Observer driver.Observer
	// Clock and Seed replace time and randomness in tests. Defaults: the system's.
	Clock driver.Clock
	Seed  uint64
}

func (cfg *Config) withDefaults() (Config, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.Owner == "" {
		c.Owner = ownername.New()
	}
	c.LeaseFor = cmp.Or(c.LeaseFor, 30*time.Second)
	c.RenewEvery = cmp.Or(c.RenewEvery, c.LeaseFor/3)
	c.AssignEvery = cmp.Or(c.AssignEvery, time.Second)
	c.MaxBatch = cmp.Or(c.MaxBatch, 4000)
	c.PrefetchBytes = cmp.Or(c.PrefetchBytes, 4<<20)
	c.FillTo = cmp.Or(c.FillTo, c.PrefetchBytes)
	c.Memory = cmp.Or(c.Memory, ProcessMemory())
	c.Attempts = cmp.Or(c.Attempts, 3)
	c.RetryMin = cmp.Or(c.RetryMin, 100*time.Millisecond)
	c.RetryMax = cmp.Or(c.RetryMax, max(10*time.Second, c.RetryMin))
	if c.RetryLater == nil {
		c.RetryLater = []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute}
	}
	c.RedriveEvery = cmp.Or(c.RedriveEvery, time.Second)
	c.StallAfter = cmp.Or(c.StallAfter, c.LeaseFor)
	c.SilentAfter = cmp.Or(c.SilentAfter, 2*c.LeaseFor/3)
	c.BodyLimit = cmp.Or(c.BodyLimit, 256<<10)
	if c.Clock == nil {
		c.Clock = clock.New()
	}
	if c.Seed == 0 {
		var b [8]byte
		rand.Read(b[:])
		c.Seed = binary.NativeEndian.Uint64(b[:])
	}
	return c, c.check()
}

// check returns what is wrong with a configuration that has its defaults.
func (c *Config) check() error {
	switch {
	case c.Partitions < Balanced:
		return fmt.Errorf("%d partitions: state a positive number, AllPartitions or Balanced", c.Partitions)
	case c.Replicas < 0 || c.Ordinal < 0 || c.Ordinal > 0 && c.Ordinal >= c.Replicas:
		return fmt.Errorf("ordinal %d of %d replicas: the ordinals are those from 0 to Replicas-1", c.Ordinal, c.Replicas)
	case c.Replicas > 0 && c.Partitions != AllPartitions:
		return errors.New("ordinal of replicas: these divide all partitions, so Partitions must be AllPartitions")
	case !isName(c.Owner):
		return fmt.Errorf("owner %q: must be UTF-8 text of at most %d bytes without control characters", c.Owner, maxOwner)
	case !isStart(c.Start):
		return fmt.Errorf("start %s", wrongStart(c.Start))
	case c.LeaseFor < minLease:
		return fmt.Errorf("lease of %v: must last at least %v; is the unit missing, as in 30*time.Second?", c.LeaseFor, minLease)
	case c.RenewEvery <= 0 || c.LeaseFor < 3*c.RenewEvery:
		return fmt.Errorf("lease of %v renewed every %v: a lease must last at least three renewals, so that one lost renewal does not lose it", c.LeaseFor, c.RenewEvery)
	case c.AssignEvery < 0:
		return fmt.Errorf("assign every %v: must be positive", c.AssignEvery)
	case c.AssignBurst < 0:
		return fmt.Errorf("bursts of %d partitions: must be positive", c.AssignBurst)
	case c.MaxBatch < 0:
		return fmt.Errorf("batch of at most %d events: must be positive", c.MaxBatch)
	case c.PrefetchBytes < 0:
		return fmt.Errorf("prefetch of %d bytes: must be positive", c.PrefetchBytes)
	case c.FillFor < 0:
		return fmt.Errorf("fill batches for %v: must be positive", c.FillFor)
	case c.FillTo < 0 || c.FillTo > c.PrefetchBytes:
		return fmt.Errorf("fill batches to %d bytes: must be positive and at most PrefetchBytes, which is %d: raise that too", c.FillTo, c.PrefetchBytes)
	case c.FillFor == 0 && c.FillTo != c.PrefetchBytes:
		return fmt.Errorf("fill batches to %d bytes: set FillFor too, for how long a batch may wait", c.FillTo)
	case c.Attempts < 0:
		return fmt.Errorf("%d attempts: must be positive", c.Attempts)
	case c.RetryMin > 0 && c.RetryMin < minRetry:
		return fmt.Errorf("wait of %v between attempts: must be at least %v; is the unit missing, as in 100*time.Millisecond?", c.RetryMin, minRetry)
	case c.RetryMin < 0 || c.RetryMax < c.RetryMin:
		return fmt.Errorf("waits from %v to %v between attempts: must be positive and in order", c.RetryMin, c.RetryMax)
	case len(c.RetryLater) > maxRetryLater:
		return fmt.Errorf("%d waits in RetryLater: at most %d", len(c.RetryLater), maxRetryLater)
	case len(c.RetryLater) > 0 && slices.Min(c.RetryLater) <= 0:
		return fmt.Errorf("wait of %v in RetryLater: must be positive", slices.Min(c.RetryLater))
	case c.StallAfter < 0 || c.SilentAfter < 0:
		return fmt.Errorf("stall after %v and silent after %v: must be positive", c.StallAfter, c.SilentAfter)
	case c.Memory.budget == nil || c.Memory.Bytes() <= 0:
		return errors.New("memory without bytes: make it with NewMemory, of a positive number")
	case c.RedriveEvery < 0:
		return fmt.Errorf("redrive every %v: must be positive", c.RedriveEvery)
	}
	for i := range c.StampsFrom {
		if err := c.StampsFrom[i].Check(); err != nil {
			return err
		}
	}
	return nil
}

const (
	maxOwner      = 1000
	maxRetryLater = 32
	minLease      = 10 * time.Millisecond
	minRetry      = 100 * time.Microsecond
)

// settings returns the configuration as the engine takes it.
func (c *Config) settings() engine.Settings {
	return engine.Settings{
		Partitions: int(c.Partitions), Ordinal: c.Ordinal, Replicas: c.Replicas, Owner: c.Owner, Start: c.Start, LeaseFor: c.LeaseFor, RenewEvery: c.RenewEvery,
		AssignEvery: c.AssignEvery, AssignBurst: c.AssignBurst, MaxBatch: c.MaxBatch, PrefetchBytes: c.PrefetchBytes,
		FillFor: c.FillFor, FillTo: c.FillTo, Memory: c.Memory.budget,
		Attempts: c.Attempts, RetryMin: c.RetryMin, RetryMax: c.RetryMax, RetryLater: c.RetryLater, RedriveEvery: c.RedriveEvery, BodyLimit: c.BodyLimit,
		CopyDeadLetters: c.CopyDeadLetters, StallAfter: c.StallAfter, SilentAfter: c.SilentAfter, StampsFrom: c.StampsFrom,
		Filter: c.Filter, Hooks: engine.Hooks(c.Hooks), Observer: driver.Observers(LogObserver(c.Logger), c.Observer), Clock: c.Clock, Seed: c.Seed,
	}
}

// isName reports whether every store can keep a text as the name of an owner.
func isName(s string) bool {
	return len(s) <= maxOwner && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// isStart reports whether a start has the value that its kind needs.
func isStart(s Start) bool {
	switch s.Kind {
	case driver.StartEarliest, driver.StartLatest:
		return true
	case driver.StartTime:
		return !s.Time.IsZero()
	case driver.StartAgo:
		return s.Ago > 0
	case driver.StartSequence:
		return s.Sequence >= 0
	case driver.StartOffset:
		return s.Offset != ""
	}
	return false
}

// wrongStart says what is wrong with a start that is none.
func wrongStart(s Start) string {
	switch s.Kind {
	case driver.StartTime:
		return "at the zero time: give At a time, or use Earliest"
	case driver.StartAgo:
		return fmt.Sprintf("%v ago: must be positive", s.Ago)
	case driver.StartSequence:
		return fmt.Sprintf("at sequence number %d: must not be negative", s.Sequence)
	case driver.StartOffset:
		return "at an empty offset: give FromOffset an event's offset, or use Earliest"
	}
	return fmt.Sprintf("of kind %d: unknown: make it with Earliest, Latest, At, Ago, FromSequence or FromOffset", s.Kind)
}

// checkLease returns an error if the lease store does not grant leases of this length.
func checkLease(leases driver.LeaseStore, lease time.Duration) error {
	limiter, is := leases.(driver.LeaseLimiter)
	if !is {
		return nil
	}
	if shortest, longest := limiter.LeaseLimits(); lease < shortest || lease > longest {
		return fmt.Errorf("lease of %v: the lease store grants leases of %v to %v: set LeaseFor to a time between them", lease, shortest, longest)
	}
	return nil
}

// Hooks are called at the steps of a partition's assignment. A hook may take long:
// it delays its own partition at most, never the renewal of a lease. A hook's error
// or panic is observed as [driver.KindHookFailed] and changes nothing.
type Hooks struct {
	// Assigned is called before the first event of the partition is read.
	Assigned func(ctx context.Context, lease Lease, at Checkpoint) error
	// Renewed is called after a renewal. A renewal during the call causes no
	// second call.
	Renewed func(ctx context.Context, lease Lease) error
	// Released is called after the last event was handled and the lease was
	// released or lost. cause says why; it is nil after a graceful stop and for a
	// partition that is handed over to another consumer. It is called only where Assigned
	// was, or would have been if set: not where the checkpoint was never claimed.
	Released func(ctx context.Context, lease Lease, cause error) error
	// Batch is called after a commit with the events that it covered; with Batches, after
	// the handler has returned.
	Batch func(ctx context.Context, b Batch) error
	// Error is called with the error of each observation of the partition that is
	// KindFailed, KindLost, KindFenced, KindUnknown, KindHalted, KindStalled or KindCopyFailed.
	Error func(ctx context.Context, lease Lease, err error) error
}
