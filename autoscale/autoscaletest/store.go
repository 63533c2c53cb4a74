package autoscaletest

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// TestStore is the conformance suite of [autoscale.Store]. open must return an empty
// store, for each call a new one.
func TestStore(t *testing.T, open func(t testing.TB) autoscale.Store) {
	suite.Run(t, autoscaleChecks, open)
}

var autoscaleChecks = []suite.Check[autoscale.Store]{
	{Name: "a resource never saved is empty", Run: memoryEmpty},
	{Name: "what is saved is loaded", Run: memoryKept},
	{Name: "a window with many values", Run: memoryLarge},
	{Name: "a window that was removed is removed", Run: memoryShrinks},
	{Name: "resources are independent", Run: memoryApart},
	{Name: "saved by another in the meantime: conflict, and nothing is saved", Run: memoryConflict},
	{Name: "two that save a new resource: one wins", Run: memoryFirst},
	{Name: "saved one after the other without loading", Run: memoryAgain},
	{Name: "concurrent saves lose nothing", Run: memoryRace},
	{Name: "the outcome with the highest number stays", Run: outcomeHighest},
	{Name: "records by time and number", Run: recordsRead},
	{Name: "a record replaces one with the same sequence", Run: recordsReplace},
	{Name: "old records are deleted", Run: recordsForget},
	{Name: "a lease excludes others until it is released", Run: leaseExcludes},
	{Name: "a lease that is not renewed expires, one that is renewed does not", Run: leaseExpires},
	{Name: "of several that take a lease, one gets it", Run: leaseRace},
}

// sampleTime has all digits that a store might lose.
var sampleTime = time.Date(2026, 1, 31, 8, 59, 59, 123456789, time.UTC)

func sampleMemory(resource string) *autoscale.ResourceState {
	return &autoscale.ResourceState{
		Resource: resource,
		Windows: map[string]*autoscale.Window{
			"orders-billing-backlog": {Values: []autoscale.Value{{Time: sampleTime, Value: 0.1}, {Time: sampleTime.Add(time.Minute), Value: 1e300}}, Since: sampleTime.Add(time.Minute)},
			"Grüße/#?\\ ✈'%":         {State: autoscale.Failed, Cause: "it's \"down\"", Since: sampleTime},
		},
		Instances: 3, Reported: sampleTime.Add(time.Second), LastUp: sampleTime.Add(-time.Hour),
		Pending: &autoscale.Action{Resource: resource, Number: 7, From: 3, To: 4, Decided: sampleTime, Reason: "the average of x, 501, is above 500"},
		Actions: 7, Records: 99,
	}
}

func sampleRecord(resource string, sequence int64) autoscale.Record {
	return autoscale.Record{
		Resource: resource, Sequence: sequence, Time: sampleTime.Add(time.Duration(sequence) * time.Minute), Kind: autoscale.Hold,
		Instances: 3, Wanted: 3, Proposed: 4, Rule: "up: avg(x) > 500", Reason: fmt.Sprintf("%d, not above", sequence),
		Stats: []autoscale.MetricStats{{Metric: "x", Points: 5, Last: 1, Average: 2.5, Min: 0, Max: 9, Newest: sampleTime, Missing: "no"}},
	}
}

// equal fails the test if got is not want.
func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got\n%+v\nwant\n%+v", what, got, want)
	}
}

func loaded(t testing.TB, s autoscale.Store, resource string) *autoscale.ResourceState {
	t.Helper()
	m, err := s.Load(suite.Context(t), resource)
	suite.NoError(t, "load", err)
	return m
}

// sameMemory compares what was loaded with what was saved, except for the version.
func sameMemory(t testing.TB, got, want *autoscale.ResourceState) {
	t.Helper()
	g, w := *got, *want
	g.Version, w.Version = "", ""
	for metric, window := range g.Windows {
		if w.Windows[metric] == nil {
			t.Errorf("window of %q, which was not saved", metric)
			continue
		}
		equal(t, "window of "+metric, *window, *w.Windows[metric])
	}
	if len(g.Windows) != len(w.Windows) {
		t.Errorf("%d windows, want %d", len(g.Windows), len(w.Windows))
	}
	g.Windows, w.Windows = nil, nil
	equal(t, "pending", g.Pending, w.Pending)
	g.Pending, w.Pending = nil, nil
	equal(t, "memory", g, w)
}

