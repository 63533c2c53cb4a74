package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Fault is a way in which a guarantee was broken.
type Fault string

// The faults that a [Checker] finds.
const (
	Lost       Fault = "lost"         // an event has neither an effect nor a dead letter
	Duplicated Fault = "doubled"      // an event has more than one of them
	Invented   Fault = "invented"     // an effect of an event that was not sent
	OutOfOrder Fault = "out of order" // an owner committed an earlier event after a later one
	Stale      Fault = "stale commit" // a commit by an owner that had been taken over
	Skipped    Fault = "skipped"      // the checkpoint passed events that no owner committed
	Backwards  Fault = "backwards"    // a checkpoint stood before what had been committed
)

// Finding is one fault.
type Finding struct {
	Fault     Fault
	Partition string
	Sequence  int64 // of the event, or the position, where it shows
	Detail    string
}

func (f Finding) String() string {
	return fmt.Sprintf("partition %s: event %d %s: %s", f.Partition, f.Sequence, f.Fault, f.Detail)
}

// Checker takes in records, in any order between owners and in the order of
// each owner's log, and checks them at the end. Time and memory are linear in
// the records and in the highest sequence number. The zero value is ready.
type Checker struct {
	partitions map[string]*partition
}

// partition is what is known of one partition.
type partition struct {
	first, last int64 // the events sent, if any were
	sent        bool
	void        []Record
	count       []byte // of effects and dead letters, by sequence number
	ownerships  map[int64]*ownership
	others      []Finding // faults found when records were added
}

// ownership is what one owner did in one epoch.
type ownership struct {
	owner      string
	epoch      int64
	claimed    bool
	start, end int64 // of the checkpoint, by its first claim and its last commit
}

const most = 1 << 28 // higher sequence numbers are refused: they would use up the memory

// Add takes in a record.
func (c *Checker) Add(r Record) {
	if c.partitions == nil {
		c.partitions = map[string]*partition{}
	}
	p := c.partitions[r.Partition]
	if p == nil {
		p = &partition{ownerships: map[int64]*ownership{}}
		c.partitions[r.Partition] = p
	}
	switch r.Kind {
	case Sent:
		p.first, p.last, p.sent = r.From+1, r.To, true
		if r.From < -1 || r.To >= most {
			p.others = append(p.others, Finding{Invented, r.Partition, r.To, "no events can have these numbers"})
			p.sent = false
		}
	case Void:
		p.void = append(p.void, r)
	case Effect, DeadLetter:
		p.seen(r)
	case Claimed:
		p.claim(r)
	case Committed:
		p.commit(r)
	}
}

func (p *partition) seen(r Record) {
	if r.To < 0 || r.To >= most {
		p.others = append(p.others, Finding{Invented, r.Partition, r.To, "no event can have this number"})
		return
	}
	for int64(len(p.count)) <= r.To {
		p.count = append(p.count, make([]byte, max(1024, len(p.count)))...)
	}
	if p.count[r.To] < 255 {
		p.count[r.To]++
	}
}

func (p *partition) claim(r Record) {
	e := p.ownershipOf(r)
	switch {
	case !e.claimed:
		e.claimed, e.start, e.end = true, r.To, r.To
	case r.To < e.end:
		p.others = append(p.others, Finding{Backwards, r.Partition, r.To,
			fmt.Sprintf("%s (epoch %d) found the checkpoint at %d after it had committed up to %d", r.Owner, r.Epoch, r.To, e.end)})
	default:
		// Its own commit, whose answer was lost.
		e.end = r.To
	}
}

func (p *partition) commit(r Record) {
	e := p.ownershipOf(r)
	switch {
	case r.To < r.From:
		p.others = append(p.others, Finding{Backwards, r.Partition, r.To, fmt.Sprintf("%s (epoch %d) moved the checkpoint from %d to %d", r.Owner, r.Epoch, r.From, r.To)})
	case !e.claimed:
		e.claimed, e.start = true, r.From
	case r.From < e.end && r.To != e.end: // the same commit again, learned from a claim, is none
		p.others = append(p.others, Finding{OutOfOrder, r.Partition, r.From + 1,
			fmt.Sprintf("%s (epoch %d) committed %d to %d after it had committed up to %d", r.Owner, r.Epoch, r.From+1, r.To, e.end)})
	case r.From > e.end && e.end >= -1:
		p.others = append(p.others, Finding{Skipped, r.Partition, e.end + 1,
			fmt.Sprintf("%s (epoch %d) committed %d to %d, but had committed up to %d only", r.Owner, r.Epoch, r.From+1, r.To, e.end)})
	}
	e.end = max(e.end, r.To)
}

func (p *partition) ownershipOf(r Record) *ownership {
	e := p.ownerships[r.Epoch]
	if e == nil {
		e = &ownership{owner: r.Owner, epoch: r.Epoch}
		p.ownerships[r.Epoch] = e
	}
	if e.owner != r.Owner {
		p.others = append(p.others, Finding{Stale, r.Partition, r.To, fmt.Sprintf("%s and %s were both active in epoch %d", e.owner, r.Owner, r.Epoch)})
		e.owner = r.Owner
	}
	return e
}

// Findings checks the records that were added: sorted by partition and sequence number, at
// most limit of each fault and partition (0: all).
func (c *Checker) Findings(limit int) []Finding {
	var all []Finding
	for _, id := range slices.Sorted(maps.Keys(c.partitions)) {
		p := c.partitions[id]
		found := slices.Concat(p.others, p.takeovers(id), p.events(id))
		slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(a.Sequence, b.Sequence) })
		n := map[Fault]int{}
		for _, f := range found {
			if n[f.Fault]++; limit <= 0 || n[f.Fault] <= limit {
				all = append(all, f)
			}
		}
	}
	return all
}

// takeovers compares each ownership with the one before.
func (p *partition) takeovers(id string) []Finding {
	var found []Finding
	epochs := slices.Sorted(maps.Keys(p.ownerships))
	for i := 1; i < len(epochs); i++ {
		before, after := p.ownerships[epochs[i-1]], p.ownerships[epochs[i]]
		if before.end > after.start && after.start >= -1 {
			found = append(found, Finding{Stale, id, after.start + 1,
				fmt.Sprintf("%s (epoch %d) claimed at %d, yet %s (epoch %d) committed up to %d", after.owner, after.epoch, after.start, before.owner, before.epoch, before.end)})
		}
		after.end = max(after.end, before.end)
	}
	return found
}

// events counts effects and dead letters.
func (p *partition) events(id string) []Finding {
	var found []Finding
	void := p.voids()
	for n := range int64(len(p.count)) {
		switch {
		case p.count[n] > 0 && (!p.sent || n < p.first || n > p.last):
			found = append(found, Finding{Invented, id, n, "it was never sent"})
		case p.count[n] > 0 && void[n]:
			found = append(found, Finding{Invented, id, n, "the log has no event of this number"})
		}
		if p.count[n] > 1 {
			found = append(found, Finding{Duplicated, id, n, fmt.Sprintf("%d effects and dead letters", p.count[n])})
		}
	}
	if !p.sent {
		return found
	}
	for n := p.first; n <= p.last; n++ {
		if (n >= int64(len(p.count)) || p.count[n] == 0) && !void[n] {
			found = append(found, Finding{Lost, id, n, "no effect and no dead letter"})
		}
	}
	return found
}

// voids are the numbers that are no events.
func (p *partition) voids() map[int64]bool {
	void := map[int64]bool{}
	for _, r := range p.void {
		for n := max(r.From+1, p.first); n <= min(r.To, p.last); n++ {
			void[n] = true
		}
	}
	return void
}
