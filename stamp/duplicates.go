package stamp

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/idset"
)

// How duplicates are detected.
//
// An sluice.AtLeastOnce stage sends a message again when an answer was lost, when the
// next owner of its partition repeats what was in flight, and when a paused
// owner's write arrives late. All messages of one causation id come to one
// partition here, because the emitter chooses the partition by the id or by the
// event's key. The first of them in this partition's log is handled; the others
// are duplicates. The decision depends on the log up to the event and on nothing
// else: a batch that is rolled back, split or read again changes nothing, and an
// event is no duplicate of itself.
//
// For each origin (source and partition of the ids) the partition remembers the
// ids of the events that it has handled or stored as dead letters, the highest
// epoch, and the highest watermark that came under that epoch. An event is a
// duplicate if
//
//   - its id is remembered. The first event of the id was handled or is a dead
//     letter; the redrive of that dead letter does not pass through here;
//   - or its number is at or below the watermark. Before the emitter sent the
//     watermark, it had stored its checkpoint there. Before that, every message
//     of the events up to there had been accepted. So each of them is in the log
//     before the watermark, and its first event was seen. (Or the event is a dead
//     letter of the emitter: then its redrive brings the message.)
//
// Neither rule loses anything: both say that an event of the same id comes
// earlier in this log. No id above the watermark is forgotten, so no duplicate is
// handled twice. The rules do not depend on epochs: a late write of an earlier
// owner is decided by its id like any other. (Dropping it for its epoch would lose
// events when epochs start again, for example with another checkpoint store.)
// Epochs only decide whose watermark counts: that of the highest.
//
// A watermark that moves backwards under a higher epoch shows that the emitter's
// checkpoint was set back, because each owner starts at or after the checkpoint of
// the last one. Then the ids are forgotten and what is sent again takes effect
// again, as the command of an operator announced. Ids above the watermark that this
// partition has seen are the exception: nothing shows that the checkpoint moved.
// A failover that lost commits of the emitter's database looks the same. It repeats
// effects then, and loses none: an event whose dead letter was lost is sent like the
// others, and its message must not be taken for a duplicate. What goes back is reported.
// It is not seen if the next owner has the epoch of the lost one, or if its first message
// here has a watermark at or above the last one. Then the repeated events are duplicates,
// except the redrive of one that became a dead letter only in the repetition: its id is
// forgotten.
//
// The redrive of a dead letter comes after the watermark has passed its event. It
// is decided by its id alone. Therefore each watermark names the dead letters
// before it: the ids of those of their messages that were accepted are kept when
// others are forgotten. The ids of redrives are kept for as long as the origin.
//
// The guarantee ends where an operator sets this partition's own checkpoint back:
// what was seen after the position is forgotten, but what had been forgotten
// before is not remembered again. So messages before the position whose ids a
// later watermark removed may take effect again if duplicates of them are after
// it. A checkpoint that moves backwards because the database has lost commits has
// lost their ids too: then the remembered state is read again.

const (
	// rememberFor is how long an origin is remembered after its last event, by
	// the log's clock: the longest retention of Event Hubs, so the longest time
	// after which an event could be sent again.
	rememberFor = 90 * 24 * time.Hour
	// sweepEvery is the time between two searches for older origins.
	sweepEvery = time.Hour
)

// ofRedrives is the suffix of the origin that holds the ids of redrives. It is
// part of the stored name.
const ofRedrives = "/retry"

// Memory is what one partition remembers of causation ids. Its zero value is
// empty. One goroutine uses it.
type Memory struct {
	belief      belief // whose stamps count
	Loaded      bool
	origins     map[string]*origin
	words       int        // of all ids
	DecidedUpTo int64      // sequence number of the last event decided
	decisions   []decision // of the events after the checkpoint that carry a stamp
	runs        []duplicateRun
	newest      time.Time             // when the newest event decided was enqueued
	swept       time.Time             // newest, when old origins were last searched
	full        fullness              // what was forgotten too early; for a report
	faults      []error               // of stamps: that do not count, the first of each kind, and that go back; for reports
	noted       [stampFaultKinds]bool // which kinds were among the faults
	evicted     []string              // origins forgotten because there were too many, in no decision yet
}

