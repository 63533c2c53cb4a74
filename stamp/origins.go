package stamp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/bounds"
	"github.com/sluice-go/sluice/internal/idset"
)

// What a partition remembers is bounded: maxDedupWords bounds the ids (24 MiB, with up to 64 ids in
// a word), maxDedupOrigins the origins (some 5 MB). Beyond a bound something is forgotten early,
// and that is reported, because duplicates of it take effect:
//
//   - A topic that takes less than its share of a bound, and a 64th of the bound less, loses
//     nothing. So whoever can forge the stamps of one feeding stage pushes out little of the
//     others.
//   - The origins of one source partition differ in the log's history: behind Kafka each leader
//     epoch has one. The newest of each goes last, so that many elections push out no other
//     partition.
//   - Of equals that whose last event is oldest goes first.
var (
	maxDedupWords   = bounds.Choose(1<<20, 4)
	maxDedupOrigins = bounds.Choose(1<<14, 6)
)

// origin is what is remembered of one emitter's partition.
type origin struct {
	name       string
	ofRedrives bool // it holds the ids of another origin's redrives
	epoch, low int64
	believed   believed // what a plausible stamp goes on from
	floor      int64    // ids up to here are forgotten because there were too many
	ids        idset.Set
	redrives   *origin   // nil if there were none
	enqueued   time.Time // of its last event; its redrives have the same time
	oldest     time.Time // the time of its oldest stored row; zero if none is stored
	row        int       // its row in the step being made, from 1; 0 if it has none
}

func (o *origin) has(id idset.ID) bool {
	return o.ids.Has(id) || o.redrives != nil && o.redrives.ids.Has(id)
}

// originTopic returns the topic that an emitter reads, in lower case, from the name of an origin:
// see [CausationID].
func originTopic(name string) string {
	source, _, _ := strings.Cut(name, "/")
	return strings.ToLower(source[:max(0, strings.LastIndexByte(source, '@'))])
}

// sourcePartition returns the name of an origin without the history of the log.
func sourcePartition(name string) string {
	source, partition, _ := strings.Cut(name, "/")
	if digest := strings.LastIndexByte(source, '@'); digest >= 0 {
		if dot := strings.IndexByte(source[digest:], '.'); dot >= 0 {
			source = source[:digest+dot]
		}
	}
	return source + "/" + partition
}

// fullness is what was forgotten because of a bound, until it is reported.
type fullness struct {
	origins int
	first   string // the first of the origins
	ids     string // the origin whose oldest ids were forgotten
}

// errors returns a report for each bound, and forgets what was reported.
func (f *fullness) errors() (list []error) {
	if f.ids != "" {
		list = append(list, fmt.Errorf("%w: the oldest causation ids of %s were forgotten, so duplicates of their messages take effect: check that the stage which sends them can store its checkpoint, and who else may send to the topic", driver.ErrDedupFull, f.ids))
	}
	if f.origins > 0 {
		list = append(list, fmt.Errorf("%w: %d of %d partitions of feeding stages were forgotten, first %s, so duplicates of their messages take effect: check who may send to the topic, and use a stamp key", driver.ErrDedupFull, f.origins, maxDedupOrigins, f.first))
	}
	*f = fullness{}
	return list
}

// find returns the origin of a name, and makes it if there is none.
func (r *Memory) find(name string, at time.Time) *origin {
	if o := r.origins[name]; o != nil {
		return o
	}
	var base *origin // the origin whose redrives these are
	if text, is := strings.CutSuffix(name, ofRedrives); is && strings.Contains(text, "/") {
		base = r.find(text, at)
	}
	if r.Loaded && len(r.origins) >= maxDedupOrigins {
		r.evict(base)
	}
	o := &origin{name: strings.Clone(name), ofRedrives: base != nil, low: driver.Origin.Sequence, floor: driver.Origin.Sequence, enqueued: at}
	r.origins[o.name] = o
	if base != nil {
		base.redrives = o
	}
	return o
}

