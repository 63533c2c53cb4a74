package telemetry_test

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/sluice-go/sluice/cmd/sluice/internal/telemetry"
)

// published is a data set made after a published case: 22 days with a weekday
// pattern and a bank holiday; on day 15 an update of the SDK begins to sample.
// Each day's volume varies beyond that by spread, and its count is Poisson's.
type published struct {
	volume  float64 // a day
	spread  float64
	sampled bool    // about 30 % from day 15 on
	loss    float64 // from day 15 on
	holiday int     // the day it falls on
	weeks   int     // before and after, instead of 14 and 8 days
}

// days are how many there are, and the index of the first with sampling or loss.
func (p published) days() (all, step int) {
	if p.weeks == 0 {
		return setDays, setStep
	}
	return 14 * p.weeks, 7 * p.weeks
}

const (
	setDays  = 22
	setStep  = 14 // index of day 15
	setRate  = 30.0
	setStart = "2025-04-07T00:00:00Z" // a Monday
)

var weekdayFactor = [7]float64{0.55, 1.1, 1.15, 1.1, 1.05, 1, 0.6} // from Sunday on

// make draws a set, and what an unsampled count of the same events says.
func (p published) make(seed uint64) ([]telemetry.Item, map[time.Time]float64) {
	source := rand.NewPCG(seed, 22)
	r := rand.New(source)
	start, err := time.Parse(time.RFC3339, setStart)
	if err != nil {
		panic(err)
	}
	var items []telemetry.Item
	truth := map[time.Time]float64{}
	all, step := p.days()
	for d := range all {
		day := start.AddDate(0, 0, d)
		mean := p.volume * weekdayFactor[day.Weekday()] * math.Exp(p.spread*r.NormFloat64())
		if d == p.holiday {
			mean *= 0.6
		}
		sent := distuv.Poisson{Lambda: mean, Src: source}.Rand()
		truth[day] = sent
		kept, weight, sdk := sent, 1.0, "dotnet:2.21.0"
		if d >= step {
			share := 1 - p.loss
			if p.sampled {
				share, weight, sdk = share*setRate/100, 100/setRate, "dotnet:2.22.0"
			}
			kept = distuv.Binomial{N: sent, P: share, Src: source}.Rand()
		}
		items = append(items, telemetry.Item{
			Time: day, Items: int64(kept), Raw: kept, Weight: kept * weight, Weighted: kept * weight, SDK: sdk,
		})
	}
	return items, truth
}