// NewMemory returns an empty one that believes the stamps of these stages.
func NewMemory(from []Source) *Memory {
	return &Memory{belief: newBelief(from)}
}

// BelievesNone reports whether no stage is named whose stamps count.
func (r *Memory) BelievesNone() bool { return len(r.belief) == 0 }

// NoteUnnamed notes the stamp of an event as one of a stage that is not named.
func (r *Memory) NoteUnnamed(e *driver.Event) {
	text, _, _ := textOf(e.Properties)
	r.noteFault(e, unnamedStage(text))
}

// TakeFaults returns what is wrong with stamps and was not returned before.
func (r *Memory) TakeFaults() []error {
	faults := r.faults
	r.faults = nil
	return faults
}

// Forgotten returns what was forgotten too early and was not reported for a while.
func (r *Memory) Forgotten() []error { return r.full.errors() }

// decision is what was decided about one event.
type decision struct {
	sequence   int64 // of the event
	origin     *origin
	id         idset.ID
	epoch, low int64 // the origin's, after the event
	duplicate  bool
	isNew      bool       // the id is new to the origin
	moved      bool       // epoch or low changed
	movedBack  bool       // low moved backwards
	keptIDs    []idset.ID // ids that move to the redrives
	redrives   *origin    // where they move to
	evicted    []string   // origins forgotten because there were too many
	enqueued   time.Time
}

// duplicateRun is a run of duplicates directly after an event: the step that moves
// the checkpoint past the event moves it past them too.
type duplicateRun struct {
	sequence int64
	end      driver.Position
}

// Deduplicator detects the duplicates in one partition's log as sluice.Transactional
// does, for programs that account for its events. The zero value has seen nothing.
// It must be used by one goroutine.
type Deduplicator struct {
	// StampsFrom are the stages whose stamps count, as in sluice.Config. It must be set
	// before the first event. Default: none.
	StampsFrom []Source

	state  Memory
	forgot bool
}

// Forgot reports whether ids were forgotten because there were too many, or ids of too many
// origins: since then duplicates may be missed.
func (r *Deduplicator) Forgot() bool { return r.forgot }

// IsDuplicate takes the log's next event and reports whether it is a duplicate of
// an earlier one. It cannot detect a duplicate of an event that lies before the
// first one it was given.
func (r *Deduplicator) IsDuplicate(e *driver.Event) bool {
	if !In(e) {
		return false
	}
	if !r.state.Loaded {
		r.state.belief = newBelief(r.StampsFrom)
		_ = r.state.Load(nil, e.Sequence-1) // no rows, so no error
	}
	v, err := r.state.decide(e)
	r.forgot = r.forgot || len(r.state.full.errors()) > 0
	return err == nil && v.duplicate
}

// In reports whether an event may be a duplicate.
func In(e *driver.Event) bool {
	if len(e.Properties) == 0 {
		return false
	}
	_, there := e.Properties[propertyID]
	return there
}

// Reset forgets what was seen, not the configuration and what was reported.
func (r *Memory) Reset() {
	*r = Memory{belief: r.belief, noted: r.noted}
}

// Load takes over the partition's stored rows, oldest first. The checkpoint stands
// at done.
func (r *Memory) Load(rows []driver.DedupState, done int64) error {
	r.Reset()
	r.DecidedUpTo, r.origins = done, map[string]*origin{}
	for i := range rows {
		row := &rows[i]
		o := r.find(row.Origin, row.At)
		o.epoch, o.low, o.enqueued = row.Epoch, row.Low, row.At
		if o.epoch > 0 || o.low > driver.Origin.Sequence { // a watermark was believed
			o.believed.advance(o.epoch, o.low, o.enqueued)
		}
		if o.oldest.IsZero() || row.At.Before(o.oldest) {
			o.oldest = row.At
		}
		if err := idset.Decode(row.IDs, 64*maxDedupWords, func(id idset.ID) { r.add(o, id) }); err != nil {
			return fmt.Errorf("stored ids of %s: %w", row.Origin, err)
		}
	}
	r.Loaded = true
	if len(r.origins) > maxDedupOrigins { // those of a build with another bound
		r.evict(nil)
	}
	for _, o := range r.origins {
		r.forget(o, o.low)
		if o.redrives == nil {
			continue
		}
		if o.redrives.enqueued.After(o.enqueued) {
			o.enqueued = o.redrives.enqueued
		}
		o.redrives.enqueued = o.enqueued
	}
	return nil
}

