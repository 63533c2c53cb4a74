package audit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/stamp"
)

// maxBins bounds the number of bins of a partition.
const maxBins = 100_000

// partitionAudit is the audit of one partition. It walks through the events of
// the log and the entries of the ledger, both in ascending order, in parallel.
type partitionAudit struct {
	*auditor
	Partition
	faults   []Fault
	bins     map[time.Time]*Bin
	lastBin  *Bin  // the bin that was counted in last
	start    int64 // the first event that the checkpoint accounts for
	lastRead int64 // the last event of the log that was checked

	dedup stamp.Deduplicator // of the events from start on
	// all has those before start too, which the consumer may have seen or not. It is used where an
	// operator has set the beginning.
	all              stamp.Deduplicator
	ids              seenIDs
	stampsSeen       bool // there are messages from an earlier stage
	originalsUnknown bool // events are missing from the log that later ones may be copies of

	compacted, compactionKnown bool // compaction may have removed events; whether that was asked

	done    []driver.SequenceRange // after the checkpoint
	finder  Finder                 // nil: the view lists all effects
	effects map[int64]Effect       // of the events that were read last, by the finder

	pull     func() (Entry, error, bool)
	entry    Entry // the current one; its sequence number is none after the last
	previous int64 // the sequence number of the entry before
}

// none is greater than every sequence number.
const none = math.MaxInt64

func newPartition(a *auditor, id string) *partitionAudit {
	return &partitionAudit{
		auditor: a, Partition: Partition{ID: id}, effects: map[int64]Effect{}, bins: map[time.Time]*Bin{}, previous: none,
		dedup: stamp.Deduplicator{StampsFrom: a.cfg.StampsFrom}, all: stamp.Deduplicator{StampsFrom: a.cfg.StampsFrom},
	}
}

func (p *partitionAudit) run(ctx context.Context) error {
	// By Seek, because Bounds may be out of date.
	first, err := p.source.Seek(ctx, p.ID, sluice.Earliest(), driver.NoEpoch)
	if err != nil {
		return err
	}
	view, err := p.ledger.Open(ctx, p.topic, p.ID)
	if err != nil {
		return err
	}
	defer view.Close()
	p.finder, _ = view.(Finder)
	if err := p.readCheckpoint(ctx, view); err != nil {
		return err
	}
	// Every event of the view was in the log when the view was opened, so it is
	// not after the log's end as it is now. What retention has removed since was
	// still in the log then.
	last, err := p.source.Seek(ctx, p.ID, sluice.Latest(), driver.NoEpoch)
	if err != nil {
		return err
	}
	p.First, p.Last = first.Sequence+1, last.Sequence
	if p.Checkpoint > p.Last {
		return fmt.Errorf("the checkpoint is at %d, and the newest event of %s is %d: check that this is the right log, and that it was not truncated: %w", p.Checkpoint, p.topic.Topic, p.Last, ErrUndecided)
	}
	entries, stop := iter.Pull2(view.Entries(ctx))
	defer stop()
	p.pull = func() (Entry, error, bool) { return entries() }
	if err := p.nextEntry(); err != nil {
		return err
	}
	for p.entry.Sequence < 0 {
		if err := p.takeEntries(p.entry.Sequence, time.Time{}, Stray); err != nil {
			return err
		}
	}
	p.begin()
	if err := p.checkExpired(); err != nil {
		return err
	}
	if err := p.checkLog(ctx); err != nil {
		return err
	}
	for p.entry.Sequence != none {
		if err := p.takeEntries(p.entry.Sequence, time.Time{}, Stray); err != nil {
			return err
		}
	}
	p.conclude()
	for _, b := range p.bins {
		p.Bins = append(p.Bins, *b)
	}
	slices.SortFunc(p.Bins, func(a, b Bin) int { return a.Start.Compare(b.Start) })
	return nil
}

// readCheckpoint reads the checkpoint, and checks that it is of this incarnation.
func (p *partitionAudit) readCheckpoint(ctx context.Context, view View) error {
	p.Checkpoint = driver.Unset.Sequence
	checkpoint, found, err := view.Checkpoint(ctx)
	if err != nil || !found {
		p.Doubt = NoCheckpoint
		return err
	}
	if checkpoint.Incarnation != p.topic.Incarnation {
		return fmt.Errorf("%s was recreated after its checkpoint (checkpoint of incarnation %s, now %s), so sequence numbers started again: %w",
			p.topic.Topic, checkpoint.Incarnation, p.topic.Incarnation, ErrUndecided)
	}
	p.Checkpoint, p.done, p.Began = checkpoint.Position.Sequence, checkpoint.Done, checkpoint.Began
	switch {
	case p.Began.Known():
	case checkpoint.Position == driver.Unset:
		p.Doubt = NoCheckpoint
	default:
		p.Doubt = NoBeginning
	}
	return nil
}

