package sluice

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

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
//     the watermark, and its first bearer was seen.
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
// judged by its id alone, and its id is remembered apart, for as long as an
// origin is.

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
}

// origin is what is remembered of one emitter's partition.
type origin struct {
	name       string
	epoch, low int64
	floor      int64 // ids up to here are forgotten, for there were too many
	ids        idset.Set
	retries    *origin // nil if there were none
	at         time.Time
	row        int // in a step's list, from 1 on
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
	moved      bool // epoch or low
	back       bool // low went back
	at         time.Time
}

// passage is a run of repeats behind an event: who passes that passes them.
type passage struct {
	after int64
	to    Position
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
func (r *repeats) load(rows []Seen, done int64) error {
	*r = repeats{loaded: true, judged: done, most: cmp.Or(r.most, mostWords), origins: map[string]*origin{}}
	for i := range rows {
		row := &rows[i]
		o := r.find(row.Origin)
		o.epoch, o.low, o.at = row.Epoch, row.Low, row.At
		if err := idset.Decode(row.IDs, func(id idset.ID) { r.add(o, id) }); err != nil {
			return fmt.Errorf("stored ids of %s: %w", row.Origin, err)
		}
	}
	for _, o := range r.origins {
		r.forget(o, o.low)
	}
	return nil
}

// find gives the origin of a name, a new one if there is none. Where there are
// too many the one goes that was heard of least recently.
func (r *repeats) find(name string) *origin {
	if o := r.origins[name]; o != nil {
		return o
	}
	if len(r.origins) >= mostOrigins {
		var oldest *origin
		for _, o := range r.origins {
			if oldest == nil || cmp.Or(o.at.Compare(oldest.at), strings.Compare(o.name, oldest.name)) < 0 {
				oldest = o
			}
		}
		r.drop(oldest)
	}
	o := &origin{name: strings.Clone(name), low: Origin.Sequence, floor: Origin.Sequence}
	o.retries = r.origins[name+ofRetries]
	r.origins[o.name] = o
	if of, is := strings.CutSuffix(name, ofRetries); is && strings.Count(of, "/") == 1 {
		r.find(of).retries = o
	}
	return o
}

// drop forgets an origin.
func (r *repeats) drop(o *origin) {
	r.words -= o.ids.Words()
	o.ids = idset.Set{}
	delete(r.origins, o.name)
	if of, is := strings.CutSuffix(o.name, ofRetries); is {
		if other := r.origins[of]; other != nil && other.retries == o {
			other.retries = nil
		}
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
	v, ok := r.examine(e)
	if !ok {
		return false
	}
	r.judged = e.Sequence
	r.trail = append(r.trail, v)
	return v.repeat
}

func (r *repeats) examine(e *Event) (verdict, bool) {
	v := verdict{sequence: e.Sequence, at: e.Enqueued}
	text, _, err := stampText(e.Properties)
	if err != nil {
		return v, false
	}
	name, sequence, n, err := cutChainID(text)
	if err != nil {
		return v, false
	}
	v.id = idset.ID{Sequence: sequence, N: int32(n)}
	epoch, low, retry, err := stampMarks(e.Properties)
	if err != nil {
		return v, false
	}
	o := r.origins[name]
	if o == nil {
		if _, err := ParseChainID(text); err != nil {
			return v, false
		}
		o = r.find(name)
	}
	if e.Enqueued.After(r.newest) {
		r.newest = e.Enqueued
	}
	o.at = e.Enqueued
	known := o.has(v.id)
	if retry {
		if o.retries == nil {
			o.retries = r.find(name + ofRetries)
		}
		o = o.retries
		o.at = e.Enqueued
		v.origin, v.epoch, v.low, v.repeat = o, o.epoch, o.low, known
	} else {
		if v.back = epoch > o.epoch && low < o.low; v.back {
			r.forget(o, math.MaxInt64)
			o.low, known = low, o.has(v.id)
		}
		v.origin, v.repeat = o, known || sequence <= o.low
		v.moved = v.back || epoch > o.epoch || epoch == o.epoch && low > o.low
		if v.moved {
			o.epoch, o.low = epoch, max(o.low, low)
			r.forget(o, o.low)
		}
		v.epoch, v.low = o.epoch, o.low
	}
	if !v.repeat {
		r.add(o, v.id)
	}
	return v, true
}

// seen is what a step must store that goes from one event to another, and how
// many repeats it passes.
func (r *repeats) seen(from, to int64) (list []Seen, since time.Time, repeats int) {
	var ids [][]idset.ID
	for i := range r.trail {
		v := &r.trail[i]
		if v.sequence <= from || v.sequence > to {
			continue
		}
		if v.repeat {
			repeats++
			if !v.moved {
				continue
			}
		}
		if v.origin.row == 0 {
			list, ids = append(list, Seen{Origin: v.origin.name, Forget: v.origin.floor}), append(ids, nil)
			v.origin.row = len(list)
		}
		n := v.origin.row - 1
		row := &list[n]
		if v.back {
			row.Forget, ids[n] = math.MaxInt64, nil
		}
		row.Epoch, row.Low, row.At = v.epoch, v.low, v.at
		row.Forget = max(row.Forget, v.low)
		if !v.repeat {
			ids[n] = append(ids[n], v.id)
		}
	}
	for i := range r.trail {
		r.trail[i].origin.row = 0
	}
	for i := range list {
		list[i].IDs = idset.Encode(ids[i])
		list[i].Top = list[i].Low
		for _, id := range ids[i] {
			list[i].Top = max(list[i].Top, id.Sequence)
		}
	}
	if len(list) > 0 && r.newest.Sub(r.swept) > sweepEvery {
		r.swept, since = r.newest, r.newest.Add(-rememberFor)
		for _, o := range r.origins {
			if o.at.Before(since) {
				r.drop(o)
			}
		}
	}
	return list, since, repeats
}
