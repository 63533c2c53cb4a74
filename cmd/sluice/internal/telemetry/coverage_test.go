package telemetry

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// world is what a set of days is drawn from: events come at random (Poisson) with a weekday's and a
// day's own mean, and a sampler keeps each with the rate's probability.
type world struct {
	volume                float64 // events on a usual day
	daysBefore, daysAfter int     // days on either side of the change
	spread                float64 // the days' own variation
	rates                 [2]float64
	record                string                // how items have their rate: exact, whole (itemCount), mixed (itemCount, rounded at random)
	loss                  float64               // from the change on
	slope                 float64               // by how much each day has less than the one before, in a steady drift
	measured              bool                  // values differ
	holiday               int                   // index of a day that has half of the events; -1: none
	events                map[time.Time]float64 // if not nil, is given how many events there are
}

var weekdayFactors = [7]float64{0.35, 1.3, 1.3, 1.25, 1.25, 1.2, 0.35} // from Sunday on, 1 on average

// poisson draws a count.
func poisson(r *rand.Rand, mean float64) float64 {
	if mean > 50 {
		return max(0, math.Round(mean+math.Sqrt(mean)*r.NormFloat64()))
	}
	n := 0.0
	for product := r.Float64(); product > math.Exp(-mean); product *= r.Float64() {
		n++
	}
	return n
}

// counts are how many items have which itemCount.
func (w *world) counts(r *rand.Rand, items, rate float64) map[float64]float64 {
	exact := 100 / rate
	if w.record != "mixed" || exact == math.Floor(exact) {
		return map[float64]float64{max(1, math.Round(exact)): items}
	}
	more := 0.0
	for range int(items) {
		if r.Float64() < exact-math.Floor(exact) {
			more++
		}
	}
	return map[float64]float64{math.Floor(exact): items - more, math.Ceil(exact): more}
}

// sample is how many of a day's events are kept.
func (w *world) sample(r *rand.Rand, day time.Time, mean, share float64) float64 {
	kept := poisson(r, mean*share)
	if w.events != nil {
		w.events[day] = kept + poisson(r, mean*(1-share))
	}
	return kept
}

func (w *world) draw(r *rand.Rand) *Series {
	s, err := NewSeries(24*time.Hour, nil)
	if err != nil {
		panic(err)
	}
	first := time.Date(2025, 4, 7+r.IntN(7), 0, 0, 0, 0, time.UTC)
	for i := range w.daysBefore + w.daysAfter {
		day := first.AddDate(0, 0, i)
		mean := w.volume * weekdayFactors[day.Weekday()] * max(0, 1+w.spread*r.NormFloat64())
		mean *= math.Pow(1-w.slope, float64(i))
		if i == w.holiday {
			mean /= 2
		}
		rate, sdk, kept := w.rates[0], "dotnet:2.1.0", w.rates[0]/100
		if i >= w.daysBefore {
			rate, sdk, kept = w.rates[1], "dotnet:2.3.0", w.rates[1]/100*(1-w.loss)
		}
		recorded := 0.0
		if w.record == "exact" {
			recorded = rate
		}
		for count, n := range w.counts(r, w.sample(r, day, mean, kept), rate) {
			if n == 0 {
				continue
			}
			it := single(day, 1, count, recorded, sdk)
			value, square := 1.0, 1.0
			if w.measured { // 1 to 40
				value, square = 20.5, 20.5*20.5+1600.0/12
				value = max(1, value+math.Sqrt(1600.0/12/n)*r.NormFloat64())
			}
			it.Items = int64(n)
			it.Raw, it.Weight, it.Suspect = n*value, it.Weight*n, it.Suspect*int64(n)
			it.Weighted, it.Low, it.High, it.Squares = it.Weighted*n*value, it.Low*n*value, it.High*n*value, it.Squares*n*square
			if err := s.Add(it); err != nil {
				panic(err)
			}
		}
	}
	return s
}

