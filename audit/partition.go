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

// maxBins bounds the account of a partition.
const maxBins = 100_000

// partitionAudit is the audit of one partition: the events of the log and the entries
// of the ledger, both ascending, laid side by side.
type partitionAudit struct {
	*auditor
	Partition
	faults   []Fault
	bins     map[time.Time]*Bin
	lastBin  *Bin  // that was counted in
	start    int64 // events before it were never to be consumed
	lastRead int64 // the last event of the log that was looked at

	dedup            sluice.Deduplicator
	stampsSeen       bool // messages of a stage before were seen
	originalsUnknown bool // events were not seen, which may be repeated

	pull     func() (Entry, error, bool)
	entry    Entry // the one at hand; its sequence number is none at the end
	previous int64 // that of the entry before
}

// none is no sequence number, behind all.
const none = math.MaxInt64

func (p *partitionAudit) run(ctx context.Context) error {
	before, err := p.source.Bounds(ctx, p.ID)
	if err != nil {
		return err
	}
	view, err := p.ledger.Open(ctx, p.topic, p.ID)
	if err != nil {
		return err
	}
	defer view.Close()
	if err := p.readCheckpoint(ctx, view); err != nil {
		return err
	}
	// What the view has was in the log when it began, and is not behind its end
	// now; what the log has given up since was still there then.
	after, err := p.source.Bounds(ctx, p.ID)
	if err != nil {
		return err
	}
	p.First, p.Last = before.First, after.Last.Sequence
	p.originalsUnknown = p.First > 0
	if p.Checkpoint > p.Last {
		return fmt.Errorf("the checkpoint is at %d, and the hub's newest event is %d: check that it is the right hub: %w", p.Checkpoint, p.Last, ErrUndecided)
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
		if p.start == none {
			p.start = p.Checkpoint + 1
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

// readCheckpoint reads the checkpoint.
func (p *partitionAudit) readCheckpoint(ctx context.Context, view View) error {
	p.Checkpoint = driver.Unset.Sequence
	progress, found, err := view.Checkpoint(ctx)
	if err != nil || !found {
		return err
	}
	if progress.Incarnation != p.topic.Incarnation {
		return fmt.Errorf("the hub was recreated since its checkpoint was made (it is of %s, the hub of %s), and numbers its events anew: %w",
			progress.Incarnation, p.topic.Incarnation, ErrUndecided)
	}
	p.Checkpoint = progress.Position.Sequence
	return nil
}

// nextEntry takes the next entry.
func (p *partitionAudit) nextEntry() error {
	e, err, ok := p.pull()
	if err != nil {
		return err
	}
	if !ok {
		e.Sequence = none
	} else if p.previous != none && e.Sequence < p.previous {
		return fmt.Errorf("the ledger's entries are not sorted: %d behind %d", e.Sequence, p.previous)
	}
	p.previous, p.entry = e.Sequence, e
	return nil
}

// checkExpired looks at events that the log doesn't hold any more. From the first that
// left something behind on, none up to the checkpoint may lack it, and all that
// lie between that and the log's first were given up unread.
func (p *partitionAudit) checkExpired() error {
	next := int64(none) // that is expected
	for p.entry.Sequence < p.First {
		s := p.entry.Sequence
		if next != none && s > next {
			p.addWithoutEntry(next, s-1)
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
		p.addWithoutEntry(next, p.First-1)
	}
	return nil
}

// addWithoutEntry notes events without effect that the log doesn't hold.
func (p *partitionAudit) addWithoutEntry(first, last int64) {
	if passed := min(last, p.Checkpoint); first <= passed {
		p.addFault(Lost, first, passed, time.Time{})
		first = passed + 1
	}
	if first <= last {
		p.addFault(Expired, first, last, time.Time{})
	}
}

// checkLog looks at what the log holds. Where reading breaks off it goes on behind
// the last event read.
func (p *partitionAudit) checkLog(ctx context.Context) error {
	fruitless := 0
	for p.lastRead = p.First - 1; p.lastRead < p.Last; {
		from := p.lastRead
		broken, err := p.readLog(ctx)
		if broken != nil && err == nil {
			if same := p.checkIncarnation(ctx); errors.Is(same, ErrUndecided) {
				err = same
			}
		}
		var expired *sluice.RetentionError
		switch {
		case err != nil:
			return err
		case errors.As(broken, &expired) && expired.First > p.lastRead+1:
			// They were there when the view began; now nobody can tell what they were.
			p.originalsUnknown = true
			for p.lastRead < min(expired.First-1, p.Last) {
				if err := p.checkEvent(p.lastRead+1, time.Time{}, nil); err != nil {
					return err
				}
			}
		case p.lastRead > from:
			fruitless = 0
		case fruitless == maxFailures || errors.Is(broken, sluice.ErrRefused):
			return broken
		default:
			select {
			case <-time.After(firstWait << fruitless):
			case <-ctx.Done():
				return ctx.Err()
			}
			fruitless++
		}
	}
	return nil
}

const (
	// maxFailures is how often in a row reading may be taken up again without
	// getting any further.
	maxFailures = 5
	// firstWait is how long the first of these waits; each next one waits twice as
	// long.
	firstWait = 200 * time.Millisecond
)

// readLog reads on, up to the last event. That the log broke off is told apart
// from what ends the audit.
func (p *partitionAudit) readLog(ctx context.Context) (broken, err error) {
	reader, broken := p.source.Open(ctx, p.ID, sluice.Position{Sequence: p.lastRead}, 0)
	if broken != nil {
		return broken, nil
	}
	defer reader.Close(ctx)
	// A reader stays with one hub, but with which?
	if broken = p.checkIncarnation(ctx); broken != nil {
		return broken, nil
	}
	for p.lastRead < p.Last {
		events, broken := reader.Read(ctx, readBatch)
		if broken != nil {
			return broken, nil
		}
		for _, e := range events {
			if e.Sequence > p.Last {
				break
			}
			if err := p.checkEvent(e.Sequence, e.Enqueued, e); err != nil {
				return nil, err
			}
		}
		p.addRead(len(events))
	}
	return nil, nil
}

// checkIncarnation makes sure that the hub is still the one that the audit began with.
func (p *partitionAudit) checkIncarnation(ctx context.Context) error {
	topic, err := p.source.Describe(ctx)
	if err == nil && topic.Incarnation != p.topic.Incarnation {
		return fmt.Errorf("the hub was recreated while it was read: %w", ErrUndecided)
	}
	return err
}

// checkEvent looks for what became of an event of the log, which is nil if it is
// gone by now.
func (p *partitionAudit) checkEvent(sequence int64, enqueued time.Time, e *sluice.Event) error {
	b, err := p.binOf(enqueued)
	if err != nil {
		return err
	}
	p.lastRead = sequence
	p.Held++
	b.Held++
	p.stampsSeen = p.stampsSeen || mayBeDuplicate(e)
	// Of what came before its start the consumer knew nothing.
	repeat := e != nil && sequence >= p.start && p.dedup.IsDuplicate(e)
	switch {
	case p.entry.Sequence == sequence:
		if p.entry.DeadLetter {
			p.DeadLetters++
			b.DeadLetters++
		} else {
			p.Written++
			b.Written++
		}
		if sequence > p.Checkpoint {
			p.Ahead++
			b.Ahead++
		}
		if repeat {
			return p.takeEntries(sequence, enqueued, Duplicated)
		}
		return p.takeEntries(sequence, enqueued, "")
	case sequence < p.start:
		p.Skipped++
		b.Skipped++
	case sequence > p.Checkpoint:
		p.Waiting++
		b.Waiting++
	case repeat:
		p.Deduplicated++
		b.Deduplicated++
	case p.originalsUnknown && (mayBeDuplicate(e) || e == nil && p.stampsSeen):
		p.Unclear++
		b.Unclear++
	default:
		p.addFault(Lost, sequence, sequence, enqueued)
	}
	return nil
}

// mayBeDuplicate tells whether an event, nil if nobody knows it, may repeat another: a
// stage before sent it.
func mayBeDuplicate(e *sluice.Event) bool {
	if e == nil || len(e.Properties) == 0 {
		return false
	}
	_, is, err := sluice.StampFrom(e.Properties)
	return is || err != nil
}

// takeEntries takes the entries of an event: one, or it is doubled. If they are
// themselves a fault, its kind is given.
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

// addFault notes events with something wrong, as a run with those before them if
// it is the same.
func (p *partitionAudit) addFault(kind FaultKind, first, last int64, enqueued time.Time) {
	p.Count.addFaults(kind, last-first+1)
	if b := p.bins[p.binStart(enqueued)]; b != nil && !enqueued.IsZero() {
		b.Count.addFaults(kind, last-first+1)
	}
	// Kinds alternate where doubled events lie among missing ones, so the last
	// run of the kind is what counts.
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

// binOf is where an event is counted. Events come in the order of their times,
// or nearly: mostly it is that of the event before.
func (p *partitionAudit) binOf(enqueued time.Time) (*Bin, error) {
	if b := p.lastBin; b != nil && !enqueued.Before(b.Start) && enqueued.Sub(b.Start) < p.cfg.Bin {
		return b, nil
	}
	start := p.binStart(enqueued)
	b := p.bins[start]
	if b == nil {
		if len(p.bins) == maxBins {
			return nil, fmt.Errorf("more than %d bins of %v: take longer ones", maxBins, p.cfg.Bin)
		}
		b = &Bin{Start: start}
		p.bins[start] = b
	}
	p.lastBin = b
	return b, nil
}