// evict makes room for origins: it forgets some, but not keep. Room for one would cost a search for
// each event of a sender that forges origins.
func (r *Memory) evict(keep *origin) {
	counts := map[string]int{}
	for name := range r.origins {
		counts[originTopic(name)]++
	}
	share := maxDedupOrigins / len(counts)
	room := max(1, min(maxDedupOrigins/64, share/2))
	for _, o := range r.forgettable(keep) {
		topic := originTopic(o.name)
		if len(r.origins)+room <= maxDedupOrigins {
			break
		}
		if counts[topic] <= share-room {
			continue
		}
		if r.full.origins == 0 {
			r.full.first = o.name
		}
		forgotten := []string{o.name}
		if o.redrives != nil {
			forgotten = append(forgotten, o.redrives.name)
		}
		counts[topic] -= len(forgotten)
		r.full.origins += len(forgotten)
		r.evicted = append(r.evicted, forgotten...)
		r.drop(o)
	}
}

// forgettable returns the origins but keep, that which is forgotten first at the beginning. Those
// of redrives are forgotten with theirs.
func (r *Memory) forgettable(keep *origin) []*origin {
	type candidate struct {
		*origin
		newer int // origins of the same source partition
	}
	oldestFirst := func(a, b *origin) int { return cmp.Or(a.enqueued.Compare(b.enqueued), strings.Compare(a.name, b.name)) }
	partitions := map[string][]*origin{}
	for name, o := range r.origins {
		if !o.ofRedrives {
			p := sourcePartition(name)
			partitions[p] = append(partitions[p], o)
		}
	}
	candidates := make([]candidate, 0, len(r.origins))
	for _, list := range partitions {
		slices.SortFunc(list, oldestFirst)
		for i, o := range list {
			if o != keep {
				candidates = append(candidates, candidate{o, len(list) - 1 - i})
			}
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.newer, a.newer), oldestFirst(a.origin, b.origin))
	})
	list := make([]*origin, len(candidates))
	for i := range candidates {
		list[i] = candidates[i].origin
	}
	return list
}

// drop forgets an origin and its redrives.
func (r *Memory) drop(o *origin) {
	r.words -= o.ids.Words()
	o.ids = idset.Set{}
	delete(r.origins, o.name)
	if o.redrives != nil {
		r.drop(o.redrives)
		o.redrives = nil
	}
}

// add remembers an id. If there are too many, the oldest quarter of the largest origin is
// forgotten, of those topics that have their share or more.
func (r *Memory) add(o *origin, id idset.ID) {
	before := o.ids.Words()
	o.ids.Add(id)
	r.words += o.ids.Words() - before
	if r.words <= maxDedupWords {
		return
	}
	words := map[string]int{}
	for name, other := range r.origins {
		words[originTopic(name)] += other.ids.Words()
	}
	var largest *origin
	for name, other := range r.origins {
		if words[originTopic(name)] < maxDedupWords/len(words) {
			continue
		}
		if largest == nil || cmp.Or(cmp.Compare(other.ids.Words(), largest.ids.Words()), strings.Compare(largest.name, name)) > 0 {
			largest = other
		}
	}
	largest.floor = max(largest.floor, largest.ids.Quarter())
	r.full.ids = largest.name
	r.forget(largest, largest.floor)
}

// forget forgets the ids of events up to a number; a few may stay.
func (r *Memory) forget(o *origin, upTo int64) {
	before := o.ids.Words()
	o.ids.Forget(upTo)
	r.words -= before - o.ids.Words()
}

// redrivesOf returns where the ids of an origin's redrives are remembered. It lives as long as the
// origin.
func (r *Memory) redrivesOf(o *origin) *origin {
	if o.redrives == nil {
		return r.find(o.name+ofRedrives, o.enqueued)
	}
	return o.redrives
}