func memoryEmpty(t testing.TB, s autoscale.Store) {
	sameMemory(t, loaded(t, s, "r"), &autoscale.ResourceState{Resource: "r"})
	o, err := s.Outcome(suite.Context(t), "r")
	suite.NoError(t, "outcome", err)
	if o != nil {
		t.Errorf("outcome %+v of a resource without one", o)
	}
	records, err := s.Records(suite.Context(t), "r", time.Time{}, 0)
	suite.NoError(t, "records", err)
	if len(records) > 0 {
		t.Errorf("%d records of a resource without any", len(records))
	}
}

func memoryKept(t testing.TB, s autoscale.Store) {
	m := sampleMemory("r")
	suite.NoError(t, "save", s.Save(suite.Context(t), m, sampleRecord("r", 1)))
	if m.Version == "" {
		t.Error("no version after saving")
	}
	got := loaded(t, s, "r")
	sameMemory(t, got, sampleMemory("r"))
	equal(t, "version", got.Version, m.Version)
	records, err := s.Records(suite.Context(t), "r", time.Time{}, 0)
	suite.NoError(t, "records", err)
	equal(t, "records", records, []autoscale.Record{sampleRecord("r", 1)})
}

func memoryLarge(t testing.TB, s autoscale.Store) {
	w := &autoscale.Window{}
	for i := range 3600 {
		w.Add(autoscale.Point{Time: sampleTime.Add(time.Duration(i) * time.Second), Value: float64(i*7919) / 13})
	}
	m := &autoscale.ResourceState{Resource: "r", Windows: map[string]*autoscale.Window{"x": w}}
	suite.NoError(t, "save", s.Save(suite.Context(t), m))
	sameMemory(t, loaded(t, s, "r"), m)
}

func memoryShrinks(t testing.TB, s autoscale.Store) {
	m := sampleMemory("r")
	suite.NoError(t, "save", s.Save(suite.Context(t), m))
	delete(m.Windows, "orders-billing-backlog")
	m.Pending = nil
	suite.NoError(t, "save", s.Save(suite.Context(t), m))
	sameMemory(t, loaded(t, s, "r"), m)
}

func memoryApart(t testing.TB, s autoscale.Store) {
	names := []string{"r", "R", "r/x", "r'; --", "Größe #1?"}
	for i, name := range names {
		m := sampleMemory(name)
		m.Instances = i
		suite.NoError(t, "save", s.Save(suite.Context(t), m, sampleRecord(name, int64(i+1))))
		suite.NoError(t, "set outcome", s.SetOutcome(suite.Context(t), name, autoscale.Outcome{Number: int64(i + 1), Time: sampleTime}))
	}
	for i, name := range names {
		if got := loaded(t, s, name); got.Instances != i || got.Resource != name {
			t.Errorf("%s: loaded that of %s, %d instances", name, got.Resource, got.Instances)
		}
		records, err := s.Records(suite.Context(t), name, time.Time{}, 0)
		suite.NoError(t, "records", err)
		equal(t, "records of "+name, records, []autoscale.Record{sampleRecord(name, int64(i+1))})
		o, err := s.Outcome(suite.Context(t), name)
		suite.NoError(t, "outcome", err)
		if o == nil || o.Number != int64(i+1) {
			t.Errorf("outcome of %s is %+v", name, o)
		}
	}
}

func memoryConflict(t testing.TB, s autoscale.Store) {
	suite.NoError(t, "save", s.Save(suite.Context(t), sampleMemory("r"), sampleRecord("r", 1)))
	mine, theirs := loaded(t, s, "r"), loaded(t, s, "r")
	theirs.Instances = 4
	suite.NoError(t, "save theirs", s.Save(suite.Context(t), theirs, sampleRecord("r", 2)))
	mine.Instances, mine.Windows = 5, nil
	suite.ErrorIs(t, "save mine", s.Save(suite.Context(t), mine, sampleRecord("r", 3)), autoscale.ErrConflict)
	got := loaded(t, s, "r")
	sameMemory(t, got, theirs)
	records, err := s.Records(suite.Context(t), "r", time.Time{}, 0)
	suite.NoError(t, "records", err)
	if len(records) != 2 {
		t.Errorf("%d records: the refused save has left some", len(records))
	}
	got.Instances = 6
	suite.NoError(t, "save after loading again", s.Save(suite.Context(t), got))
}

func memoryFirst(t testing.TB, s autoscale.Store) {
	suite.NoError(t, "save", s.Save(suite.Context(t), sampleMemory("r")))
	suite.ErrorIs(t, "save as new", s.Save(suite.Context(t), sampleMemory("r")), autoscale.ErrConflict)
}

