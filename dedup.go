package sluice

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice/internal/idset"
)

// How repeats are told.
//
// An [AtLeastOnce] stage sends a message again when an answer was lost, when
// the next owner of its partition repeats what was in flight, when a paused
// owner's write arrives late. All messages of one chain id come to one
// partition here, for the emitter chooses the partition by the id or by the
// event's key. Of them the first that this partition's log holds is
// handled, and the others are passed over. What decides is a pure function of
// the log up to the event, never of tries: that a batch is rolled back, taken
// apart or read again changes nothing, and an event is no repeat of itself.
//
// For each origin (source and partition of the ids) the partition remembers
// the ids of the events that it has handled or parked, the highest epoch, and
// the highest watermark that came under it. An event is a repeat if
//
//   - its id is remembered. The first event of the id was handled or is a dead
//     letter, and stays the id's bearer; its retry does not come this way;
//   - or it lies at or below the watermark. Before the watermark was sent, the
//     emitter's checkpoint had been stored there; before that, every message of
//     the events up to there had been accepted: so each is in the log before
//     the watermark, and its first bearer was seen. (Or the event is a dead
//     letter of the emitter's: then its retry brings the message.)
//
// Neither loses anything: both say that a bearer of the id comes earlier in
// this log. And no id above the watermark is forgotten, so no repeat is taken
// for news. That does not hang on epochs: a late write of an earlier owner is
// judged by its id like any other. (To drop it for its epoch would lose events
// when epochs begin anew, as with another checkpoint store.) Only whose
// watermark counts is a matter of epochs: that of the highest.
//
// A watermark that goes back under a higher epoch says that the emitter's
// checkpoint was set back by hand, since each owner begins where the last one's
// checkpoint stood or behind. Then its ids are forgotten, and what is sent
// again takes effect again, as the person was told; but for ids above the
// watermark that this partition had seen, where nothing shows that it went back.
//
// A retry of a dead letter comes when the watermark has passed its event. It is
// judged by its id alone. So with a watermark comes which events before it are
// dead letters: the ids of those of their messages that got through before are
// kept when others are forgotten, and so are the ids of retries, for as long as
// an origin is.
//
// It ends where this partition's own checkpoint is set back by hand: what was
// seen behind the position is forgotten, but what had been forgotten there is
// not remembered again. So messages before the position whose ids a later
// watermark let go may take effect again if repeats of them lie behind it. A
// checkpoint that goes back by itself, in a database that has lost commits, has
// lost their ids with them: what is remembered is read anew then.

const (
	// rememberFor is how long an origin is remembered after its last event,
	// by the log's clock: the longest that Event Hubs retains what could be
	// sent again.
	rememberFor = 90 * 24 * time.Hour
	// sweepEvery is the time between two looks for what is older.
	sweepEvery = time.Hour
	// mostWords bounds the ids that a partition remembers: 24 MiB, with up to 64
	// to a word; and mostOrigins where they come from.
	mostWords   = 1 << 20
	mostOrigins = 4096
)

// ofRetries is what the origin of retries has behind that of other ids.
const ofRetries = "/retry"

// repeats is what one partition remembers of chain ids. Its zero value is
// empty. It is used by one goroutine.
type repeats struct {
	loaded   bool
	origins  map[string]*origin
	words    int
	most     int       // words; 0: mostWords
	judged   int64     // sequence number of the last event judged
	trail    []verdict // of the events behind the checkpoint that carry a stamp
	passages []passage
	newest   time.Time // when the log took the newest event judged
	swept    time.Time // likewise, when old origins were last looked for
	crowded  string    // the origin of which ids were forgotten too early
	unread   error     // of the first stamp that could not be read, or its watermark
	evicted  []string  // origins forgotten for their number, which no verdict tells yet
}

// origin is what is remembered of one emitter's partition.
type origin struct {
	name       string
	ofRetries  bool // what is remembered of another's retries
	epoch, low int64
	floor      int64 // ids up to here are forgotten, for there were too many
	ids        idset.Set
	retries    *origin   // nil if there were none
	at         time.Time // of its last event; its retries have the same
	oldest     time.Time // the time of what is stored of it for longest; zero: nothing is
	row        int       // in a step's list, from 1 on
}

