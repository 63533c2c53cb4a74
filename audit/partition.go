package audit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice"
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
	start    int64 // the consumer was never to process events before this one
	lastRead int64 // the last event of the log that was checked

	dedup            sluice.Deduplicator
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

func (p *partitionAudit) run(ctx context.Context) error {
	// By Seek, because Bounds may be out of date.
	first, err := p.source.Seek(ctx, p.ID, sluice.Earliest(), 0)
	if err != nil {
		return err
	}
	view, err := p.ledger.Open(ctx, p.topic, p.ID)
	if err != nil {
		return err
	}
	defer view.Close()
	p.finder, _ = view.(Finder)
	p.effects = map[int64]Effect{}
	if err := p.readCheckpoint(ctx, view); err != nil {
		return err
	}
	// Every event of the view was in the log when the view was opened, so it is
	// not after the log's end as it is now. What retention has removed since was
	// still in the log then.
	last, err := p.source.Seek(ctx, p.ID, sluice.Latest(), 0)
	if err != nil {
		return err
	}
	p.First, p.Last = first.Sequence+1, last.Sequence
	p.originalsUnknown = p.First > 0
	if p.Checkpoint > p.Last {
		return fmt.Errorf("the checkpoint is at %d, and the newest event of %s is %d: check that this is the right log, and that it was not truncated: %w", p.Checkpoint, p.topic.Topic, p.Last, ErrUndecided)
	}
	entries, stop := iter.Pull2(view.Entries(ctx))
	defer stop()
	p.pull = func() (Entry, error, bool) { return entries() }
	p.previous, p.bins = none, map[time.Time]*Bin{}
	if err := p.nextEntry(); err != nil {
		return err
	}
	for p.entry.Sequence < 0 {
		if err := p.takeEntries(p.entry.Sequence, time.Time{}, Stray); err != nil {
			return err
		}
	}
	if p.cfg.Start.Kind != driver.StartEarliest {
		p.start = p.entry.Sequence
		if p.start == none || p.finder != nil { // until an effect is found
			p.start = min(p.start, p.Checkpoint+1)
		}
	}
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
		return err
	}
	if checkpoint.Incarnation != p.topic.Incarnation {
		return fmt.Errorf("%s was recreated after its checkpoint (checkpoint of incarnation %s, now %s), so sequence numbers started again: %w",
			p.topic.Topic, checkpoint.Incarnation, p.topic.Incarnation, ErrUndecided)
	}
	p.Checkpoint, p.done = checkpoint.Position.Sequence, checkpoint.Done
	return nil
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

// checkExpired checks events that the log no longer has. From the first one with
// an entry on, each up to the checkpoint must have one, unless the log is sparse:
// then the numbers without entries may not have been events. With a filter they may
// have been left out. Of a target that is asked for each event nothing is known. Those
// between the checkpoint and the log's first event expired unread.
func (p *partitionAudit) checkExpired() error {
	next := int64(none) // the expected sequence number
	for p.entry.Sequence < p.First {
		s := p.entry.Sequence
		if next != none && s > next {
			p.addWithoutEntry(p.expected(next), s-1)
		}
		next = s + 1
		if err := p.takeEntries(s, time.Time{}, ""); err != nil {
			return err
		}
	}
	if next == none {
		next = p.Checkpoint + 1
		if p.Checkpoint < driver.Origin.Sequence {
			return nil
		}
	}
	if next < p.First {
		p.addWithoutEntry(p.expected(next), p.First-1)
	}
	return nil
}

// expected returns the first number from next on that must have an entry, or has
// expired unread.
func (p *partitionAudit) expected(next int64) int64 {
	if p.topic.Sparse || p.finder != nil || p.cfg.Filter != nil {
		return max(next, p.Checkpoint+1)
	}
	return next
}

// addWithoutEntry records a run of events without an entry that the log no longer
// has: lost up to the checkpoint, expired after it.
func (p *partitionAudit) addWithoutEntry(first, last int64) {
	if passed := min(last, p.Checkpoint); first <= passed {
		p.addFault(Lost, first, passed, time.Time{})
		first = passed + 1
	}
	for _, r := range p.done {
		if first <= min(r.First-1, last) {
			p.addFault(Expired, first, min(r.First-1, last), time.Time{})
		}
		first = max(first, r.Last+1)
	}
	if first <= last {
		p.addFault(Expired, first, last, time.Time{})
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
		var expired *sluice.RetentionError
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
		case failures == maxFailures || errors.Is(readErr, sluice.ErrRefused):
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
	reader, readErr := p.source.Open(ctx, p.ID, sluice.Position{Sequence: p.lastRead}, 0)
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
func (p *partitionAudit) read(ctx context.Context, reader driver.Reader) ([]*sluice.Event, error) {
	bound, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	events, err := reader.Read(bound, readBatch)
	if err == nil || ctx.Err() != nil || bound.Err() == nil {
		return events, err
	}
	oldest, seekErr := p.source.Seek(ctx, p.ID, sluice.Earliest(), 0)
	if seekErr == nil && oldest.Sequence > p.lastRead {
		return nil, &sluice.RetentionError{Partition: p.ID, After: p.lastRead, First: oldest.Sequence + 1}
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
func (p *partitionAudit) checkEvent(ctx context.Context, sequence int64, enqueued time.Time, e *sluice.Event) error {
	b, err := p.binOf(enqueued)
	if err != nil {
		return err
	}
	p.lastRead = sequence
	p.Held++
	b.Held++
	p.stampsSeen = p.stampsSeen || p.mayBeDuplicate(e)
	// The consumer has not seen what came before its start.
	repeat := e != nil && sequence >= p.start && p.dedup.IsDuplicate(e)
	matched := e == nil || p.ids.add(p.stamps, e)
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
		p.start = min(p.start, sequence)
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
	case sequence < p.start && effect.Unknown == "":
		p.Skipped++
		b.Skipped++
	case !passed:
		p.Waiting++
		b.Waiting++
	case repeat:
		p.Deduplicated++
		b.Deduplicated++
		if !matched && !p.originalsUnknown {
			p.Unmatched++
			b.Unmatched++
		}
	case effect.Unknown != "":
		p.addUnclear(1, effect.Unknown)
		b.addUnclear(1, effect.Unknown)
	case p.originalsUnknown && (p.mayBeDuplicate(e) || e == nil && p.stampsSeen):
		p.addUnclear(1, mayRepeat)
		b.addUnclear(1, mayRepeat)
	case e == nil && p.cfg.Filter != nil:
		p.addUnclear(1, mayBeLeftOut)
		b.addUnclear(1, mayBeLeftOut)
	default:
		p.addFault(Lost, sequence, sequence, enqueued)
	}
	return nil
}

// mayBeDuplicate reports whether an event may be a copy of another: it has the
// stamp of an earlier stage. It reports false for nil, an unknown event.
func (p *partitionAudit) mayBeDuplicate(e *sluice.Event) bool {
	if e == nil || len(e.Properties) == 0 {
		return false
	}
	_, is, err := p.stamps.Read(e.Properties)
	return is || err != nil && !errors.Is(err, sluice.ErrStampSource) && !errors.Is(err, sluice.ErrStampSignature)
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