// begin sets from where on events are checked: where the checkpoint says that it began. Effects
// say nothing about that: the first ones may be lost.
func (p *partitionAudit) begin() {
	if p.Began.Known() {
		p.start = max(p.Began.After+1, 0)
	}
	p.originalsUnknown = p.First > 0
	if p.Began.How == driver.HowStart { // the consumer has seen nothing before it
		p.originalsUnknown = p.First > p.start
	}
}

// conclude looks for what contradicts the recorded beginning, or makes the result incomplete.
func (p *partitionAudit) conclude() {
	switch {
	case p.Doubt != "":
		if p.First == 0 && p.Last < 0 && p.Faults[Stray] == 0 {
			p.Doubt = "" // there never was an event
		}
	case p.Checkpoint < p.Began.After:
		p.Doubt = BeganLater
	case p.Began.How == driver.HowStart && p.Earlier > 0:
		p.Doubt = EarlierEffects
	case p.dedup.Forgot() || p.all.Forgot():
		p.Doubt = TooManyIDs
	}
}

// nextEntry reads the next entry of the ledger.
func (p *partitionAudit) nextEntry() error {
	e, err, ok := p.pull()
	if err != nil {
		return err
	}
	if !ok {
		e.Sequence = none
	} else if p.previous != none && e.Sequence < p.previous {
		return fmt.Errorf("the ledger's entries are not sorted: %d after %d", e.Sequence, p.previous)
	}
	p.previous, p.entry = e.Sequence, e
	return nil
}

// checkExpired looks at events that the log no longer has: what left an effect, what expired
// unread, and how many cannot be checked.
func (p *partitionAudit) checkExpired() error {
	next := p.start // the next number of which nothing was found yet
	if !p.Began.Known() {
		next = p.Checkpoint + 1
	}
	found := false // an effect from the beginning on
	for p.entry.Sequence < p.First {
		s := p.entry.Sequence
		if s >= next {
			p.addRemoved(next, s-1, found)
			next, found = s+1, true
		}
		if err := p.takeEntries(s, time.Time{}, ""); err != nil {
			return err
		}
	}
	p.addRemoved(next, p.First-1, found || p.entry.Sequence == none)
	return nil
}

// addRemoved records a run of numbers without an entry that the log no longer has. Those after the
// checkpoint expired unread. Whether the others are lost is not known. If they come after an
// effect, or if there is none at all, that is unclear; otherwise old rows may have been deleted on
// purpose, and the numbers are only counted. In a sparse log, with a filter and behind another
// stage, effects are not expected of all of them, and a finder was not asked.
func (p *partitionAudit) addRemoved(first, last int64, unclear bool) {
	if p.Checkpoint < driver.Origin.Sequence {
		return // nothing has been processed
	}
	if passed := min(last, p.Checkpoint); first <= passed {
		p.countRemoved(passed-first+1, unclear)
	}
	first = max(first, p.Checkpoint+1)
	for _, r := range p.done {
		if first <= min(r.First-1, last) {
			p.addFault(Expired, first, min(r.First-1, last), time.Time{})
		}
		p.countRemoved(max(0, min(r.Last, last)-max(r.First, first)+1), unclear)
		first = max(first, r.Last+1)
	}
	if first <= last {
		p.addFault(Expired, first, last, time.Time{})
	}
}

// countRemoved counts events without a trace that retention has removed after they were done.
func (p *partitionAudit) countRemoved(n int64, unclear bool) {
	if n > 0 && unclear && !p.topic.Sparse && p.finder == nil && p.cfg.Filter == nil && len(p.cfg.StampsFrom) == 0 {
		p.addUnclear(n, removedWithout)
	} else {
		p.Removed += n
	}
}

// checkLog checks the events in the log. If reading fails it continues after the
// last event read, and gives up after maxFailures attempts without a new event.
func (p *partitionAudit) checkLog(ctx context.Context) error {
	failures := 0
	for p.lastRead = p.First - 1; p.lastRead < p.Last; {
		from := p.lastRead
		readErr, err := p.readLog(ctx)
		if readErr != nil && err == nil {
			if same := p.checkIncarnation(ctx); errors.Is(same, ErrUndecided) {
				err = same
			}
		}
		var expired *driver.RetentionError
		switch {
		case err != nil:
			return err
		case errors.As(readErr, &expired) && expired.First > p.lastRead+1:
			// They were in the log when the view was opened. Their content is unknown now.
			p.originalsUnknown = true
			if err := p.passRemoved(ctx, min(expired.First-1, p.Last)); err != nil {
				return err
			}
		case p.lastRead > from:
			failures = 0
		case failures == maxFailures || errors.Is(readErr, driver.ErrRefused):
			return readErr
		default:
			select {
			case <-time.After(firstWait << failures):
			case <-ctx.Done():
				return ctx.Err()
			}
			failures++
		}
	}
	return nil
}

