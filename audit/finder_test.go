package audit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// asked is a ledger of a target that is asked for single events.
type asked struct {
	*memoryLedger
	effects  map[int64]audit.Effect // by sequence number; of one partition
	done     []driver.SequenceRange
	redriven map[int64]bool // dead letters that are gone since they were listed
}

type askedView struct {
	*memoryView
	answers *asked
}

func (a *asked) Open(_ context.Context, topic sluice.Topic, partition string) (audit.View, error) {
	return &askedView{&memoryView{a.memoryLedger, topic, partition}, a}, nil
}

func (v *askedView) Checkpoint(ctx context.Context) (sluice.Checkpoint, bool, error) {
	c, found, err := v.memoryView.Checkpoint(ctx)
	c.Done = v.answers.done
	return c, found, err
}

func (v *askedView) Find(_ context.Context, events []*sluice.Event) ([]audit.Effect, error) {
	var found []audit.Effect
	for _, e := range events {
		found = append(found, v.answers.effects[e.Sequence])
	}
	return found, nil
}

func (v *askedView) IsDeadLetter(_ context.Context, sequence int64) (bool, error) {
	return !v.answers.redriven[sequence], nil
}

// TestFinder plants random effects, and expects each event in the one place where it belongs.
func TestFinder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 11))
		hub := sluicetest.NewHub(group, 1)
		events := 50 + r.Int64N(500)
		for range events {
			hub.Append("0", &sluice.Event{})
		}
		checkpoint := r.Int64N(events)
		a := &asked{memoryLedger: &memoryLedger{checkpoint: map[string]int64{"0": checkpoint}, entries: map[string][]audit.Entry{}}, effects: map[int64]audit.Effect{}, redriven: map[int64]bool{}}
		if from := checkpoint + 2; from < events {
			a.done = []driver.SequenceRange{{First: from, Last: min(from+r.Int64N(50), events-1)}}
		}
		var want audit.Count
		want.Held = events
		left := map[int64]bool{}
		var faults []string
		for n := range events {
			passed := n <= checkpoint || len(a.done) > 0 && n >= a.done[0].First && n <= a.done[0].Last
			switch k := r.IntN(20); {
			case k == 0:
				left[n] = true
				want.Unselected++
			case k == 1:
				a.effects[n] = audit.Effect{Unknown: "why"}
				if passed {
					want.Unclear++
				} else {
					want.Waiting++
				}
			case k == 2:
				a.entries["0"] = append(a.entries["0"], audit.Entry{Sequence: n, DeadLetter: true})
				want.DeadLetters++
				if r.IntN(3) == 0 {
					a.effects[n] = audit.Effect{Copies: 1}
					if a.redriven[n] = r.IntN(2) == 0; !a.redriven[n] {
						faults = append(faults, fmt.Sprint("duplicated ", n))
					}
				}
			case k == 3:
				if passed {
					faults = append(faults, fmt.Sprint("lost ", n))
				} else {
					want.Waiting++
				}
			case k == 4:
				a.effects[n] = audit.Effect{Copies: 2}
				want.Written++
				faults = append(faults, fmt.Sprint("duplicated ", n))
			default:
				a.effects[n] = audit.Effect{Copies: 1}
				want.Written++
			}
		}
		report, err := audit.Run(t.Context(), hub, a, group, &audit.Config{Effect: "message", MaxFaults: 10_000,
			Filter: func(_ context.Context, e *sluice.Event) (bool, error) { return !left[e.Sequence], nil }})
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, f := range report.Faults {
			for n := f.First; n <= f.Last; n++ {
				found = append(found, fmt.Sprint(f.Kind, " ", n))
			}
		}
		slices.Sort(faults)
		if slices.Sort(found); !slices.Equal(found, faults) {
			t.Fatalf("seed %d: found %v, want %v", seed, found, faults)
		}
		got := report.Total
		got.Ahead, got.Faults, got.UnclearWhy = 0, nil, nil
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Fatalf("seed %d:\ngot  %+v\nwant %+v", seed, got, want)
		}
		if report.Exact() != (len(faults) == 0 && want.Unclear == 0) {
			t.Errorf("seed %d: exact %t", seed, report.Exact())
		}
	}
}

// TestFinderOfExpiredEvents: nothing is known of events that the log no longer has; those that are
// not done have expired.
func TestFinderOfExpiredEvents(t *testing.T) {
	hub := sluicetest.NewHub(group, 1)
	for range 30 {
		hub.Append("0", &sluice.Event{})
	}
	hub.Trim("0", 20)
	a := &asked{memoryLedger: &memoryLedger{checkpoint: map[string]int64{"0": 9}, entries: map[string][]audit.Entry{}}, effects: map[int64]audit.Effect{}}
	a.done = []driver.SequenceRange{{First: 12, Last: 14}, {First: 17, Last: 22}}
	report, err := audit.Run(t.Context(), hub, a, group, &audit.Config{Effect: "document"})
	if err != nil {
		t.Fatal(err)
	}
	want := "Checked 10 events: 3 lost (partition 0: 20 to 22), 0 duplicated, 4 expired (partition 0: 10 to 11, 15 to 16), 0 written, 7 in flight, 0 dead letters, 0 not decidable; 16 more removed by retention and not checked."
	if got := report.Headline(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestMayRepeat: where repetitions are allowed, they are listed, and the report is exact.
func TestMayRepeat(t *testing.T) {
	hub := sluicetest.NewHub(group, 1)
	hub.Append("0", &sluice.Event{}, &sluice.Event{})
	a := &asked{memoryLedger: &memoryLedger{checkpoint: map[string]int64{"0": 1}}, effects: map[int64]audit.Effect{0: {Copies: 1}, 1: {Copies: 3}}}
	for _, may := range []bool{false, true} {
		report, err := audit.Run(t.Context(), hub, a, group, &audit.Config{Effect: "message", MayRepeat: may})
		if err != nil {
			t.Fatal(err)
		}
		if report.Exact() != may || report.Headline() != "Checked 2 events: 0 lost, 1 duplicated (partition 0: 1), 2 written, 0 in flight, 0 dead letters, 0 not decidable." || report.UnlistedEvents != 0 {
			t.Errorf("%t: %s, %+v", may, report.Headline(), report)
		}
	}
}
