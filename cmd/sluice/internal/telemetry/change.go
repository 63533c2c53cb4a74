package telemetry

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// RateChange is a day on which the sampling rate changed.
type RateChange struct {
	Day           time.Time
	Before, After float64 // mean rates on either side, in percent
	// P is how often chance, with the days in any other order, makes an
	// excursion of the cumulative sum as large as this one.
	P float64
	// Came and Went are versions of the SDK that most items had after, but not
	// before, and the other way round.
	Came, Went []string

	index int // among the days looked at
}

const (
	// permutations is how many random orders of the days are tried. P is at least
	// 1/(permutations+1).
	permutations = 1_999
	// changeLevel is the P below which a change counts as one.
	changeLevel = 0.001
	// leastChange is the smallest relative change of the rate that is reported.
	leastChange = 0.02
	// leastDays is how many days there must be on either side.
	leastDays = 2
)

// rateChanges finds the days on which the rate changed, by time: the method of
// cumulative sums with permutations, then again on either side (Taylor, Change-
// Point Analysis, 2000).
func rateChanges(days []*Bin) []RateChange {
	logs := make([]float64, len(days))
	for i, d := range days {
		logs[i] = math.Log(d.Rate())
	}
	var cuts []RateChange
	var search func(lo, hi int)
	search = func(lo, hi int) {
		if hi-lo < 2*leastDays {
			return
		}
		at, size := excursion(logs[lo:hi], mean(logs[lo:hi]))
		at += lo
		if at-lo < leastDays || hi-at < leastDays {
			return
		}
		before, after := mean(logs[lo:at]), mean(logs[at:hi])
		if math.Abs(after-before) < leastChange {
			return
		}
		p := byChance(logs[lo:hi], size)
		if p >= changeLevel {
			return
		}
		cuts = append(cuts, RateChange{Day: days[at].Start, P: p, index: at})
		search(lo, at)
		search(at, hi)
	}
	search(0, len(days))
	slices.SortFunc(cuts, func(a, b RateChange) int { return a.index - b.index })
	for i := range cuts {
		c := &cuts[i]
		lo, hi := 0, len(days)
		if i > 0 {
			lo = cuts[i-1].index
		}
		if i+1 < len(cuts) {
			hi = cuts[i+1].index
		}
		before, after := sum(days[lo:c.index]), sum(days[c.index:hi])
		c.Before, c.After = before.Rate(), after.Rate()
		c.Came, c.Went = newcomers(before, after), newcomers(after, before)
	}
	return cuts
}

// excursion is where the cumulative sum of deviations from the mean is
// furthest from zero (the first index behind it), and how far.
func excursion(x []float64, mean float64) (at int, size float64) {
	s := 0.0
	for i, v := range x[:len(x)-1] {
		s += v - mean
		if math.Abs(s) > size {
			at, size = i+1, math.Abs(s)
		}
	}
	return at, size
}

// byChance is the share of the orders of x whose excursion is as large. The
// same x has the same share at each call.
func byChance(x []float64, size float64) float64 {
	r := rand.New(rand.NewPCG(uint64(len(x)), math.Float64bits(size)))
	order := slices.Clone(x)
	slices.Sort(order)
	m, as := mean(x), 1
	for range permutations {
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		// Sums in another order differ in the last digits.
		if _, s := excursion(order, m); s >= size*(1-1e-9) {
			as++
		}
	}
	return float64(as) / (permutations + 1)
}

func mean(x []float64) float64 {
	s := 0.0
	for _, v := range x {
		s += v
	}
	return s / float64(len(x))
}

func sum(days []*Bin) *Bin {
	total := &Bin{SDKs: map[string]int64{}}
	for _, d := range days {
		total.Items += d.Items
		total.Weight += d.Weight
		for name, n := range d.SDKs {
			total.SDKs[name] += n
		}
	}
	return total
}

// newcomers returns the versions that more than half of the items have after a
// change, or a tenth of the items if almost none had them before.
func newcomers(before, after *Bin) []string {
	var list []string
	for name, n := range after.SDKs {
		was := float64(before.SDKs[name]) / float64(max(before.Items, 1))
		is := float64(n) / float64(max(after.Items, 1))
		if is-was > 0.5 || is > 0.1 && was < 0.01 {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}