func (o *origin) has(id idset.ID) bool {
	return o.ids.Has(id) || o.retries != nil && o.retries.ids.Has(id)
}

// verdict is what was found about one event.
type verdict struct {
	sequence   int64 // of the event
	origin     *origin
	id         idset.ID
	epoch, low int64 // the origin's behind the event
	repeat     bool
	fresh      bool       // the id is new to the origin
	moved      bool       // epoch or low
	back       bool       // low went back
	kept       []idset.ID // ids that go over to the retries
	retries    *origin    // where they go
	gone       []string   // origins forgotten for their number
	at         time.Time
}

// passage is a run of repeats behind an event: who passes that passes them.
type passage struct {
	after int64
	to    Position
}

// Deduplicator tells the repeats in one partition's log, as [Transactional] does: for
// those who account for its events. The zero value has seen nothing. It is used
// by one goroutine.
type Deduplicator struct{ memory repeats }

// IsDuplicate takes the log's next event, and tells whether it repeats an earlier one.
// Of one whose id was first seen before the first event taken it can't know.
func (r *Deduplicator) IsDuplicate(e *Event) bool {
	if !carriesStamp(e) {
		return false
	}
	if !r.memory.loaded {
		_ = r.memory.load(nil, e.Sequence-1) // of nothing there is no error
	}
	v, err := r.memory.examine(e)
	return err == nil && v.repeat
}

// carriesStamp tells whether an event has to be judged.
func carriesStamp(e *Event) bool {
	if len(e.Properties) == 0 {
		return false
	}
	_, there := e.Properties[propertyID]
	return there
}

// load takes over what the store has of the partition, oldest first, whose
// checkpoint stands at done.
func (r *repeats) load(rows []driver.DedupState, done int64) error {
	*r = repeats{loaded: true, judged: done, most: cmp.Or(r.most, mostWords), origins: map[string]*origin{}}
	for i := range rows {
		row := &rows[i]
		o := r.find(row.Origin, row.At)
		o.epoch, o.low, o.at = row.Epoch, row.Low, row.At
		if o.oldest.IsZero() || row.At.Before(o.oldest) {
			o.oldest = row.At
		}
		if err := idset.Decode(row.IDs, 64*mostWords, func(id idset.ID) { r.add(o, id) }); err != nil {
			return fmt.Errorf("stored ids of %s: %w", row.Origin, err)
		}
	}
	for _, o := range r.origins {
		r.forget(o, o.low)
		if o.retries == nil {
			continue
		}
		if o.retries.at.After(o.at) {
			o.at = o.retries.at
		}
		o.retries.at = o.at
	}
	return nil
}

// find gives the origin of a name, which is heard of at a time, a new one if
// there is none. Where there are too many the one goes that was heard of least
// recently.
func (r *repeats) find(name string, at time.Time) *origin {
	if o := r.origins[name]; o != nil {
		return o
	}
	var of *origin // whose retries these are
	if base, is := strings.CutSuffix(name, ofRetries); is && strings.Contains(base, "/") {
		of = r.find(base, at)
	}
	for len(r.origins) >= mostOrigins {
		r.evict(of)
	}
	o := &origin{name: strings.Clone(name), ofRetries: of != nil, low: driver.Origin.Sequence, floor: driver.Origin.Sequence, at: at}
	r.origins[o.name] = o
	if of != nil {
		of.retries = o
	}
	return o
}

// evict forgets the origin heard of least recently, but for one.
func (r *repeats) evict(but *origin) {
	var oldest *origin
	for _, o := range r.origins {
		if o != but && !o.ofRetries && (oldest == nil || cmp.Or(o.at.Compare(oldest.at), strings.Compare(o.name, oldest.name)) < 0) {
			oldest = o
		}
	}
	r.evicted = append(r.evicted, oldest.name)
	if oldest.retries != nil {
		r.evicted = append(r.evicted, oldest.retries.name)
	}
	r.drop(oldest)
}

// drop forgets an origin and its retries.
func (r *repeats) drop(o *origin) {
	r.words -= o.ids.Words()
	o.ids = idset.Set{}
	delete(r.origins, o.name)
	if o.retries != nil {
		r.drop(o.retries)
		o.retries = nil
	}
}