// Filter returns the events without the duplicates. The checkpoint stands at done.
func (r *Memory) Filter(events []*driver.Event, done int64) []*driver.Event {
	n := 0
	for n < len(r.decisions) && r.decisions[n].sequence <= done {
		n++
	}
	r.decisions = slices.Delete(r.decisions, 0, n)
	r.runs = r.runs[:0]
	keptIDs, whole := events, true
	var last *driver.Event
	for i, e := range events {
		switch {
		case !In(e) || !r.isDuplicate(e):
			if last = e; !whole {
				keptIDs = append(keptIDs, e)
			}
			continue
		case whole:
			keptIDs, whole = append(make([]*driver.Event, 0, len(events)), events[:i]...), false
		}
		if n := len(r.runs); last != nil && n > 0 && r.runs[n-1].sequence == last.Sequence {
			r.runs[n-1].end = e.Position()
		} else if last != nil {
			r.runs = append(r.runs, duplicateRun{last.Sequence, e.Position()})
		}
	}
	return keptIDs
}

// After returns the position after an event and the duplicates that follow it.
func (r *Memory) After(e *driver.Event) driver.Position {
	for _, p := range r.runs {
		if p.sequence == e.Sequence {
			return p.end
		}
	}
	return e.Position()
}

// isDuplicate reports whether an event with a stamp is a duplicate. An event whose
// stamp cannot be read or is not believed is not: it is handled like one without a
// stamp.
func (r *Memory) isDuplicate(e *driver.Event) bool {
	if e.Sequence <= r.DecidedUpTo {
		i, found := slices.BinarySearchFunc(r.decisions, e.Sequence, func(v decision, n int64) int { return cmp.Compare(v.sequence, n) })
		return found && r.decisions[i].duplicate
	}
	v, err := r.decide(e)
	if err != nil {
		r.noteFault(e, err)
		return false
	}
	if v.movedBack {
		r.faults = append(r.faults, fmt.Errorf("event %d: the checkpoint of the sending stage's partition %s went back: messages that it sends again, from event %d on, take effect again. If no operator has set the checkpoint back, the sending stage's database has lost commits: check which of these messages took effect twice", e.Sequence, v.origin.name, v.low+1))
	}
	r.DecidedUpTo = e.Sequence
	r.decisions = append(r.decisions, v)
	return v.duplicate
}

// faultKind is a kind of fault of stamps.
type faultKind int

const (
	faultUnreadable faultKind = iota
	faultSource
	faultSignature
	faultImplausible
	stampFaultKinds
)

func faultKindOf(err error) faultKind {
	switch {
	case errors.Is(err, ErrSource):
		return faultSource
	case errors.Is(err, ErrSignature):
		return faultSignature
	case errors.Is(err, errImplausible):
		return faultImplausible
	}
	return faultUnreadable
}

// stampFaultAdvice says what a fault means and what to do.
var stampFaultAdvice = [stampFaultKinds]string{
	faultUnreadable:  "duplicates of messages with such stamps are not detected: check which program sets the properties named sluice-*",
	faultSource:      "duplicates of its messages are not detected: if this stage feeds the consumer, name the topic that it reads in Config.StampsFrom (in a pipeline file: source.from)",
	faultSignature:   "duplicates of such messages are not detected: give the feeding stage and this consumer the same stamp key, and check who else may send to the topic",
	faultImplausible: "the watermark is ignored, so that it suppresses no events: check who may send to the topic, and use a stamp key",
}