func (p published) judge(t testing.TB, seed uint64, referred bool) *telemetry.Report {
	t.Helper()
	items, truth := p.make(seed)
	s, err := telemetry.NewSeries(24*time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range items {
		if err := s.Add(it); err != nil {
			t.Fatal(err)
		}
	}
	var cfg telemetry.Config
	if referred {
		cfg.Reference = truth
	}
	r, err := s.Evaluate(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestConfusion judges a thousand sets of each variant and prints how often
// each verdict was passed.
func TestConfusion(t *testing.T) {
	const sets = 1000
	verdicts := []telemetry.Verdict{telemetry.Neither, telemetry.Sampling, telemetry.Loss, telemetry.Both, telemetry.Undecided}
	var table []string
	t.Cleanup(func() {
		slices.Sort(table)
		head := fmt.Sprintf("%-38s", "")
		for _, v := range verdicts {
			head += fmt.Sprintf("%11s", v)
		}
		t.Log("\n" + head + "\n" + strings.Join(table, "\n"))
	})
	var mu sync.Mutex // guards table
	for _, v := range []struct {
		sampled, referred bool
		loss              float64
		least, most       int // how many of a thousand verdicts find a loss
	}{
		{true, false, 0, 0, 9},
		{true, false, 0.01, 0, sets},
		{true, false, 0.05, 180, sets}, // no test finds more than half: see the package's comment
		{true, false, 0.2, 990, sets},
		{false, false, 0, 0, 9},
		{false, false, 0.05, 90, sets}, // and here it isn't known where to look
		{false, false, 0.2, 990, sets},
		{true, true, 0, 0, 9},
		{true, true, 0.01, 500, sets},
		{true, true, 0.05, 990, sets},
		{true, true, 0.2, 990, sets},
		{false, true, 0, 0, 9},
		{false, true, 0.01, 990, sets},
	} {
		name := fmt.Sprintf("reference %-5v sampling %-5v loss %2.0f %%", v.referred, v.sampled, 100*v.loss)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count := map[telemetry.Verdict]int{}
			for seed := range uint64(sets) {
				p := published{volume: 50_000, spread: 0.05, sampled: v.sampled, loss: v.loss, holiday: int(seed % setDays)}
				count[p.judge(t, seed, v.referred).Verdict]++
			}
			right, wrong := telemetry.Loss, telemetry.Neither
			if v.sampled {
				right, wrong = telemetry.Both, telemetry.Sampling
			}
			if n := count[right]; n < v.least || n > v.most {
				t.Errorf("found in %d of %d, want %d to %d", n, sets, v.least, v.most)
			}
			// Excluded with 95 % confidence.
			if n := count[wrong]; v.loss >= 0.05 && n > sets*8/100 {
				t.Errorf("%d of %d verdicts exclude it", n, sets)
			}
			line := fmt.Sprintf("%-38s", name)
			for _, v := range verdicts {
				line += fmt.Sprintf("%11d", count[v])
			}
			mu.Lock()
			defer mu.Unlock()
			table = append(table, line)
		})
	}
}

// TestPower finds out how alike days must be, or how many, for a loss of 5 % to be
// found, in as many sets as TELEMETRY_SETS says, and prints it.
func TestPower(t *testing.T) {
	sets := 50
	if text := os.Getenv("TELEMETRY_SETS"); text != "" {
		var err error
		if sets, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range []struct {
		spread float64
		weeks  int
		least  float64 // the share found
	}{
		{0.005, 0, 0.98}, {0.01, 0, 0.98}, {0.015, 0, 0.9}, {0.02, 0, 0.8}, {0.03, 0, 0.35}, {0.05, 0, 0.1}, {0.05, 4, 0.65}, {0.05, 6, 0.85},
	} {
		t.Run(fmt.Sprintf("spread %.1f %%, weeks %d", 100*v.spread, v.weeks), func(t *testing.T) {
			t.Parallel()
			found, alarms := 0, 0
			for seed := range sets {
				p := published{volume: 50_000, spread: v.spread, sampled: true, holiday: seed % setDays, weeks: v.weeks}
				if p.judge(t, uint64(seed), false).Verdict == telemetry.Both {
					alarms++
				}
				p.loss = 0.05
				if p.judge(t, uint64(seed), false).Verdict == telemetry.Both {
					found++
				}
			}
			t.Logf("a loss of 5 %% is found in %.1f %%, one of nothing in %.1f %%", 100*float64(found)/float64(sets), 100*float64(alarms)/float64(sets))
			if float64(found) < v.least*float64(sets) || float64(alarms) > 0.01*float64(sets)+1 {
				t.Errorf("of %d sets, found in %d, and in %d without one", sets, found, alarms)
			}
		})
	}
}

// steady is a series of a thousand events a day, but for some days, and what an
// unsampled count says.
func steady(t *testing.T, days int, but map[int]float64) (*telemetry.Series, map[time.Time]float64) {
	t.Helper()
	s, err := telemetry.NewSeries(24*time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	truth := map[time.Time]float64{}
	for d := range days {
		day := time.Date(2025, 4, 7+d, 0, 0, 0, 0, time.UTC)
		truth[day] = 1000
		n, other := but[d]
		if !other {
			n = 1000
		}
		if n == 0 {
			continue
		}
		if err := s.Add(telemetry.Item{Time: day, Items: int64(n), Raw: n, Weight: n, Weighted: n}); err != nil {
			t.Fatal(err)
		}
	}
	return s, truth
}

// TestDaysThatFallShort has the reference tell of single days.
func TestDaysThatFallShort(t *testing.T) {
	holiday := time.Date(2025, 4, 18, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		but     map[int]float64
		verdict telemetry.Verdict
		say     string
	}{
		{nil, telemetry.Neither, "A loss of more than 0."},
		{map[int]float64{5: 0}, telemetry.Loss, "On 2025-04-12 there are no items, though the reference counts some."},
		{map[int]float64{5: 500}, telemetry.Loss, "On 2025-04-12 by itself the weighted sum is 50.0 % short of the reference."},
		{map[int]float64{5: 500, 9: 0, 12: 900}, telemetry.Loss, "On 2025-04-19 by itself the weighted sum is 10.0 %"},
		{map[int]float64{5: 990}, telemetry.Neither, "A loss of more than "},
		{map[int]float64{5: 2000}, telemetry.Neither, "A loss of more than 2."},
		{map[int]float64{11: 0}, telemetry.Neither, "2025-04-18 is left out of the verdict: no items."},
		{map[int]float64{20: 0, 21: 0}, telemetry.Undecided, "Can't tell: the reference has 2 days after the last item"},
	} {
		s, truth := steady(t, 22, c.but)
		r, err := s.Evaluate(&telemetry.Config{Reference: truth, Holidays: []time.Time{holiday}})
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(r.Explain(), "\n"); r.Verdict != c.verdict || !strings.Contains(text, c.say) {
			t.Errorf("%v: %s\n%s", c.but, r.Verdict, text)
		}
		if err := r.WriteJSON(io.Discard); err != nil {
			t.Errorf("%v: %v", c.but, err)
		}
	}
}

func TestFewAndManyDays(t *testing.T) {
	for _, days := range []int{1, 3, 5} {
		s, _ := steady(t, days, nil)
		r, err := s.Evaluate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if text := r.Explain()[0]; r.Verdict != telemetry.Undecided || text != "Can't tell: there are too few days to exclude any loss." {
			t.Errorf("%d days: %s", days, text)
		}
	}
	s, _ := steady(t, 1101, nil)
	if _, err := s.Evaluate(nil); err == nil || !strings.Contains(err.Error(), "it is of 1101 days: take 1100 or fewer at a time") {
		t.Error(err)
	}
}