// add remembers an id.
func (r *repeats) add(o *origin, id idset.ID) {
	before := o.ids.Words()
	o.ids.Add(id)
	r.words += o.ids.Words() - before
	if r.words <= r.most {
		return
	}
	for _, other := range r.origins {
		if n := cmp.Compare(other.ids.Words(), o.ids.Words()); n > 0 || n == 0 && other.name < o.name {
			o = other
		}
	}
	o.floor = max(o.floor, o.ids.Quarter())
	r.crowded = o.name
	r.forget(o, o.floor)
}

// forget forgets ids of events up to a number; a few may stay.
func (r *repeats) forget(o *origin, upTo int64) {
	before := o.ids.Words()
	o.ids.Forget(upTo)
	r.words -= before - o.ids.Words()
}

// weed returns the events without those that repeat earlier ones. The
// checkpoint stands at done.
func (r *repeats) weed(events []*Event, done int64) []*Event {
	n := 0
	for n < len(r.trail) && r.trail[n].sequence <= done {
		n++
	}
	r.trail = slices.Delete(r.trail, 0, n)
	r.passages = r.passages[:0]
	kept, whole := events, true
	var last *Event
	for i, e := range events {
		switch {
		case !carriesStamp(e) || !r.judge(e):
			if last = e; !whole {
				kept = append(kept, e)
			}
			continue
		case whole:
			kept, whole = append(make([]*Event, 0, len(events)), events[:i]...), false
		}
		if n := len(r.passages); last != nil && n > 0 && r.passages[n-1].after == last.Sequence {
			r.passages[n-1].to = e.Position()
		} else if last != nil {
			r.passages = append(r.passages, passage{last.Sequence, e.Position()})
		}
	}
	return kept
}

// beyond is the position behind an event and the repeats that follow it.
func (r *repeats) beyond(e *Event) Position {
	for _, p := range r.passages {
		if p.after == e.Sequence {
			return p.to
		}
	}
	return e.Position()
}

// judge tells whether an event with a stamp is a repeat. One whose stamp can't
// be read is none: it is handled like an event without.
func (r *repeats) judge(e *Event) bool {
	if e.Sequence <= r.judged {
		i, found := slices.BinarySearchFunc(r.trail, e.Sequence, func(v verdict, n int64) int { return cmp.Compare(v.sequence, n) })
		return found && r.trail[i].repeat
	}
	v, err := r.examine(e)
	if err != nil {
		r.note(e, err)
		return false
	}
	r.judged = e.Sequence
	r.trail = append(r.trail, v)
	return v.repeat
}

// note keeps what is wrong with an event's stamp, for somebody to be told.
func (r *repeats) note(e *Event, err error) {
	if r.unread == nil {
		r.unread = fmt.Errorf("stamp of event %d: %w", e.Sequence, err)
	}
}

// examine judges an event that was not judged before. The error is that its
// stamp can't be read.
func (r *repeats) examine(e *Event) (verdict, error) {
	v := verdict{sequence: e.Sequence, at: e.Enqueued}
	text, _, err := stampText(e.Properties)
	if err != nil {
		return v, err
	}
	name, sequence, n, err := cutChainID(text)
	if err != nil {
		return v, fmt.Errorf("chain id %.80q: %w", text, err)
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
		o = r.find(name, e.Enqueued)
	}
	if e.Enqueued.After(r.newest) {
		r.newest = e.Enqueued
	}
	o.at = e.Enqueued
	if o.retries != nil {
		o.retries.at = o.at
	}
	known := o.has(v.id)
	if stamp.Redrive {
		o = r.retriesOf(o)
		v.origin, v.epoch, v.low = o, o.epoch, o.low
		v.repeat, v.fresh = known, !o.ids.Has(v.id)
	} else {
		v.origin = o
		v.back = stamp.Epoch > o.epoch && stamp.Low < o.low
		v.moved = v.back || stamp.Epoch > o.epoch || stamp.Epoch == o.epoch && stamp.Low > o.low
		switch {
		case v.back:
			r.forget(o, math.MaxInt64)
			o.low, known = stamp.Low, o.has(v.id)
		case v.moved:
			if v.kept, err = r.keep(o, stamp); err != nil {
				v.moved = false // nobody knows what that watermark leaves behind
				r.note(e, err)
			}
		}
		v.repeat = known || sequence <= o.low
		v.fresh = !v.repeat
		if v.moved {
			o.epoch, o.low = stamp.Epoch, max(o.low, stamp.Low)
			r.forget(o, o.low)
		}
		v.epoch, v.low, v.retries = o.epoch, o.low, o.retries
	}
	if v.fresh {
		r.add(o, v.id)
	}
	v.gone, r.evicted = r.evicted, nil
	return v, nil
}