// noteFault keeps the first error of each kind of a stamp, for a report.
func (r *Memory) noteFault(e *driver.Event, err error) {
	kind := faultKindOf(err)
	if r.noted[kind] {
		return
	}
	r.noted[kind] = true
	r.faults = append(r.faults, fmt.Errorf("stamp of event %d: %w: %s", e.Sequence, err, stampFaultAdvice[kind]))
}

// decide decides about an event that is new here. It returns an error if the
// event's stamp cannot be read or is not believed.
func (r *Memory) decide(e *driver.Event) (decision, error) {
	v := decision{sequence: e.Sequence, enqueued: e.Enqueued}
	text, _, err := textOf(e.Properties)
	if err != nil {
		return v, err
	}
	name, sequence, n, err := cutCausationID(text)
	if err != nil {
		return v, fmt.Errorf("causation id %.80q: %w", text, err)
	}
	v.id = idset.ID{Sequence: sequence, N: int32(n)}
	stamp := Stamp{ID: CausationID{Sequence: sequence}}
	if err := stamp.readMarks(e.Properties); err != nil {
		return v, err
	}
	o := r.origins[name]
	if o == nil {
		if _, err := ParseCausationID(text); err != nil {
			return v, err
		}
	}
	if err := r.belief.check(e.Properties, text, &stamp); err != nil {
		return v, err
	}
	if o == nil {
		o = r.find(name, e.Enqueued)
	}
	if e.Enqueued.After(r.newest) {
		r.newest = e.Enqueued
	}
	o.enqueued = e.Enqueued
	if o.redrives != nil {
		o.redrives.enqueued = o.enqueued
	}
	known := o.has(v.id)
	if stamp.Redrive {
		o = r.redrivesOf(o)
		v.origin, v.epoch, v.low = o, o.epoch, o.low
		v.duplicate, v.isNew = known, !o.ids.Has(v.id)
	} else {
		v.origin = o
		if err := o.believed.check(&stamp, e.Enqueued); err != nil {
			r.noteFault(e, err)
			stamp.Epoch, stamp.Low = math.MinInt64, driver.Origin.Sequence // as from an owner before all others
		} else {
			o.believed.advance(stamp.Epoch, stamp.Low, e.Enqueued)
		}
		v.movedBack = stamp.Epoch > o.epoch && stamp.Low < o.low
		v.moved = v.movedBack || stamp.Epoch > o.epoch || stamp.Epoch == o.epoch && stamp.Low > o.low
		switch {
		case v.movedBack:
			r.forget(o, math.MaxInt64)
			o.low, known = stamp.Low, o.has(v.id)
		case v.moved:
			if v.keptIDs, err = r.keep(o, stamp); err != nil {
				v.moved = false // which ids that watermark must keep is unknown
				r.noteFault(e, err)
			}
		}
		v.duplicate = known || sequence <= o.low
		v.isNew = !v.duplicate
		if v.moved {
			o.epoch, o.low = stamp.Epoch, max(o.low, stamp.Low)
			r.forget(o, o.low)
		}
		v.epoch, v.low, v.redrives = o.epoch, o.low, o.redrives
	}
	if v.isNew {
		r.add(o, v.id)
	}
	v.evicted, r.evicted = r.evicted, nil
	return v, nil
}

// keep moves to the redrives, and returns, the ids that a watermark passes although
// their messages may be sent again: those of the emitter's dead letters.
func (r *Memory) keep(o *origin, stamp Stamp) (keptIDs []idset.ID, err error) {
	if stamp.Parked == "" {
		return nil, nil
	}
	between := func(first, last int64) {
		o.ids.Range(max(first, o.low+1), min(last, stamp.Low), func(id idset.ID) { keptIDs = append(keptIDs, id) })
	}
	floor, err := eachParked(stamp.Parked, func(sequence int64) { between(sequence, sequence) })
	if err != nil {
		return nil, err
	}
	between(driver.Origin.Sequence, floor)
	for _, id := range keptIDs {
		r.add(r.redrivesOf(o), id)
	}
	return keptIDs, nil
}