const (
	// maxFailures is how often in a row reading is retried without a new event.
	maxFailures = 5
	// firstWait is the wait before the first of these retries. It doubles each time.
	firstWait = 200 * time.Millisecond
)

// readLog reads up to the last event. readErr is a failure of the log, after which
// another attempt may help; err ends the audit.
func (p *partitionAudit) readLog(ctx context.Context) (readErr, err error) {
	reader, readErr := p.source.Open(ctx, p.ID, driver.Position{Sequence: p.lastRead}, driver.NoEpoch)
	if readErr != nil {
		return readErr, nil
	}
	defer reader.Close(ctx)
	// The reader stays with one hub, which may be a recreated one: check it once
	// the reader is open.
	if readErr = p.checkIncarnation(ctx); readErr != nil {
		return readErr, nil
	}
	for p.lastRead < p.Last {
		events, readErr := p.read(ctx, reader)
		if readErr != nil {
			return readErr, nil
		}
		if err := p.checkRead(ctx, events); err != nil {
			return nil, err
		}
		p.addRead(len(events))
	}
	return nil, nil
}

// readWait is how long a read waits for an event that the log should hold.
const readWait = 15 * time.Second

// read reads the next events. If none comes, it looks whether retention has removed them: a
// log without any event returns nothing.
func (p *partitionAudit) read(ctx context.Context, reader driver.Reader) ([]*driver.Event, error) {
	bound, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	events, err := reader.Read(bound, readBatch)
	if err == nil || ctx.Err() != nil || bound.Err() == nil {
		return events, err
	}
	oldest, seekErr := p.source.Seek(ctx, p.ID, sluice.Earliest(), driver.NoEpoch)
	if seekErr == nil && oldest.Sequence > p.lastRead {
		return nil, &driver.RetentionError{Partition: p.ID, After: p.lastRead, First: oldest.Sequence + 1}
	}
	return nil, fmt.Errorf("no event after %d came within %v", p.lastRead, readWait)
}

// checkIncarnation checks that the hub was not recreated since the audit began.
func (p *partitionAudit) checkIncarnation(ctx context.Context) error {
	topic, err := p.source.Describe(ctx)
	if err == nil && topic.Incarnation != p.topic.Incarnation {
		return fmt.Errorf("%s was recreated while it was read: %w", p.topic.Topic, ErrUndecided)
	}
	return err
}

// checkEvent classifies an event of the log. e is nil if retention has removed it
// during the audit.
func (p *partitionAudit) checkEvent(ctx context.Context, sequence int64, enqueued time.Time, e *driver.Event) error {
	b, err := p.binOf(enqueued)
	if err != nil {
		return err
	}
	p.lastRead = sequence
	p.Held++
	b.Held++
	p.stampsSeen = p.stampsSeen || p.mayBeDuplicate(e)
	matched := e == nil || p.ids.add(p.stamps, e)
	earlier := p.isDuplicateOfAll(e)
	if sequence < p.start {
		p.Skipped++
		b.Skipped++
		return p.takeEntries(sequence, enqueued, "")
	}
	repeat := e != nil && p.dedup.IsDuplicate(e)
	effect, passed := p.effectOf(sequence, e), p.passed(sequence)
	unselected := false
	if p.entry.Sequence != sequence && effect.Copies == 0 && e != nil && p.cfg.Filter != nil {
		handled, err := p.cfg.Filter(ctx, e)
		if err != nil {
			return fmt.Errorf("decide whether event %d is handled: %w", sequence, err)
		}
		unselected = !handled
	}
	switch {
	case p.entry.Sequence == sequence:
		if p.entry.DeadLetter {
			p.DeadLetters++
			b.DeadLetters++
		} else {
			p.Written++
			b.Written++
		}
		if !passed {
			p.Ahead++
			b.Ahead++
		}
		switch {
		case repeat:
			return p.takeEntries(sequence, enqueued, Duplicated)
		case effect.Copies > 0:
			return p.takeDead(ctx, e)
		}
		return p.takeEntries(sequence, enqueued, "")
	case effect.Copies > 0:
		p.Written++
		b.Written++
		if !passed {
			p.Ahead++
			b.Ahead++
		}
		if repeat || effect.Copies > 1 {
			p.addFault(Duplicated, sequence, sequence, enqueued)
		}
	case unselected:
		p.Unselected++
		b.Unselected++
	case !passed && p.Doubt != NoCheckpoint:
		p.Waiting++
		b.Waiting++
	case repeat:
		p.Deduplicated++
		b.Deduplicated++
		switch {
		case p.ids.full:
			p.Unmatchable++
			b.Unmatchable++
		case !matched && !p.originalsUnknown:
			p.Unmatched++
			b.Unmatched++
		}
	default:
		if why := p.unclear(e, effect, earlier); why != "" {
			p.addUnclear(1, why)
			b.addUnclear(1, why)
			return nil
		}
		p.addFault(Lost, sequence, sequence, enqueued)
	}
	return nil
}

