package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// WarningKind is what a warning is about.
type WarningKind string

// The kinds of warning. Their values are part of metrics and log lines.
const (
	// WarningUnowned: the partitions have had no owner for a while.
	WarningUnowned WarningKind = "unowned"
	// WarningUnderCapacity: the same, and the running processes hold as many as
	// they may: the numbers that they are configured with add up to fewer
	// partitions than there are.
	WarningUnderCapacity WarningKind = "under_capacity"
	// WarningStalled: the checkpoint does not move while events wait after it.
	WarningStalled WarningKind = "stalled"
	// WarningPartitionsAdded: the hub has more partitions than it had.
	WarningPartitionsAdded WarningKind = "partitions_added"
	// WarningExpiring: at this rate retention passes the checkpoint soon.
	WarningExpiring WarningKind = "expiring"
	// WarningExpired: retention has passed the checkpoint: events are lost unread.
	WarningExpired WarningKind = "expired"
)

// WarningKinds are all kinds, the most urgent first.
var WarningKinds = []WarningKind{WarningExpired, WarningExpiring, WarningStalled, WarningUnderCapacity, WarningUnowned, WarningPartitionsAdded}

func urgency(k WarningKind) int { return slices.Index(WarningKinds, k) }

// Warning is one thing that an operator must know.
type Warning struct {
	Kind       WarningKind
	Partitions []string // that it is about
	Since      time.Time
	Text       string // a sentence
}

// CheckpointReader is the part of a store of checkpoints that a watcher needs.
type CheckpointReader interface {
	Read(ctx context.Context, group driver.Group) ([]driver.Checkpoint, error)
}

// DeadLetterCounter is the part of a [driver.DeadLetterStore] that a watcher needs.
type DeadLetterCounter interface {
	Count(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter) ([]driver.DeadLetterCount, error)
}

// WatcherConfig holds what has a default. The zero value is ready to use.
type WatcherConfig struct {
	// DeadLetters are counted with each check, for at most 10 s, and then not for 20 times as long
	// as that took: on a database with very many, or a slow one, counting takes a twentieth of the
	// time at most, of one connection. Default: they are not.
	DeadLetters DeadLetterCounter
	// Unowned is how long partitions may be without an owner. Default: 90 s:
	// partitions are acquired one a second, and a dead owner's lease must expire.
	Unowned time.Duration
	// Stalled is how long a checkpoint may stay where it is while events wait.
	// Default: 5 min.
	Stalled time.Duration
	// Ahead is how long before retention passes a checkpoint the warning begins.
	// Default: 2 h.
	Ahead time.Duration
	// Now returns the time. Default: time.Now.
	Now func() time.Time
}

// Watcher looks for warnings about one consumer group. It belongs to one goroutine.
//
// Each check asks each store once. It asks the log once for every partition, unless its source is a
// [SharedSource]: then it takes what the consumer beside it has asked, and asks for the other
// partitions at a pace that the processes of the group share. The fewer processes and partitions
// there are, the more it sees of partitions that other processes own; those that nobody has asked for
// lately are left to their owners. It asks for partitions without an owner first.
type Watcher struct {
	source      driver.Source
	leases      driver.LeaseStore
	checkpoints CheckpointReader
	cfg         WatcherConfig

	incarnation string // of the topic, at the last check
	partitions  map[string]*watched
	count       int       // of the hub's partitions, at the first check
	added       time.Time // when there were more
	countAgain  time.Time // no dead letters are counted before
	checked     time.Time // when the last check was
	allowance   float64   // how many bounds may be asked for, with a SharedSource
}

// watched is what earlier checks have seen of a partition.
type watched struct {
	unowned    time.Time // since when it has no owner; zero: it has one
	checkpoint int64     // the checkpoint
	moved      time.Time // when the checkpoint was first seen there
	samples    []sample  // of the last checks, oldest first
	danger     time.Time // since when retention has passed the checkpoint, or soon will
	waiting    int64     // events after the checkpoint, when the bounds were last known
	warned     []Warning // about this partition, then
}

type sample struct {
	time              time.Time
	first, checkpoint int64
}

