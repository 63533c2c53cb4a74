package telemetry_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/sluice-go/sluice/audit/telemetry"
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
	for d := range setDays {
		day := start.AddDate(0, 0, d)
		mean := p.volume * weekdayFactor[day.Weekday()] * math.Exp(p.spread*r.NormFloat64())
		if d == p.holiday {
			mean *= 0.6
		}
		sent := distuv.Poisson{Lambda: mean, Src: source}.Rand()
		truth[day] = sent
		kept, weight, sdk := sent, 1.0, "dotnet:2.21.0"
		if d >= setStep {
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
	r, err := s.Judge(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestConfusion judges a thousand sets of each variant and prints how often
// each verdict was passed.
func TestConfusion(t *testing.T) {
	const sets = 1000
	verdicts := []telemetry.Verdict{telemetry.Neither, telemetry.Sampling, telemetry.Loss, telemetry.Both, telemetry.CantTell}
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
		{true, false, 0.05, 50, sets}, // no test finds more than half: see the package's comment
		{true, false, 0.2, 990, sets},
		{false, false, 0, 0, 9},
		{false, false, 0.05, 20, sets}, // and here it isn't known where to look
		{false, false, 0.2, 980, sets},
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