// isDuplicateOfAll reports whether an event is a duplicate if the consumer has seen the events
// before the beginning too. By its configured start it has not.
func (p *partitionAudit) isDuplicateOfAll(e *driver.Event) bool {
	return e != nil && p.Began.How != driver.HowStart && p.Began.Known() && p.all.IsDuplicate(e)
}

// unclear returns why it is not known whether an event that the checkpoint has passed, and that has
// no effect, is lost; empty if it is lost. earlier says that it may repeat a message before the
// beginning.
func (p *partitionAudit) unclear(e *driver.Event, effect Effect, earlier bool) string {
	mayRepeat := p.mayBeDuplicate(e) || e == nil && p.stampsSeen
	switch {
	case effect.Unknown != "":
		return effect.Unknown
	case !p.Began.Known():
		return noBeginning
	case p.originalsUnknown && mayRepeat:
		return mayRepeatGone
	case earlier:
		return mayRepeatEarlier
	case p.dedup.Forgot() && mayRepeat:
		return mayRepeatForgot
	case e == nil && p.cfg.Filter != nil:
		return mayBeLeftOut
	}
	return ""
}

// mayBeDuplicate reports whether an event may be a copy of another: it has the
// stamp of an earlier stage. It reports false for nil, an unknown event.
func (p *partitionAudit) mayBeDuplicate(e *driver.Event) bool {
	if e == nil || len(e.Properties) == 0 {
		return false
	}
	_, is, err := p.stamps.Read(e.Properties)
	return is || err != nil && !errors.Is(err, stamp.ErrSource) && !errors.Is(err, stamp.ErrSignature)
}

// takeEntries consumes the entries of an event. More than one is a duplicate.
// kind is the kind of fault if the entries themselves are a fault, else empty.
func (p *partitionAudit) takeEntries(sequence int64, enqueued time.Time, kind FaultKind) error {
	n := 0
	for ; p.entry.Sequence == sequence; n++ {
		if err := p.nextEntry(); err != nil {
			return err
		}
	}
	if 0 <= sequence && sequence < p.start {
		p.Earlier += int64(n)
		return nil
	}
	if sequence < p.First && kind != Stray {
		p.PastRetention += int64(n)
	}
	if kind == "" && n > 1 {
		kind = Duplicated
	}
	if kind != "" {
		p.addFault(kind, sequence, sequence, enqueued)
	}
	return nil
}

// addFault records events with a fault. It extends the run before them if that
// has the same fault.
func (p *partitionAudit) addFault(kind FaultKind, first, last int64, enqueued time.Time) {
	p.Count.addFaults(kind, last-first+1)
	if b := p.bins[p.binStart(enqueued)]; b != nil && !enqueued.IsZero() {
		b.Count.addFaults(kind, last-first+1)
	}
	// Kinds alternate where duplicated events lie among lost ones, so the last run
	// of each kind can be extended.
	for i := len(p.faults) - 1; i >= max(0, len(p.faults)-len(FaultKinds)); i-- {
		f := &p.faults[i]
		if f.Kind == kind && f.Last+1 == first && f.From.IsZero() == enqueued.IsZero() {
			f.Last, f.Until = last, enqueued
			return
		}
	}
	if len(p.faults) < p.cfg.MaxFaults {
		p.faults = append(p.faults, Fault{Kind: kind, Partition: p.ID, First: first, Last: last, From: enqueued, Until: enqueued})
	}
}

func (p *partitionAudit) binStart(enqueued time.Time) time.Time { return enqueued.Truncate(p.cfg.Bin) }

// binOf returns the bin of an event. Events are nearly ordered by time, so it is
// mostly the bin of the event before.
func (p *partitionAudit) binOf(enqueued time.Time) (*Bin, error) {
	if b := p.lastBin; b != nil && !enqueued.Before(b.Start) && enqueued.Sub(b.Start) < p.cfg.Bin {
		return b, nil
	}
	start := p.binStart(enqueued)
	b := p.bins[start]
	if b == nil {
		if len(p.bins) == maxBins {
			return nil, fmt.Errorf("more than %d bins of %v: choose longer bins", maxBins, p.cfg.Bin)
		}
		b = &Bin{Start: start}
		p.bins[start] = b
	}
	p.lastBin = b
	return b, nil
}
