package telemetry

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func (w *world) report(t *testing.T) *Report {
	t.Helper()
	r, err := w.draw(rand.New(rand.NewPCG(1, 2))).Evaluate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestVerdicts: each cause has its verdict and its words.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name    string
		world   world
		verdict Verdict
		says    []string
	}{
		{"sampling", world{rates: [2]float64{100, 30}, record: "exact"}, Sampling, []string{
			"Sampling explains the drop (from 100 % to 30 % on 2025-05-10); a loss of 1.1 % or more is excluded.", "The recorded sampling rate went from 100 % to 30 %", "(-70 %). SDK dotnet:2.3.0 came that day, in place of dotnet:2.1.0.",
		}},
		{"sampling ends", world{rates: [2]float64{30, 100}, record: "exact"}, Sampling, []string{"Sampling explains the rise (from 30 % to 100 % on "}},
		{"nothing", world{rates: [2]float64{30, 30}, record: "exact"}, Neither, []string{"The recorded sampling rate is 30 % on every day, and a loss of "}},
		{"loss at a steady rate", world{rates: [2]float64{30, 30}, record: "exact", loss: 0.2}, Loss, []string{"of the events are missing", "sampling doesn't explain it: its recorded rate is 30 % on every day."}},
		{"loss and sampling", world{rates: [2]float64{100, 30}, record: "exact", loss: 0.2}, Both, []string{"of the events are missing", "sampling explains the rest of the change (from 100 % to 30 %"}},
		// A rate of 30 % is itemCount 3: 11 % less than there were.
		{"rounding down", world{rates: [2]float64{100, 30}, record: "whole"}, Undecided, []string{"Sampling can explain the drop", "if each itemCount is exact)", "with the rounding of itemCount too"}},
		// A rate of 80 % is itemCount 1: nothing of it is recorded.
		{"rounding to 1", world{rates: [2]float64{100, 80}, record: "whole"}, Undecided, []string{"The recorded sampling rate is 100 % on every day; a loss under "}},
		{"more is lost than rounding hides", world{rates: [2]float64{100, 30}, record: "whole", loss: 0.3}, Both, []string{"of the events are missing"}},
		{"a drift", world{rates: [2]float64{100, 30}, record: "exact", slope: 0.03}, Undecided, []string{"Can't tell: the days drift."}},
	} {
		c.world.volume, c.world.daysBefore, c.world.daysAfter, c.world.spread, c.world.holiday = 20_000, 28, 28, 0.01, -1
		r := c.world.report(t)
		text := strings.Join(r.Explain(), "\n")
		if r.Verdict != c.verdict || strings.Contains(text, "steady") {
			t.Errorf("%s: %s\n%s", c.name, r.Verdict, text)
		}
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", c.name, want, text)
			}
		}
	}
}

// days makes a series of items that stand for weight each, some on each day from a Monday on.
func days(t *testing.T, weight float64, items ...int64) *Series {
	t.Helper()
	s, err := NewSeries(24*time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range items {
		all := float64(n) * weight
		it := Item{
			Time: time.Date(2025, 4, 7+i, 0, 0, 0, 0, time.UTC), Items: n, Raw: float64(n),
			Weight: all, Weighted: all, Low: all, High: all, Squares: all * weight,
		}
		if n == 0 {
			continue
		}
		if err := s.Add(it); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestOtherWeekdaysAreNotCompared: a weekend after working days is no loss.
func TestOtherWeekdaysAreNotCompared(t *testing.T) {
	s := days(t, 1, 0, 0, 0, 5000, 5010)
	for i, n := range []float64{1500, 1490} {
		if err := s.Add(Item{Time: time.Date(2025, 4, 12+i, 0, 0, 0, 0, time.UTC), Items: int64(n / 2), Raw: n / 2, Weight: n, Weighted: n, Low: n, High: n, Squares: 2 * n}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.Evaluate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := r.Explain()[0]; r.Verdict != Undecided || text != "Can't tell: there are too few days or items to exclude any loss; the recorded sampling rate went from 100 % to 50 % on 2025-04-12." {
		t.Errorf("%s: %s", r.Verdict, text)
	}
}

// TestEmptyDays: where few items are usual, days without any are counted; else they say nothing.
func TestEmptyDays(t *testing.T) {
	for _, c := range []struct {
		usual int64
		want  string
	}{
		{3, "Days without items that count as 0: 2."}, {300, "2025-04-20 is left out of the verdict: no items."},
	} {
		items := make([]int64, 28)
		for i := range items {
			if i != 13 && i != 20 {
				items[i] = c.usual
			}
		}
		r, err := days(t, 4, items...).Evaluate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(r.Explain(), "\n"); !strings.Contains(text, c.want) {
			t.Errorf("%q is not in\n%s", c.want, text)
		}
	}
}

// TestRateOfADayLeftOut: the rate changes on the last day, which is not whole.
func TestRateOfADayLeftOut(t *testing.T) {
	s, err := NewSeries(time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := time.Date(2025, 4, 7, 0, 0, 0, 0, time.UTC)
	for hour := range 14*24 + 8 {
		weight := 1.0
		if hour >= 14*24 {
			weight = 2
		}
		if err := s.Add(Item{Time: first.Add(time.Duration(hour) * time.Hour), Items: 100, Raw: 100, Weight: 100 * weight, Weighted: 100 * weight, Low: 100 * weight, High: 100 * weight, Squares: 100 * weight * weight}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.Evaluate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(r.Explain(), "\n"); len(r.Changes) != 1 || !strings.Contains(text, "The recorded sampling rate went from 100 % to 50 % on 2025-04-21 (-50 %). No version of an SDK is recorded.") {
		t.Error(text)
	}
}

// TestManyChangesOfTheRate lists the largest.
func TestManyChangesOfTheRate(t *testing.T) {
	s := days(t, 1, 100)
	for i := range 12 {
		weight := 2.0 + float64(i%2)*(1+float64(i))
		if err := s.Add(Item{Time: time.Date(2025, 4, 8+i, 0, 0, 0, 0, time.UTC), Items: 100, Raw: 100, Weight: 100 * weight, Weighted: 100 * weight, Low: 100, High: 2000, Squares: 100 * weight * weight}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.Evaluate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(r.Explain(), "\n"); len(r.Changes) != 12 || strings.Count(text, "The recorded sampling rate went") != 5 || !strings.Contains(text, "And 7 smaller changes of it.") {
		t.Errorf("%d changes:\n%s", len(r.Changes), text)
	}
}
