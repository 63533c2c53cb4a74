package peek

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Seen is an event that was looked at.
type Seen struct {
	*driver.Event               // as it was sent
	Decoded       *driver.Event // nil if it does not decode
	Err           error         // why
}

// Config says what to look at.
type Config struct {
	Partitions []string      // empty: all
	Start      *driver.Start // nil: the newest events
	Limit      int           // the most events; 0 with Follow: no limit
	Follow     bool          // wait for new events
	Scan       int64         // how many events of each partition to search for the newest matches
	Match      *Match        // nil: all events match
	Decode     *Decoder
	Show       func(Seen) error
	Log        *slog.Logger // for what is strange while new events are awaited
	Searched   func()       // is called for each event that was read
	Waiting    func()       // is called before new events are awaited
	// Patience bounds the wait for an event that is there. Default: 30 s.
	Patience time.Duration
}

// Result is what was found.
type Result struct {
	Sparse     bool  // numbers of the log may have no event
	Events     int64 // that the partitions hold; numbers if Sparse
	Searched   int64 // that were read
	Shown      int
	Partitions []string // that were looked at
	Empty      []string // that hold nothing
	Earlier    []string // whose events are all before the start
	Cut        bool     // older events were not searched
	Notes      []string // what else the user should know
	Undecided  int64    // events of which it cannot be decided whether they match
	Why        error    // of the first of these
}

// look is one look at a log.
type look struct {
	*Config
	log   *Log
	spans []span

	mu     sync.Mutex
	result *Result
	kept   kept
}

// Run shows events of the log. With Follow it ends with ctx, and that is no error.
func Run(ctx context.Context, log *Log, cfg *Config) (*Result, error) {
	cfg.Patience = cmp.Or(cfg.Patience, 30*time.Second)
	topic, err := log.Describe(ctx)
	if err != nil {
		return nil, err
	}
	partitions, err := chosen(topic, cfg.Partitions)
	if err != nil {
		return nil, err
	}
	k := &look{Config: cfg, log: log, spans: make([]span, len(partitions)), result: &Result{Partitions: partitions, Sparse: topic.Sparse}}
	k.kept.limit, k.kept.newest = cfg.Limit, cfg.Start == nil
	err = eachPartition(ctx, partitions, parallel, func(ctx context.Context, i int) (err error) {
		k.spans[i], err = log.look(ctx, partitions[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	k.describe()
	follow := make([]int64, len(partitions)) // after which number
	for i := range k.spans {
		follow[i] = k.spans[i].last
	}
	switch {
	case cfg.Start == nil:
		err = k.showNewest(ctx)
	case cfg.Follow:
		err = k.seekAll(ctx, follow)
	default:
		err = k.showFrom(ctx)
	}
	if err == nil && cfg.Follow {
		cfg.Waiting()
		err = k.follow(ctx, follow)
	}
	return k.result, err
}

// chosen returns the partitions to look at.
func chosen(topic driver.Topic, wanted []string) ([]string, error) {
	for _, p := range wanted {
		if !slices.Contains(topic.Partitions, p) {
			return nil, fmt.Errorf("%s has no partition %s: its partitions are %s", topic.Topic, p, strings.Join(topic.Partitions, ", "))
		}
	}
	if len(wanted) > 0 {
		return slices.DeleteFunc(slices.Clone(topic.Partitions), func(p string) bool { return !slices.Contains(wanted, p) }), nil
	}
	return topic.Partitions, nil
}

// describe puts into the result what the partitions hold.
func (k *look) describe() {
	for i := range k.spans {
		s := &k.spans[i]
		k.result.Events += s.size()
		if s.size() == 0 {
			k.result.Empty = append(k.result.Empty, s.partition)
		}
		if s.held != nil {
			k.note("partition %s: %s cannot be read yet: %s: %s", s.partition, eventRange(s.last+1, s.held.Last), s.held.What, s.held.Check)
		}
	}
}

// eventRange names the events from one number to another.
func eventRange(first, last int64) string {
	if first == last {
		return fmt.Sprintf("event %d", first)
	}
	return fmt.Sprintf("events %d to %d", first, last)
}

func (k *look) note(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.result.Notes = append(k.result.Notes, fmt.Sprintf(format, args...))
}

// matches reports whether an event is to be shown, and counts it.
func (k *look) matches(ctx context.Context, e *driver.Event) (bool, error) {
	ok, err := true, error(nil)
	if k.Match != nil {
		ok, err = k.Match.matches(ctx, k.Decode, e)
	}
	k.Searched()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.result.Searched++
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, driver.ErrOutage):
		return false, fmt.Errorf("partition %s, sequence %d: %w", e.Partition, e.Sequence, err)
	default:
		if k.result.Undecided++; k.result.Why == nil {
			k.result.Why = fmt.Errorf("partition %s, sequence %d: %w", e.Partition, e.Sequence, err)
		}
		return false, nil
	}
	return ok, ctx.Err()
}

// showNewest shows the newest events that match. It reads from the end backwards, in windows that
// grow.
func (k *look) showNewest(ctx context.Context) error {
	err := eachPartition(ctx, k.result.Partitions, parallel, func(ctx context.Context, i int) error {
		s := &k.spans[i]
		oldest := max(s.first, s.last-k.Scan+1)
		width := int64(k.Limit)
		if k.Match != nil {
			width = max(width, leastWindow)
		}
		found := 0
		for end := s.last; end >= oldest && found < k.Limit; width *= 4 {
			begin := max(oldest-1, end-width)
			list, err := k.window(ctx, s.partition, begin, end)
			if err != nil {
				return err
			}
			list = list[max(0, len(list)-(k.Limit-found)):]
			found += len(list)
			if err := k.keep(list); err != nil {
				return err
			}
			end = begin
		}
		if found < k.Limit && oldest > s.first {
			k.mu.Lock()
			k.result.Cut = true
			k.mu.Unlock()
		}
		return nil
	})
	return k.showKept(ctx, err)
}

// leastWindow is how many events are read at first to search for those that match.
const leastWindow = 100

// window returns the newest events that match, at most as many as may be shown, of those after one
// number up to another. Events that retention has removed meanwhile are left out.
func (k *look) window(ctx context.Context, partition string, after, until int64) (list []*driver.Event, err error) {
	r := &reading{log: k.log, partition: partition, lastRead: after, end: until, patience: k.Patience, gone: func(_, _ int64) {}}
	r.event = func(e *driver.Event) (bool, error) {
		ok, err := k.matches(ctx, e)
		if ok && err == nil {
			if list = append(list, e); len(list) > 2*k.Limit {
				list = append(list[:0], list[len(list)-k.Limit:]...)
			}
		}
		return err == nil, err
	}
	err = r.run(ctx)
	return list, err
}

// showFrom shows the first events that match from the start on.
func (k *look) showFrom(ctx context.Context) error {
	err := eachPartition(ctx, k.result.Partitions, parallel, func(ctx context.Context, i int) error {
		s := &k.spans[i]
		after, err := k.log.seek(ctx, s.partition, *k.Start)
		if err != nil {
			return err
		}
		if s.size() > 0 && after >= s.last {
			k.mu.Lock()
			k.result.Earlier = append(k.result.Earlier, s.partition)
			k.mu.Unlock()
		}
		found := 0
		r := &reading{log: k.log, partition: s.partition, lastRead: after, end: s.last, patience: k.Patience, gone: k.gone(s.partition)}
		r.event = func(e *driver.Event) (bool, error) {
			if !k.wants(e) {
				return false, nil
			}
			ok, err := k.matches(ctx, e)
			if !ok || err != nil {
				return err == nil, err
			}
			found++
			return found < k.Limit, k.keep([]*driver.Event{e})
		}
		return r.run(ctx)
	})
	slices.SortFunc(k.result.Earlier, func(a, b string) int {
		return cmp.Compare(slices.Index(k.result.Partitions, a), slices.Index(k.result.Partitions, b))
	})
	return k.showKept(ctx, err)
}

// gone notes that events of a partition are gone. A consumer halts there.
func (k *look) gone(partition string) func(first, last int64) {
	return func(first, last int64) {
		k.note("partition %s: the log does not have %s any more: event %d is the next; a pipeline that starts at %d halts", partition, eventRange(first, last), last+1, first)
	}
}

// wants reports whether an event can be among those that are shown.
func (k *look) wants(e *driver.Event) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept.wants(e)
}

func (k *look) keep(list []*driver.Event) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept.add(list)
}