// outcome is what an audit says of a set.
type outcome struct{ steady, accused, decided bool }

// judge draws a set and audits it. Sets without any item say nothing.
func (w *world) judge(t *testing.T, seed uint64) outcome {
	t.Helper()
	s := w.draw(rand.New(rand.NewPCG(seed, 22)))
	r, err := s.Evaluate(nil)
	if err != nil {
		return outcome{}
	}
	// The change is in the data only where items on both sides have it.
	sides := [2]Bin{}
	for _, d := range r.Days {
		side := 0
		for name := range d.SDKs {
			if name == "dotnet:2.3.0" {
				side = 1
			}
		}
		sides[side].Items += d.Items
		sides[side].Weight += d.Weight
	}
	change := math.Abs(sides[1].Rate()/sides[0].Rate() - 1)
	text := strings.Join(r.Explain(), "\n")
	silent := len(r.Changes) == 0 || strings.Contains(text, "steady") || !strings.Contains(text, "The recorded sampling rate went from ")
	return outcome{
		steady:  sides[0].Items > 0 && sides[1].Items > 0 && change >= 0.1 && silent,
		accused: r.Verdict == Loss || r.Verdict == Both,
		decided: r.Verdict != Undecided,
	}
}

// coverageSets is how many sets are drawn for each table.
func coverageSets(t *testing.T) int {
	text := os.Getenv("SLUICE_TELEMETRY_SETS")
	if text == "" {
		return 1260
	}
	sets, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return sets
}

var (
	coverageSizes = []float64{10, 100, 1_000, 5_000, 20_000, 50_000}
	coverageDays  = [][2]int{{2, 2}, {3, 3}, {7, 2}, {14, 2}, {14, 3}, {2, 14}, {14, 14}, {30, 30}, {60, 60}}
	coverageRates = [][2]float64{{100, 30}, {100, 90}, {100, 50}, {30, 100}, {50, 45}, {40, 10}, {100, 66}, {10, 20}, {90, 80}, {100, 3}}
)

// table counts a result by sizes and days.
type table map[string]int

func (c table) String() string {
	text := fmt.Sprintf("\n%14s", "items a day")
	for _, days := range coverageDays {
		text += fmt.Sprintf("%10s", fmt.Sprintf("%d+%d", days[0], days[1]))
	}
	for _, size := range coverageSizes {
		text += fmt.Sprintf("\n%14.0f", size)
		for _, days := range coverageDays {
			text += fmt.Sprintf("%10s", fmt.Sprintf("%d/%d", c[cellName(size, days)], c["of "+cellName(size, days)]))
		}
	}
	return text
}

func cellName(size float64, days [2]int) string { return fmt.Sprint(size, days) }

// TestCoverage: whatever the volume and the number of days, a change of the recorded rate is said,
// and a loss is found in at most one of a hundred sets without one.
func TestCoverage(t *testing.T) {
	sets := coverageSets(t)
	steady, accused := table{}, table{}
	silent, wrong, decided := 0, 0, 0
	for seed := range sets {
		size := coverageSizes[seed%len(coverageSizes)]
		days := coverageDays[seed/len(coverageSizes)%len(coverageDays)]
		n := seed / len(coverageSizes) / len(coverageDays)
		w := world{
			volume: size, daysBefore: days[0], daysAfter: days[1], spread: []float64{0, 0.03, 0.05}[n%3],
			rates: coverageRates[n%len(coverageRates)], record: []string{"exact", "whole", "exact", "mixed"}[n%4], measured: n%7 == 3, holiday: -1,
		}
		if n%5 == 4 {
			w.holiday = seed % (days[0] + days[1])
		}
		o := w.judge(t, uint64(seed))
		name := cellName(size, days)
		steady["of "+name]++
		accused["of "+name]++
		if o.steady {
			steady[name]++
			silent++
			t.Errorf("set %d is called steady: %+v", seed, w)
		}
		if o.accused {
			accused[name]++
			wrong++
		}
		if o.decided && !o.accused {
			decided++
		}
	}
	t.Logf("called steady: %d of %d%v", silent, sets, steady)
	t.Logf("accused of a loss that is not there: %d of %d%v", wrong, sets, accused)
	t.Logf("a loss is excluded in %d of %d", decided, sets)
	if float64(wrong) > 0.01*float64(sets) {
		t.Errorf("%d of %d sets are accused of a loss that is not there", wrong, sets)
	}
}