const (
	// maxSamples is how many samples are kept of a partition.
	maxSamples = 120
	// minSampled is the shortest time over which a rate is trusted: logs remove
	// their oldest events in large pieces.
	minSampled = 10 * time.Minute
	// boundsParallel is how many partitions' bounds are asked for at once.
	boundsParallel = 16
	// boundsTimeout is how long all of them may take, and boundsEach how much longer for
	// each partition: drivers pace such requests.
	boundsTimeout = 30 * time.Second
	boundsEach    = 100 * time.Millisecond
	// All watchers of a group together ask a SharedSource for othersPerSecond bounds a second, or
	// for an eighth of what its log allows. The consumers take the rest of that (see endEvery in
	// the root).
	othersPerSecond = 20
	othersPart      = 1.0 / 8
	// firstAllowance is for how long the first check may ask, askedAgain after which time bounds
	// are asked for again, and knownFor how long they count.
	firstAllowance = 30 * time.Second
	askedAgain     = 20 * time.Second
	knownFor       = 10 * time.Minute
	// describedFor is how long the description that a consumer has asked for is taken.
	describedFor = 5 * time.Minute
	// countTimeout is how long the dead letters are counted at most, and countRest for how many
	// times as long they are then not counted.
	countTimeout = 10 * time.Second
	countRest    = 20
)

// NewWatcher makes a watcher. A nil cfg takes every default.
func NewWatcher(source driver.Source, leases driver.LeaseStore, checkpoints CheckpointReader, cfg *WatcherConfig) *Watcher {
	var c WatcherConfig
	if cfg != nil {
		c = *cfg
	}
	c.Unowned = cmp.Or(c.Unowned, 90*time.Second)
	c.Stalled = cmp.Or(c.Stalled, 5*time.Minute)
	c.Ahead = cmp.Or(c.Ahead, 2*time.Hour)
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Watcher{source: source, leases: leases, checkpoints: checkpoints, cfg: c, partitions: map[string]*watched{}}
}

// Report is the result of one check.
type Report struct {
	At       time.Time // when the check began
	Warnings []Warning // the most urgent first
	// Partitions are all partitions of the topic, in its order; nil if Err is not.
	Partitions []PartitionReport
	// DeadLetters are how many the group has, by partition and status; nil if Err or
	// DeadLetterErr is not, or if they were not counted this time.
	DeadLetters   []driver.DeadLetterCount
	DeadLetterErr error // why they could not be counted
	// Began and Ended are the warnings that the check before did not have, and
	// those that this one no longer has.
	Began, Ended []Warning
	Err          error // why the check failed; Warnings are then those of the check before
}

// PartitionReport is what a check saw of one partition.
type PartitionReport struct {
	Partition string
	Owner     string // that a live lease names; empty: none
	// Unknown says that the log was not asked for Bounds lately, which only a watcher over a
	// [SharedSource] leaves out: then Bounds, Lag and WaitingSince are zero.
	Unknown bool
	Bounds  driver.Bounds
	// Lag is how many events the partition holds after its stored checkpoint: all events, if it
	// has none in this incarnation of the topic.
	Lag int64
	// WaitingSince is when a check first saw events wait after this checkpoint, or when the newest
	// event was enqueued, whichever is earlier; zero if none wait.
	WaitingSince time.Time
}

// Run checks at once, and then every so often until ctx ends. With a [SharedSource] the second
// check comes sooner, at random, so that processes that were started together do not ask together.
func (w *Watcher) Run(ctx context.Context, every time.Duration, report func(Report)) {
	first := every
	if _, is := w.source.(*SharedSource); is {
		first = max(1, rand.N(every))
	}
	tick := time.NewTicker(first)
	defer tick.Stop()
	var before []Warning
	for {
		r := w.check(ctx)
		if ctx.Err() != nil {
			return
		}
		if r.Err != nil {
			r.Warnings = before
		}
		r.Began, r.Ended = difference(r.Warnings, before), difference(before, r.Warnings)
		before = r.Warnings
		report(r)
		select {
		case <-tick.C:
			tick.Reset(every)
		case <-ctx.Done():
			return
		}
	}
}