// showKept shows what was kept, also if the look was interrupted.
func (k *look) showKept(ctx context.Context, err error) error {
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	for _, e := range k.kept.sorted() {
		if failed := k.show(context.WithoutCancel(ctx), e); failed != nil {
			return failed
		}
	}
	if err != nil && !k.Follow {
		return errors.New("interrupted: not all of the events were looked at")
	}
	return err
}

func (k *look) show(ctx context.Context, e *driver.Event) error {
	s := Seen{Event: e}
	s.Decoded, s.Err = k.Decode.event(ctx, e)
	k.result.Shown++
	return k.Show(s)
}

// kept are the events to show, of all partitions: the newest, or the oldest.
type kept struct {
	limit  int
	newest bool
	list   []*driver.Event
	bytes  int
	worst  *driver.Event // the last that is wanted, if all later events are known not to be
}

// maxKept bounds what is kept, in bytes.
const maxKept = 256 << 20

func compare(a, b *driver.Event) int {
	return cmp.Or(a.Enqueued.Compare(b.Enqueued), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Sequence, b.Sequence))
}

// sorted returns the events in order of their time, at most as many as are wanted.
func (k *kept) sorted() []*driver.Event {
	slices.SortFunc(k.list, compare)
	if over := len(k.list) - k.limit; over > 0 && k.newest {
		k.list = append(k.list[:0], k.list[over:]...)
	} else if over > 0 {
		k.list = k.list[:k.limit]
		k.worst = k.list[k.limit-1]
	}
	return k.list
}

func (k *kept) wants(e *driver.Event) bool { return k.worst == nil || compare(e, k.worst) < 0 }

func (k *kept) add(list []*driver.Event) error {
	k.list = append(k.list, list...)
	for _, e := range list {
		k.bytes += e.Size()
	}
	if len(k.list) <= 2*k.limit && k.bytes <= maxKept {
		return nil
	}
	k.bytes = 0
	for _, e := range k.sorted() {
		k.bytes += e.Size()
	}
	if k.bytes > maxKept {
		return fmt.Errorf("the events to show have more than %d MiB: pass a smaller --limit", maxKept>>20)
	}
	return nil
}

// noEnd is the number of the last event to read where new ones are awaited.
const noEnd = math.MaxInt64