// AddTo adds to a step what it must store and remove, and returns how many
// duplicates the step passes.
func (r *Memory) AddTo(step *driver.Step) (duplicates int) {
	var list []driver.DedupState
	var ids [][]idset.ID
	var rows []*origin
	row := func(o *origin) int {
		if o.row == 0 {
			rows, list, ids = append(rows, o), append(list, driver.DedupState{Origin: o.name, Epoch: o.epoch, Low: o.low, Forget: o.floor}), append(ids, nil)
			o.row = len(list)
		}
		return o.row - 1
	}
	for i := range r.decisions {
		v := &r.decisions[i]
		if v.sequence <= step.From.Sequence || v.sequence > step.To.Sequence {
			continue
		}
		if v.duplicate {
			duplicates++
		}
		for _, name := range v.evicted {
			step.DedupForgotten = append(step.DedupForgotten, name)
			for n := range list {
				if list[n].Origin == name {
					list[n].Origin = "" // the same name may come again as a new origin
				}
			}
		}
		if !v.isNew && !v.moved {
			continue
		}
		n := row(v.origin)
		if v.movedBack {
			list[n].Forget, ids[n] = math.MaxInt64, nil
		}
		list[n].Epoch, list[n].Low, list[n].At = v.epoch, v.low, v.enqueued
		list[n].Forget = max(list[n].Forget, v.low)
		if v.isNew {
			ids[n] = append(ids[n], v.id)
		}
		if len(v.keptIDs) > 0 {
			n := row(v.redrives)
			list[n].At, ids[n] = v.enqueued, append(ids[n], v.keptIDs...)
		}
	}
	if len(list) > 0 && r.newest.Sub(r.swept) > sweepEvery {
		step.DedupSince = r.newest.Add(-rememberFor)
		for _, o := range r.origins {
			if o.ofRedrives && !o.oldest.IsZero() && o.oldest.Before(step.DedupSince) && !o.enqueued.Before(step.DedupSince) {
				// Older than its origin's last event: stored again.
				n := row(o)
				list[n].Forget, list[n].At, ids[n] = math.MaxInt64, o.enqueued, r.upTo(o, step.To.Sequence)
			}
		}
	}
	for _, o := range rows {
		o.row = 0
	}
	for i := range list {
		list[i].IDs = idset.Encode(ids[i])
		list[i].Top = list[i].Low
		for _, id := range ids[i] {
			list[i].Top = max(list[i].Top, id.Sequence)
		}
	}
	step.Dedup = slices.DeleteFunc(list, func(s driver.DedupState) bool { return s.Origin == "" })
	return duplicates
}

// upTo returns the remembered ids of redrives without those that events after a
// sequence number have added.
func (r *Memory) upTo(o *origin, sequence int64) (ids []idset.ID) {
	later := map[idset.ID]bool{}
	for i := range r.decisions {
		v := &r.decisions[i]
		if v.sequence <= sequence {
			continue
		}
		if v.isNew && v.origin == o {
			later[v.id] = true
		}
		if v.redrives == o {
			for _, id := range v.keptIDs {
				later[id] = true
			}
		}
	}
	o.ids.Range(0, math.MaxInt64, func(id idset.ID) {
		if !later[id] {
			ids = append(ids, id)
		}
	})
	return ids
}

// Committed updates the state after a step has committed: what it has stored, and
// what it has removed because of its age.
func (r *Memory) Committed(step *driver.Step) {
	for i := range step.Dedup {
		s := &step.Dedup[i]
		if o := r.origins[s.Origin]; o != nil && (o.oldest.IsZero() || s.Forget == math.MaxInt64) {
			o.oldest = s.At
		}
	}
	if step.DedupSince.IsZero() {
		return
	}
	r.swept = r.newest
	for _, o := range r.origins {
		if !o.ofRedrives && o.enqueued.Before(step.DedupSince) {
			r.drop(o)
		}
	}
}