// difference returns the warnings of which others has none with the same kind and
// partitions.
func difference(list, others []Warning) (left []Warning) {
	for _, w := range list {
		same := func(o Warning) bool { return o.Kind == w.Kind && slices.Equal(o.Partitions, w.Partitions) }
		if !slices.ContainsFunc(others, same) {
			left = append(left, w)
		}
	}
	return left
}

// Check looks for warnings once.
func (w *Watcher) Check(ctx context.Context) ([]Warning, error) {
	r := w.check(ctx)
	return r.Warnings, r.Err
}

// check checks once. Its report has neither Began nor Ended.
func (w *Watcher) check(ctx context.Context) Report {
	r := Report{At: w.cfg.Now()}
	topic, err := w.look(ctx, &r)
	if err != nil {
		r.Err = fmt.Errorf("check for warnings: %w", err)
		return r
	}
	if w.cfg.DeadLetters != nil && !w.cfg.Now().Before(w.countAgain) {
		w.countDeadLetters(ctx, topic.Group, &r)
	}
	return r
}

// countDeadLetters adds the number of dead letters to a report.
func (w *Watcher) countDeadLetters(ctx context.Context, group driver.Group, r *Report) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	began := w.cfg.Now()
	list, err := w.cfg.DeadLetters.Count(ctx, group, driver.DeadLetterFilter{})
	now := w.cfg.Now()
	w.countAgain = now.Add(countRest * now.Sub(began))
	if r.DeadLetterErr = err; err == nil {
		r.DeadLetters = append([]driver.DeadLetterCount{}, list...) // never nil
	}
}

// look adds warnings and partitions to a report.
func (w *Watcher) look(ctx context.Context, r *Report) (driver.Topic, error) {
	topic, err := w.describe(ctx)
	if err != nil {
		return topic, fmt.Errorf("describe topic: %w", err)
	}
	leases, err := w.leases.List(ctx, topic.Group)
	if err != nil {
		return topic, fmt.Errorf("list leases: %w", err)
	}
	checkpoints, err := w.checkpoints.Read(ctx, topic.Group)
	if err != nil {
		return topic, fmt.Errorf("read checkpoints: %w", err)
	}
	now := w.cfg.Now()
	var found []Warning
	done := map[string]driver.Checkpoint{}
	for _, c := range checkpoints {
		done[c.Partition] = c
	}
	bounds, err := w.bounds(ctx, topic.Partitions, leases)
	if err != nil {
		return topic, err
	}
	if topic.Incarnation != w.incarnation { // sequence numbers of two incarnations are unrelated
		for _, p := range w.partitions {
			p.forget(now)
		}
		w.incarnation = topic.Incarnation
	}
	holders := owners(leases)
	for i, id := range topic.Partitions {
		p := w.partitions[id]
		if p == nil {
			p = &watched{moved: now, checkpoint: driver.Unset.Sequence}
			w.partitions[id] = p
		}
		c, begun := done[id]
		begun = begun && c.Incarnation == topic.Incarnation && c.Position.Sequence >= driver.Origin.Sequence
		if bounds[i].asked.IsZero() {
			r.Partitions = append(r.Partitions, PartitionReport{Partition: id, Owner: holders[id], Unknown: true})
			if begun {
				found = append(found, p.unknown(c.Position.Sequence, now)...)
			}
			continue
		}
		if begun {
			p.warned = w.checkpoint(nil, id, p, bounds[i].Bounds, c.Position.Sequence, now)
			found = append(found, p.warned...)
		} else {
			p.reset(bounds[i].Bounds, now)
		}
		r.Partitions = append(r.Partitions, p.report(id, holders[id], bounds[i].Bounds))
	}
	found = w.owners(found, topic, leases, now)
	found = w.partitionsAdded(found, topic, now)
	slices.SortStableFunc(found, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(urgency(a.Kind), urgency(b.Kind)), slices.Compare(a.Partitions, b.Partitions))
	})
	r.Warnings = found
	return topic, nil
}

