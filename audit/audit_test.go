package audit_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

var group = sluice.Group{Namespace: "ns", Topic: "hub", Name: "g"}

// memoryLedger is a ledger in memory.
type memoryLedger struct {
	checkpoint  map[string]int64
	began       driver.Beginning // zero: the checkpoints record the start before the first event
	unrecorded  bool             // they record no beginning
	incarnation string
	entries     map[string][]audit.Entry
}

type memoryView struct {
	*memoryLedger
	topic     sluice.Topic
	partition string
}

func (b *memoryLedger) Open(_ context.Context, topic sluice.Topic, partition string) (audit.View, error) {
	return &memoryView{b, topic, partition}, nil
}

func (p *memoryView) Checkpoint(context.Context) (sluice.Checkpoint, bool, error) {
	n, ok := p.checkpoint[p.partition]
	incarnation := p.incarnation
	if incarnation == "" {
		incarnation = p.topic.Incarnation
	}
	began := p.began
	switch {
	case p.unrecorded:
		began = driver.Beginning{}
	case !began.Known():
		began = driver.Beginning{After: driver.Origin.Sequence, How: driver.HowStart}
	}
	return sluice.Checkpoint{Incarnation: incarnation, Position: sluice.Position{Sequence: n}, Began: began}, ok, nil
}