// retriesOf is where the ids of an origin's retries are remembered. It lives as
// long as the origin.
func (r *repeats) retriesOf(o *origin) *origin {
	if o.retries == nil {
		return r.find(o.name+ofRetries, o.at)
	}
	return o.retries
}

// keep hands the ids over to the retries that a watermark passes although their
// events may be sent again, and returns them.
func (r *repeats) keep(o *origin, stamp Stamp) (kept []idset.ID, err error) {
	if stamp.Parked == "" {
		return nil, nil
	}
	between := func(first, last int64) {
		o.ids.Between(max(first, o.low+1), min(last, stamp.Low), func(id idset.ID) { kept = append(kept, id) })
	}
	floor, err := eachParked(stamp.Parked, func(sequence int64) { between(sequence, sequence) })
	if err != nil {
		return nil, err
	}
	between(driver.Origin.Sequence, floor)
	for _, id := range kept {
		r.add(r.retriesOf(o), id)
	}
	return kept, nil
}

// seen writes into a step what it must store and remove, and returns how many
// repeats the step passes.
func (r *repeats) seen(step *driver.Step) (repeats int) {
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
	for i := range r.trail {
		v := &r.trail[i]
		if v.sequence <= step.From.Sequence || v.sequence > step.To.Sequence {
			continue
		}
		if v.repeat {
			repeats++
		}
		for _, name := range v.gone {
			step.DedupForgotten = append(step.DedupForgotten, name)
			for n := range list {
				if list[n].Origin == name {
					list[n].Origin = "" // it may come again, as another
				}
			}
		}
		if !v.fresh && !v.moved {
			continue
		}
		n := row(v.origin)
		if v.back {
			list[n].Forget, ids[n] = math.MaxInt64, nil
		}
		list[n].Epoch, list[n].Low, list[n].At = v.epoch, v.low, v.at
		list[n].Forget = max(list[n].Forget, v.low)
		if v.fresh {
			ids[n] = append(ids[n], v.id)
		}
		if len(v.kept) > 0 {
			n := row(v.retries)
			list[n].At, ids[n] = v.at, append(ids[n], v.kept...)
		}
	}
	if len(list) > 0 && r.newest.Sub(r.swept) > sweepEvery {
		step.DedupSince = r.newest.Add(-rememberFor)
		for _, o := range r.origins {
			if o.ofRetries && !o.oldest.IsZero() && o.oldest.Before(step.DedupSince) && !o.at.Before(step.DedupSince) {
				// Older than its origin's last event: stored again.
				n := row(o)
				list[n].Forget, list[n].At, ids[n] = math.MaxInt64, o.at, r.upTo(o, step.To.Sequence)
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
	return repeats
}

// upTo is what is remembered of retries but for what events behind one have
// added.
func (r *repeats) upTo(o *origin, sequence int64) (ids []idset.ID) {
	later := map[idset.ID]bool{}
	for i := range r.trail {
		v := &r.trail[i]
		if v.sequence <= sequence {
			continue
		}
		if v.fresh && v.origin == o {
			later[v.id] = true
		}
		if v.retries == o {
			for _, id := range v.kept {
				later[id] = true
			}
		}
	}
	o.ids.Between(0, math.MaxInt64, func(id idset.ID) {
		if !later[id] {
			ids = append(ids, id)
		}
	})
	return ids
}

// stored takes note that a step is done: of what it has stored, and of what was
// removed for its age.
func (r *repeats) stored(step *driver.Step) {
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
		if !o.ofRetries && o.at.Before(step.DedupSince) {
			r.drop(o)
		}
	}
}