// report is what a report says about a partition.
func (p *watched) report(id, owner string, b driver.Bounds) PartitionReport {
	r := PartitionReport{Partition: id, Owner: owner, Bounds: b, Lag: b.Lag(driver.Position{Sequence: p.checkpoint})}
	if r.Lag > 0 {
		r.WaitingSince = p.moved
		if newest := b.LastEnqueued; !newest.IsZero() && newest.Before(r.WaitingSince) {
			r.WaitingSince = newest
		}
	}
	return r
}

// owners are the owners of the live leases of partitions.
func owners(leases []driver.LeaseInfo) map[string]string {
	holders := map[string]string{}
	for _, l := range leases {
		if l.Live() && !l.Member() {
			holders[l.Partition] = l.Owner
		}
	}
	return holders
}

// describe returns the topic.
func (w *Watcher) describe(ctx context.Context) (driver.Topic, error) {
	describe := w.source.Describe
	if shared, is := w.source.(*SharedSource); is {
		describe = func(ctx context.Context) (driver.Topic, error) { return shared.describe(ctx, describedFor) }
	}
	topic, err := describe(ctx)
	if err == nil && topic.AnyCase {
		topic.Group, err = driver.Spelling(ctx, topic.Group, w.leases, w.checkpoints)
	}
	return topic, err
}

// bounds returns the bounds of all partitions; those that were not asked for lately have no time.
func (w *Watcher) bounds(ctx context.Context, partitions []string, leases []driver.LeaseInfo) ([]askedBounds, error) {
	list := make([]askedBounds, len(partitions))
	ask := make([]int, 0, len(partitions)) // indexes
	shared, is := w.source.(*SharedSource)
	for i, id := range partitions {
		if is {
			list[i] = shared.known(id)
		}
		if time.Since(list[i].asked) >= askedAgain {
			ask = append(ask, i)
		}
	}
	if is {
		// Those without an owner first: no consumer asks for them.
		holders := owners(leases)
		owned := func(i int) int { return min(len(holders[partitions[i]]), 1) }
		slices.SortStableFunc(ask, func(a, b int) int {
			return cmp.Or(cmp.Compare(owned(a), owned(b)), list[a].asked.Compare(list[b].asked))
		})
		ask = ask[:w.allowed(len(ask), leases)]
	}
	err := w.ask(ctx, partitions, ask, list)
	for i := range list {
		if time.Since(list[i].asked) > knownFor {
			list[i] = askedBounds{}
		}
	}
	return list, err
}

// allowed returns how many of some bounds may be asked for: what has come together since the last
// check, at this process's part of the pace of all.
func (w *Watcher) allowed(wanted int, leases []driver.LeaseInfo) int {
	pace := float64(othersPerSecond)
	if budget := driver.BudgetOf(w.source); budget > 0 {
		pace = budget * othersPart
	}
	processes := map[string]bool{}
	for _, l := range leases {
		if l.Live() {
			processes[l.Owner] = true
		}
	}
	pace /= float64(max(1, len(processes)))
	now, since := time.Now(), firstAllowance
	if w.checked.IsZero() {
		w.allowance = -rand.Float64() // else processes that were started together would ask together
	} else {
		since = now.Sub(w.checked)
	}
	w.checked = now
	w.allowance = min(w.allowance+pace*since.Seconds(), max(1, pace*2*firstAllowance.Seconds()))
	n := min(wanted, int(w.allowance))
	w.allowance -= float64(n)
	return n
}

// ask asks the log for the bounds of some partitions.
func (w *Watcher) ask(ctx context.Context, partitions []string, ask []int, list []askedBounds) error {
	ctx, cancel := context.WithTimeout(ctx, boundsTimeout+time.Duration(len(ask))*boundsEach)
	defer cancel()
	errs := make([]error, len(ask))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(boundsParallel, len(ask)) {
		workers.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(ask)); n = next.Add(1) - 1 {
				i, at := ask[n], time.Now()
				b, err := w.source.Bounds(ctx, partitions[i])
				if err != nil {
					errs[n] = fmt.Errorf("bounds of partition %s: %w", partitions[i], err)
					cancel()
					return
				}
				list[i] = askedBounds{b, at}
			}
		})
	}
	workers.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return errors.Join(errs...)
}
