package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Numbers without a record have one of two causes. Compaction removes records, also the last ones
// of a log: then a broker returns nothing at a number, though its log ends later, and would do so
// for ever. Some brokers take numbers for the beginning of a transaction and do not return them.
// Where neither can be the cause, numbers are dense, and one that is missing is an alarm.
//
// That a broker returns nothing shows nothing by itself: brokers do so if they are short of memory,
// or could not get data from a remote store in time. So the reader repeats the fetch for voidFor.
// The numbers are passed only if the topic is compacted, the broker stores the number itself, and
// names no later record.

// earliestLocal stands for the first number that a broker stores itself (KIP-405).
const earliestLocal = -4

// voidFor is how long a broker must return nothing before the numbers up to the end of its log may
// be passed, or are reported as missing.
const voidFor = 10 * time.Second

// voidLeast is how many fetches must have returned nothing. A process that was paused after the
// first one has waited for long and asked once.
const voidLeast = 3

// voidPause is the first pause before a fetch that returned nothing is repeated. Each pause is
// twice as long as the one before, up to voidPauseMost.
const (
	voidPause     = 200 * time.Millisecond
	voidPauseMost = 2 * time.Second
)

// void is the state of a reader whose leader returns nothing at a number, though its log ends
// later.
type void struct {
	began time.Time // zero: the leader returns records, or the log ends there
	pause time.Duration
	empty int // fetches that returned nothing
}

// begin takes note of an answer without records, and returns how long to wait before the next
// fetch.
func (v *void) begin(now time.Time) time.Duration {
	if v.began.IsZero() {
		*v = void{began: now, pause: voidPause}
	}
	v.empty++
	pause := v.pause
	v.pause = min(2*v.pause, voidPauseMost)
	return pause
}

// endIn returns the number after the last that a reader may see, by an answer to a fetch.
func (s *Source) endIn(p *kmsg.FetchResponseTopicPartition) int64 {
	if s.cfg.ReadUncommitted {
		return p.HighWatermark
	}
	return p.LastStableOffset
}

// confirmVoid repeats the fetch after a pause, if the leader had nothing at the number to fetch
// next, though its log ended at end. After voidFor and voidLeast answers it decides whether the
// numbers are passed.
func (r *reader) confirmVoid(end int64, wait time.Duration) {
	if pause(r.life, wait) != nil {
		return
	}
	r.mu.Lock()
	lasted := time.Duration(0)
	if !r.void.began.IsZero() {
		lasted = time.Since(r.void.began)
	}
	next, empty := r.next, r.void.empty
	r.mu.Unlock()
	if lasted >= r.source.voidFor && empty >= voidLeast {
		hint, err := r.proveVoid(next, end)
		switch {
		case errors.Is(err, errGrown) && lasted < 2*r.source.voidFor:
		case err != nil:
			r.fail(r.source.explain(r.name(), fmt.Errorf("find out why the broker returned nothing at offset %d: %w", next, err)))
			return
		case hint != "":
			r.fail(&driver.RetentionError{Partition: r.decoder.converter.partition, After: next - 1, First: end, Held: true,
				Hint: fmt.Sprintf("the broker returned nothing at offset %d, %d times in %v, %s", next, empty, r.source.voidFor, hint)})
			return
		default:
			r.passVoid(end)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.atVoid = false
	if r.fetcher != nil {
		r.fetcher.signal()
	}
}

// passVoid passes the numbers up to the end of a log, all of whose records were removed.
func (r *reader) passVoid(end int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Of the records before the end only the leader is known, which need not have written them.
	r.past = history{epoch: r.epoch, first: -1}
	r.next = end
	r.void = void{}
	r.chunks = append(r.chunks, &chunk{void: end - 1, past: r.past})
	r.notify()
}

// errGrown says that the log has a record behind the end that the last answer named: it may have
// come since. A fetch must return it soon.
var errGrown = errors.New("the broker names a record behind the end of its log")

// proveVoid returns an empty hint if all numbers from next to the end of the log were removed, else
// what speaks against it.
func (r *reader) proveVoid(next, end int64) (hint string, err error) {
	ctx, cancel := context.WithTimeout(r.life, r.source.client.timeout)
	defer cancel()
	if hint, err := r.source.compaction.hint(ctx, r.source); hint != "" || err != nil {
		return hint, err
	}
	l, err := r.source.leader(ctx, r.partition, false)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	l.epoch = r.epoch // another leader refuses it
	r.mu.Unlock()
	newest, err := r.source.list(ctx, l, newestTime)
	switch {
	case unsupported(err): // a broker before 3.0
	case err != nil:
		return "", err
	case newest.offset >= end:
		return "", errGrown
	case newest.offset >= next:
		return fmt.Sprintf("though it names a record at %d: check the broker's memory and its log", newest.offset), nil
	}
	local, err := r.source.listIn(ctx, l, readUncommitted, earliestLocal)
	switch {
	case unsupported(err): // such a broker has no tiered storage
	case err != nil:
		return "", err
	case local.offset > next:
		return fmt.Sprintf("and its remote store has the records before %d: check that store", local.offset), nil
	}
	return "", nil
}

// Paused implements [driver.PausedReader]: the reader repeats the fetch of a leader that returns
// nothing, and decides after voidFor.
func (r *reader) Paused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.void.began.IsZero()
}

// gapError says that the log has no records for some numbers, and nothing explains it yet.
type gapError struct{ first, last int64 }

func (e *gapError) Error() string { return fmt.Sprintf("no records for %d to %d", e.first, e.last) }

// explainGap asks whether compaction can have removed the records of a gap. If so the decoder
// passes it, and others after it. Else the error says that events are missing.
func (r *reader) explainGap(ctx context.Context) error {
	gap, is := errors.AsType[*gapError](r.decoder.decodeError)
	if !is {
		return r.decoder.decodeError
	}
	hint, err := r.source.compaction.hint(ctx, r.source)
	switch {
	case err != nil:
		return err
	case hint != "":
		return &driver.RetentionError{Partition: r.decoder.converter.partition, After: gap.first - 1, First: gap.last + 1, Held: true,
			Hint: fmt.Sprintf("the broker returned the records after them, %s", hint)}
	}
	r.decoder.decodeError, r.decoder.compacted = nil, true
	return nil
}

// compaction is what is known of a topic's compaction. It is safe for concurrent use.
type compaction struct {
	mu    sync.Mutex
	asked time.Time
	text  string
}

// compactionFor is how long an answer about the configuration is taken for the present one.
const compactionFor = 5 * time.Second

// hint returns an empty text if the topic is compacted, else what is known of it: a clause. A topic
// whose configuration cannot be read counts as one that is not compacted. The error is that of ctx.
func (c *compaction) hint(ctx context.Context, s *Source) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asked.IsZero() && time.Since(c.asked) < compactionFor {
		return c.text, nil
	}
	compacted, err := s.Compacted(ctx)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		c.text = fmt.Sprintf("and whether the topic is compacted is not known (%v): grant the operation DescribeConfigs on the topic, and check the broker's log", err)
	case !compacted:
		c.text = "and the topic is not compacted: check the broker's memory and its log"
	default:
		c.text = ""
	}
	c.asked = time.Now()
	return c.text, nil
}
