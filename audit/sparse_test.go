package audit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
)

// sparseLog is a topic of one partition in which only some numbers are events.
type sparseLog struct {
	events    []bool // by number: whether it is an event
	first     int64
	compacted bool
	refuses   error // the answer to the question whether it is compacted
	// trims is how many numbers retention removes when the first reader is opened.
	trims int64
}

func (l *sparseLog) last() int64 { return int64(len(l.events)) - 1 }

func (l *sparseLog) Describe(context.Context) (sluice.Topic, error) {
	return sluice.Topic{Group: group, Incarnation: "i", Partitions: []string{"0"}, Sparse: true}, nil
}

func (l *sparseLog) Bounds(context.Context, string) (driver.Bounds, error) {
	return driver.Bounds{First: l.first, Last: sluice.Position{Sequence: l.last()}}, nil
}

func (l *sparseLog) Seek(_ context.Context, _ string, start sluice.Start, _ int64) (sluice.Position, error) {
	if start.Kind == driver.StartLatest {
		return sluice.Position{Sequence: l.last()}, nil
	}
	return sluice.Position{Sequence: l.first - 1}, nil
}

func (l *sparseLog) Open(_ context.Context, partition string, after sluice.Position, _ int64) (driver.Reader, error) {
	if l.trims > 0 {
		l.first, l.trims = l.first+l.trims, 0
	}
	if l.first > after.Sequence+1 {
		return nil, &driver.RetentionError{Partition: partition, After: after.Sequence, First: l.first}
	}
	return &sparseReader{l, after.Sequence}, nil
}

func (l *sparseLog) Compacted(context.Context) (bool, error) { return l.compacted, l.refuses }

// sparseReader returns a marker only behind the last event.
type sparseReader struct {
	log      *sparseLog
	sequence int64
}

func (r *sparseReader) Read(ctx context.Context, _ int) ([]*sluice.Event, error) {
	var list []*sluice.Event
	for len(list) < 7 && r.sequence < r.log.last() {
		r.sequence++
		if r.log.events[r.sequence] {
			list = append(list, &sluice.Event{Partition: "0", Sequence: r.sequence})
		} else if r.sequence == r.log.last() {
			list = append(list, &sluice.Event{Partition: "0", Sequence: r.sequence, Control: true})
		}
	}
	if len(list) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return list, nil
}

func (r *sparseReader) Close(context.Context) error { return nil }

// TestPlantedFaultsInASparseLog expects each planted fault by name and no other, where numbers that
// hold no event are missing from rows and from the log.
func TestPlantedFaultsInASparseLog(t *testing.T) {
	total := map[audit.FaultKind]int{}
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 9))
		log := &sparseLog{events: make([]bool, 1+r.IntN(200))}
		for i := range log.events {
			log.events[i] = r.IntN(3) > 0
		}
		done := r.Int64N(int64(len(log.events)))
		log.first = r.Int64N(done + 2)
		b := &memoryLedger{checkpoint: map[string]int64{"0": done}, entries: map[string][]audit.Entry{}}
		want := map[string]audit.FaultKind{}
		plant := func(kind audit.FaultKind, n int64) { want[strconv.FormatInt(n, 10)] = kind; total[kind]++ }
		for n, event := range log.events[:done+1] {
			n := int64(n)
			leaves := event
			switch {
			case r.IntN(20) > 0:
			case event && n >= log.first: // what the log no longer has may not have been an event
				plant(audit.Lost, n)
				leaves = false
			case event:
				leaves = false
			case !event && n >= log.first:
				plant(audit.Stray, n)
				leaves = true
			}
			if leaves {
				b.entries["0"] = append(b.entries["0"], audit.Entry{Sequence: n})
				if event && r.IntN(30) == 0 {
					b.entries["0"] = append(b.entries["0"], audit.Entry{Sequence: n, DeadLetter: true})
					plant(audit.Duplicated, n)
				}
			}
		}
		report, err := audit.Run(t.Context(), log, b, group, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got := map[string]audit.FaultKind{}
		for _, f := range report.Faults {
			for n := f.First; n <= f.Last; n++ {
				got[strconv.FormatInt(n, 10)] = f.Kind
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("seed %d: found\n%v, want\n%v", seed, got, want)
		}
		var held int64
		for _, event := range log.events[log.first:] {
			if event {
				held++
			}
		}
		if report.Total.Held != held || report.Exact() != (len(want) == 0) {
			t.Fatalf("seed %d: %d events held, want %d; exact is %v", seed, report.Total.Held, held, report.Exact())
		}
	}
	for _, kind := range []audit.FaultKind{audit.Lost, audit.Duplicated, audit.Stray} {
		if total[kind] < 100 {
			t.Errorf("%d %s planted: too few to prove anything", total[kind], kind)
		}
	}
}

// TestEventsThatExpiredUnreadInASparseLog: retention has passed the checkpoint.
func TestEventsThatExpiredUnreadInASparseLog(t *testing.T) {
	log := &sparseLog{events: []bool{true, true, false, true, true, true}, first: 4}
	b := &memoryLedger{checkpoint: map[string]int64{"0": 1}, entries: map[string][]audit.Entry{"0": {{Sequence: 0}, {Sequence: 1}}}}
	r, err := audit.Run(t.Context(), log, b, group, nil)
	if err != nil || fmt.Sprint(r.Faults) != "[partition 0: events 2 to 3 are expired]" || r.Total.Waiting != 2 {
		t.Errorf("%v, %v", r, err)
	}
}

// TestRowsOfCompactedEvents: compaction removes events that have rows. Where the topic is not
// compacted, or that is not known, such a row is no proof.
func TestRowsOfCompactedEvents(t *testing.T) {
	for _, c := range []struct {
		log   sparseLog
		stray int64
		past  int64
		err   error
	}{
		{sparseLog{compacted: true}, 0, 1, nil},
		{sparseLog{}, 1, 0, nil},
		{sparseLog{refuses: errors.New("not authorized")}, 0, 0, audit.ErrUndecided},
	} {
		c.log.events = []bool{true, false, true, false}
		b := &memoryLedger{checkpoint: map[string]int64{"0": 3}, entries: map[string][]audit.Entry{"0": {{Sequence: 0}, {Sequence: 1}, {Sequence: 2}}}}
		r, err := audit.Run(t.Context(), &c.log, b, group, nil)
		if !errors.Is(err, c.err) {
			t.Errorf("got %v, want %v", err, c.err)
		}
		if err == nil && (r.Total.Faults[audit.Stray] != c.stray || r.Total.PastRetention != c.past || r.Total.Written != 2) {
			t.Errorf("%+v", r.Total)
		}
	}
}

// TestRetentionDuringAnAuditOfASparseLog: what was removed before it was read may have been events
// or not, so the audit decides only about numbers with rows.
func TestRetentionDuringAnAuditOfASparseLog(t *testing.T) {
	log := &sparseLog{events: []bool{true, false, true, true, true}, trims: 3}
	b := &memoryLedger{checkpoint: map[string]int64{"0": 4}, entries: map[string][]audit.Entry{"0": {{Sequence: 0}, {Sequence: 2}, {Sequence: 3}, {Sequence: 4}}}}
	r, err := audit.Run(t.Context(), log, b, group, nil)
	if err != nil || len(r.Faults) > 0 || r.Total.Written != 4 || r.Total.Unclear != 1 || !r.Undecided() {
		t.Errorf("%+v, %v", r, err)
	}
}