func (p *memoryView) Entries(context.Context) iter.Seq2[audit.Entry, error] {
	return func(yield func(audit.Entry, error) bool) {
		for _, e := range p.entries[p.partition] {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (p *memoryView) Close() error { return nil }

// TestPlantedFaults plants random faults into ledgers without any, and
// expects each by name and no other.
func TestPlantedFaults(t *testing.T) {
	total := map[audit.FaultKind]int{}
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 7))
		hub := sluicetest.NewHub(group, 3)
		topic, err := hub.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b := &memoryLedger{checkpoint: map[string]int64{}, entries: map[string][]audit.Entry{}}
		want := map[string]audit.FaultKind{}
		var removed, unclear int64 // events that the log no longer has, and that left nothing
		plant := func(kind audit.FaultKind, partition string, n int64) {
			want[partition+"/"+strconv.FormatInt(n, 10)] = kind
			total[kind]++
		}
		for _, p := range topic.Partitions {
			events := r.Int64N(200)
			for range events {
				hub.Append(p, sluicetest.Bodies("x")...)
			}
			done := r.Int64N(events+1) - 1 // the checkpoint
			expired := int64(0)            // events that the log gave up
			if done >= 0 && r.IntN(2) == 0 {
				expired = r.Int64N(done + 2)
			}
			faulty := r.IntN(3) > 0
			var gone []int64 // events that left nothing and that the log no longer has
			for n := int64(0); n <= done; n++ {
				e := audit.Entry{Sequence: n, DeadLetter: r.IntN(10) == 0}
				lost := faulty && r.IntN(20) == 0
				if !lost {
					b.entries[p] = append(b.entries[p], e)
				}
				switch {
				case lost && n < expired:
					gone = append(gone, n)
				case lost:
					plant(audit.Lost, p, n)
				case faulty && r.IntN(20) == 0:
					for range 1 + r.IntN(2) {
						b.entries[p] = append(b.entries[p], audit.Entry{Sequence: n, DeadLetter: r.IntN(2) == 0})
					}
					plant(audit.Duplicated, p, n)
				}
			}
			if faulty && r.IntN(3) == 0 {
				ahead := done + 1 + r.Int64N(5)
				if ahead < events {
					b.entries[p] = append(b.entries[p], audit.Entry{Sequence: ahead})
				}
			}
			if faulty && r.IntN(5) == 0 {
				b.entries[p] = append(b.entries[p], audit.Entry{Sequence: events + 3})
				plant(audit.Stray, p, events+3)
			}
			b.checkpoint[p] = done
			if faulty && expired > 0 && expired == done+1 && events > done+1 && r.IntN(2) == 0 {
				more := 1 + r.Int64N(events-done-1)
				reachable := !slices.ContainsFunc(b.entries[p], func(e audit.Entry) bool { return e.Sequence > done && e.Sequence < expired+more })
				if reachable {
					for n := expired; n < expired+more; n++ {
						plant(audit.Expired, p, n)
					}
					expired += more
				}
			}
			hub.Trim(p, expired)
			for _, n := range gone { // before all effects they may have been deleted since
				if left := b.entries[p]; len(left) > 0 && n < left[0].Sequence {
					removed++
				} else {
					unclear++
				}
			}
		}
		report, err := audit.Run(t.Context(), hub, b, group, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got := map[string]audit.FaultKind{}
		for _, f := range report.Faults {
			for n := f.First; n <= f.Last; n++ {
				got[f.Partition+"/"+strconv.FormatInt(n, 10)] = f.Kind
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("seed %d: found\n%v, want\n%v", seed, got, want)
		}
		c := report.Total
		if report.Exact() != (len(want) == 0 && unclear == 0) || c.Unclear != unclear || c.Removed != removed {
			t.Fatalf("seed %d: exact is %v, %d unclear and %d removed, want %d and %d", seed, report.Exact(), c.Unclear, c.Removed, unclear, removed)
		}
		if c.Held != c.Written+c.DeadLetters+c.Waiting+c.Faults[audit.Lost] {
			t.Fatalf("seed %d: the account doesn't add up: %+v", seed, c)
		}
	}
	for _, kind := range audit.FaultKinds {
		if total[kind] < 100 {
			t.Errorf("%d %s planted: too few to prove anything", total[kind], kind)
		}
	}
	t.Logf("planted %v", total)
}

func TestRecreatedHubIsUndecided(t *testing.T) {
	hub := sluicetest.NewHub(group, 1)
	b := &memoryLedger{checkpoint: map[string]int64{"0": 4}, incarnation: "another"}
	if _, err := audit.Run(t.Context(), hub, b, group, nil); !errors.Is(err, audit.ErrUndecided) {
		t.Error(err)
	}
}

// TestFaultsAreBounded lists only the first faults, and counts the rest.
func TestFaultsAreBounded(t *testing.T) {
	hub := sluicetest.NewHub(group, 1)
	b := &memoryLedger{checkpoint: map[string]int64{"0": 99}, entries: map[string][]audit.Entry{}}
	for n := range int64(100) {
		hub.Append("0", sluicetest.Bodies("x")...)
		if n%2 == 0 {
			b.entries["0"] = append(b.entries["0"], audit.Entry{Sequence: n})
		}
	}
	var seen int64
	r, err := audit.Run(t.Context(), hub, b, group, &audit.Config{MaxFaults: 10, Bin: time.Minute, Progress: func(n int64) { seen = n }})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Faults) != 10 || r.UnlistedEvents != 40 || r.Total.Faults[audit.Lost] != 50 || seen != 100 {
		t.Errorf("%d faults named, %d not, %+v, %d read", len(r.Faults), r.UnlistedEvents, r.Total, seen)
	}
}

// TestDuplicatesAreNotLost audits messages of an earlier stage, some sent twice.
func TestDuplicatesAreNotLost(t *testing.T) {
	hub := sluicetest.NewHub(group, 1)
	b := &memoryLedger{checkpoint: map[string]int64{"0": 5}, entries: map[string][]audit.Entry{}}
	for n, id := range []int64{10, 11, 10, 12, 11, 13} {
		e := sluicetest.Bodies("x")[0]
		e.Properties = map[string]any{}
		stamp.Stamp{ID: stamp.CausationID{Source: "s@1", Partition: "0", Sequence: id}, Epoch: 1, Low: -1}.SetTo(e.Properties)
		hub.Append("0", e)
		if n != 2 && n != 4 && n != 5 {
			b.entries["0"] = append(b.entries["0"], audit.Entry{Sequence: int64(n)})
		}
	}
	look := func() *audit.Report {
		t.Helper()
		r, err := audit.Run(t.Context(), hub, b, group, &audit.Config{StampsFrom: []stamp.Source{{Topic: "s"}}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := look(); r.Total.Deduplicated != 2 || len(r.Faults) != 1 || r.Faults[0].String() != "partition 0: event 5 is lost" {
		t.Errorf("%+v, %v", r.Total, r.Faults)
	}
	// A repeat that has an effect is one too many.
	whole := b.entries["0"]
	b.entries["0"] = []audit.Entry{{Sequence: 0}, {Sequence: 1}, {Sequence: 2}, {Sequence: 3}, {Sequence: 5}}
	if r := look(); len(r.Faults) != 1 || r.Faults[0].String() != "partition 0: event 2 is duplicated" {
		t.Errorf("%+v, %v", r.Total, r.Faults)
	}
	b.entries["0"] = whole
	// Of what repeats an event that is gone nobody can know.
	hub.Trim("0", 2)
	if r := look(); r.Total.Deduplicated != 0 || r.Total.Unclear != 3 || r.Exact() || !r.Undecided() || !strings.HasPrefix(r.Headline(), "Can't tell for 3 of 4 events") {
		t.Errorf("%s: %+v, %v", r.Headline(), r.Total, r.Faults)
	}
}

// TestSuppressedEventsAreCounted audits events that a watermark suppressed, although the
// log holds no earlier message with their ids.
func TestSuppressedEventsAreCounted(t *testing.T) {
	hub := sluicetest.NewHub(group, 1)
	b := &memoryLedger{checkpoint: map[string]int64{"0": 11}, entries: map[string][]audit.Entry{"0": {{Sequence: 0}, {Sequence: 1}}}}
	send := func(id, low int64) {
		e := sluicetest.Bodies("x")[0]
		e.Properties = map[string]any{}
		stamp.Stamp{ID: stamp.CausationID{Source: "s@1", Partition: "0", Sequence: id}, Epoch: 1, Low: low}.SetTo(e.Properties)
		hub.Append("0", e)
	}
	send(0, -1)
	send(1000, 999) // forged
	for n := range int64(10) {
		send(n, n-1)
	}
	r, err := audit.Run(t.Context(), hub, b, group, &audit.Config{StampsFrom: []stamp.Source{{Topic: "s"}}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Total.Deduplicated != 10 || r.Total.Unmatched != 9 {
		t.Errorf("%d deduplicated, %d of them unmatched, want 10 and 9", r.Total.Deduplicated, r.Total.Unmatched)
	}
	// A consumer that believes no stamps has lost them.
	if r, err = audit.Run(t.Context(), hub, b, group, nil); err != nil || r.Total.Faults[audit.Lost] != 10 {
		t.Errorf("%+v, %v, want 10 lost", r, err)
	}
}

// TestFilteredEventsAreNotLost: what the consumer's filter leaves out needs no effect. Other events
// do, and an effect of an event that is left out now, from before the filter was changed, is no
// fault.
func TestFilteredEventsAreNotLost(t *testing.T) {
	hub := sluicetest.NewHub(group, 1)
	bodies := make([]string, 100)
	for i := range bodies {
		bodies[i] = []string{"flight", "heartbeat"}[i%2]
	}
	hub.Append("0", sluicetest.Bodies(bodies...)...)
	b := &memoryLedger{checkpoint: map[string]int64{"0": 99}, entries: map[string][]audit.Entry{}}
	for i := range bodies {
		if i%2 == 0 && i != 20 || i == 51 {
			b.entries["0"] = append(b.entries["0"], audit.Entry{Sequence: int64(i), DeadLetter: i == 8})
		}
	}
	r, err := audit.Run(t.Context(), hub, b, group, &audit.Config{Filter: func(_ context.Context, e *sluice.Event) (bool, error) { return string(e.Body) == "flight", nil }})
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Total; c.Unselected != 49 || c.Written != 49 || c.DeadLetters != 1 || len(r.Faults) != 1 || r.Faults[0] != (audit.Fault{Kind: audit.Lost, Partition: "0", First: 20, Last: 20, From: r.Faults[0].From, Until: r.Faults[0].Until}) {
		t.Errorf("%+v, faults %v", c, r.Faults)
	}
	b.entries["0"] = slices.Insert(b.entries["0"], 10, audit.Entry{Sequence: 20})
	if r, err := audit.Run(t.Context(), hub, b, group, &audit.Config{Filter: func(_ context.Context, e *sluice.Event) (bool, error) { return string(e.Body) == "flight", nil }}); err != nil ||
		r.Headline() != "Nothing lost, nothing duplicated: 100 events, 49 not selected, 50 written, 1 dead letter, 0 waiting." {
		t.Errorf("%v, %v", r, err)
	}
	down := errors.New("the schema registry is down")
	if _, err := audit.Run(t.Context(), hub, b, group, &audit.Config{Filter: func(context.Context, *sluice.Event) (bool, error) { return false, down }}); !errors.Is(err, down) {
		t.Errorf("an event of which it is not known whether it is handled: %v", err)
	}
}