// TestCoverageOfLoss: a loss of 10 % is found in 95 of 100 sets of a thousand items a day and 14
// days on each side, if rates are exact, and the interval has it in 98.
func TestCoverageOfLoss(t *testing.T) {
	sets := max(1000, coverageSets(t))
	for _, w := range []world{
		{volume: 1_000, daysBefore: 14, daysAfter: 14}, {volume: 1_000, daysBefore: 30, daysAfter: 30}, {volume: 5_000, daysBefore: 14, daysAfter: 14}, {volume: 50_000, daysBefore: 14, daysAfter: 14},
	} {
		w.rates, w.loss, w.holiday, w.record, w.spread = [2]float64{100, 30}, 0.1, -1, "exact", 0.02
		found, right := 0, 0
		for seed := range sets {
			r, err := w.draw(rand.New(rand.NewPCG(uint64(seed), 7))).Evaluate(nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.Verdict == Both {
				found++
			}
			if r.Step.Low <= -w.loss && -w.loss <= r.Step.High {
				right++
			}
		}
		text := fmt.Sprintf("%.0f items a day, %d+%d days: a loss of 10 %% is found in %d of %d sets, and in the interval of %d", w.volume, w.daysBefore, w.daysAfter, found, sets, right)
		t.Log(text)
		if float64(found) < 0.95*float64(sets) || float64(right) < 0.98*float64(sets) {
			t.Error(text)
		}
	}
}

// TestCoverageOfReference: beside an unsampled count a loss of 1 % is found, and none where there
// is none.
func TestCoverageOfReference(t *testing.T) {
	sets := max(400, coverageSets(t)/10)
	for _, c := range []struct {
		volume float64
		days   [2]int
		rates  [2]float64
		loss   float64
		least  float64 // the share of sets in which a loss is found
		most   float64
	}{
		{50_000, [2]int{14, 8}, [2]float64{100, 30}, 0, 0, 0.01},
		{100, [2]int{14, 14}, [2]float64{100, 10}, 0, 0, 0.01},
		{10, [2]int{14, 14}, [2]float64{100, 30}, 0, 0, 0.01},
		{1_000, [2]int{3, 2}, [2]float64{100, 30}, 0, 0, 0.01},
		{50_000, [2]int{14, 8}, [2]float64{100, 30}, 0.02, 0.95, 1},
		{50_000, [2]int{0, 28}, [2]float64{100, 100}, 0.01, 0.95, 1},
		{1_000, [2]int{14, 14}, [2]float64{100, 30}, 0.1, 0.95, 1},
	} {
		w := world{volume: c.volume, daysBefore: c.days[0], daysAfter: c.days[1], spread: 0.05, rates: c.rates, record: "exact", loss: c.loss, holiday: -1}
		found := 0
		for seed := range sets {
			w.events = map[time.Time]float64{}
			s := w.draw(rand.New(rand.NewPCG(uint64(seed), 3)))
			r, err := s.Evaluate(&Config{Reference: w.events})
			if err != nil {
				continue
			}
			if r.lost() {
				found++
			}
		}
		share := float64(found) / float64(sets)
		t.Logf("%+v: a loss is found in %.2f %%", c, 100*share)
		if share < c.least || share > c.most {
			t.Errorf("%+v: a loss is found in %.2f %%", c, 100*share)
		}
	}
}