func memoryAgain(t testing.TB, s autoscale.Store) {
	m := sampleMemory("r")
	for i := range 3 {
		m.Instances = i
		suite.NoError(t, "save", s.Save(suite.Context(t), m))
	}
	if got := loaded(t, s, "r"); got.Instances != 2 || got.Version != m.Version {
		t.Errorf("loaded %d instances in version %q, want 2 in %q", got.Instances, got.Version, m.Version)
	}
}

func memoryRace(t testing.TB, s autoscale.Store) {
	const savers, times = 4, 5
	ctx := suite.Context(t)
	var saving sync.WaitGroup
	for range savers {
		saving.Go(func() {
			for done := 0; done < times; {
				m, err := s.Load(ctx, "r")
				if err != nil {
					t.Errorf("load: %v", err)
					return
				}
				m.Records++
				switch err := s.Save(ctx, m, sampleRecord("r", m.Records)); {
				case err == nil:
					done++
				case !errors.Is(err, autoscale.ErrConflict):
					t.Errorf("save: %v", err)
					return
				}
			}
		})
	}
	saving.Wait()
	records, err := s.Records(ctx, "r", time.Time{}, 0)
	suite.NoError(t, "records", err)
	if m := loaded(t, s, "r"); m.Records != savers*times || len(records) != savers*times {
		t.Errorf("counted to %d, with %d records; want %d", m.Records, len(records), savers*times)
	}
}

func outcomeHighest(t testing.TB, s autoscale.Store) {
	for _, n := range []int64{2, 1, 2, 10, 9} {
		suite.NoError(t, "set outcome", s.SetOutcome(suite.Context(t), "r", autoscale.Outcome{Number: n, Time: sampleTime, Err: fmt.Sprintf("it's %d", n), Attempts: int(n)}))
	}
	o, err := s.Outcome(suite.Context(t), "r")
	suite.NoError(t, "outcome", err)
	equal(t, "outcome", o, &autoscale.Outcome{Number: 10, Time: sampleTime, Err: "it's 10", Attempts: 10})
	suite.NoError(t, "set outcome again", s.SetOutcome(suite.Context(t), "r", autoscale.Outcome{Number: 10, Time: sampleTime}))
	if o, err := s.Outcome(suite.Context(t), "r"); err != nil || o.Err != "it's 10" {
		t.Errorf("a second outcome of one action replaced the first: %+v, %v", o, err)
	}
}

func recordsRead(t testing.TB, s autoscale.Store) {
	m := &autoscale.ResourceState{Resource: "r"}
	for n := int64(1); n <= 12; n++ {
		suite.NoError(t, "save", s.Save(suite.Context(t), m, sampleRecord("r", n)))
	}
	for _, c := range []struct {
		start       time.Time
		limit       int
		first, last int64
	}{
		{time.Time{}, 0, 1, 12},
		{sampleTime.Add(9 * time.Minute), 0, 9, 12},
		{sampleTime.Add(9*time.Minute + 1), 0, 10, 12},
		{time.Time{}, 5, 8, 12},
		{sampleTime.Add(10 * time.Minute), 2, 11, 12},
	} {
		records, err := s.Records(suite.Context(t), "r", c.start, c.limit)
		suite.NoError(t, "records", err)
		var want []autoscale.Record
		for n := c.first; n <= c.last; n++ {
			want = append(want, sampleRecord("r", n))
		}
		equal(t, fmt.Sprintf("records since %v, at most %d", c.start, c.limit), records, want)
	}
}

func recordsReplace(t testing.TB, s autoscale.Store) {
	m := &autoscale.ResourceState{Resource: "r"}
	suite.NoError(t, "save", s.Save(suite.Context(t), m, sampleRecord("r", 1), sampleRecord("r", 2)))
	other := sampleRecord("r", 2)
	other.Reason = "on second thoughts"
	suite.NoError(t, "save", s.Save(suite.Context(t), m, other))
	records, err := s.Records(suite.Context(t), "r", time.Time{}, 0)
	suite.NoError(t, "records", err)
	equal(t, "records", records, []autoscale.Record{sampleRecord("r", 1), other})
}

func recordsForget(t testing.TB, s autoscale.Store) {
	m := sampleMemory("r")
	for n := int64(1); n <= 5; n++ {
		suite.NoError(t, "save", s.Save(suite.Context(t), m, sampleRecord("r", n)))
	}
	suite.NoError(t, "forget", s.DeleteRecords(suite.Context(t), "r", sampleTime.Add(4*time.Minute)))
	records, err := s.Records(suite.Context(t), "r", time.Time{}, 0)
	suite.NoError(t, "records", err)
	equal(t, "records", records, []autoscale.Record{sampleRecord("r", 4), sampleRecord("r", 5)})
	sameMemory(t, loaded(t, s, "r"), m)
}
