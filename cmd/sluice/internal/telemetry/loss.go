package telemetry

import (
	"math"
	"slices"
	"time"
)

// seek looks for a lasting step in the weighted sums.
func (r *Report) seek(days []*Bin) {
	y := make([]float64, len(days))
	for i, d := range days {
		y[i] = math.Log(d.Weighted)
	}
	best, ok := r.bestStep(days, y, week(days))
	if !ok {
		return
	}
	for _, i := range best.alone {
		r.LeftOut = append(r.LeftOut, LeftOut{days[i].Start, "stands out alone: a holiday, or an outage of a day"})
	}
	r.conclude(days, y, best)
}

// candidate is a model with a step, and how significant the step is.
type candidate struct {
	model
	base  [][]float64 // the columns before the step
	alone []int       // days that stand out
	at    int
	p     float64 // corrected
}

// step is the coefficient of the step and its standard error.
func (c *candidate) step() (size, deviation float64) {
	last := len(c.beta) - 1
	return c.beta[last], max(c.errors[last], noise)
}

// knownShare is the share of the level that goes to the days on which the rate
// changed, if there are any: they are few, and a loss is most likely there.
const knownShare = 0.75

// portions says how much of the level each of n days has, as a step's first.
func (r *Report) portions(n int) func(at int) float64 {
	known := map[int]bool{}
	for _, c := range r.Changes {
		known[c.index] = true
	}
	tried := map[bool]float64{}
	for at := leastSide; at <= n-leastSide; at++ {
		tried[known[at]]++
	}
	share := map[bool]float64{true: knownShare, false: 1 - knownShare}
	if tried[true] == 0 {
		share[false] = 1
	}
	return func(at int) float64 { return share[known[at]] / tried[known[at]] }
}

// bestStep tries a step on each day.
func (r *Report) bestStep(days []*Bin, y []float64, base [][]float64) (best candidate, found bool) {
	portion := r.portions(len(days))
	for at := leastSide; at <= len(days)-leastSide; at++ {
		c, ok := stepAt(y, base, at)
		if !ok {
			continue
		}
		size, deviation := c.step()
		c.p = survival(math.Abs(size)/deviation, c.free) / portion(at)
		if !found || c.p < best.p {
			best, found = c, true
		}
	}
	return best, found
}

// mostAlone is how many days may stand out; nor may more than a tenth.
const mostAlone = 20

// stepAt fits a step, beside factors of their own for the few days that stand
// out beside it.
func stepAt(y []float64, base [][]float64, at int) (candidate, bool) {
	c := candidate{base: base, at: at}
	step := after(len(y), at)
	for {
		m, ok := regress(y, append(slices.Clip(c.base), step))
		if !ok {
			return c, false
		}
		c.model = m
		i, p := m.outlier(0)
		if i < 0 || p >= outlierLevel || len(c.alone) == min(max(1, len(y)/10), mostAlone) {
			return c, true
		}
		own := make([]float64, len(y))
		own[i] = 1
		c.base, c.alone = append(slices.Clip(c.base), own), append(c.alone, i)
	}
}

// after is 1 from an index on, 0 before.
func after(n, from int) []float64 {
	x := make([]float64, n)
	for i := from; i < n; i++ {
		x[i] = 1
	}
	return x
}

// week is a mean, and a factor for each day of the week if there are two of
// each.
func week(days []*Bin) [][]float64 {
	columns := [][]float64{after(len(days), 0)}
	var of [7]int
	for _, d := range days {
		of[d.Start.Weekday()]++
	}
	if slices.Min(of[:]) < 2 {
		return columns
	}
	for w := time.Monday; w <= time.Saturday; w++ {
		x := make([]float64, len(days))
		for i, d := range days {
			switch d.Start.Weekday() {
			case w:
				x[i] = 1
			case time.Sunday: // so that the product of the factors is one
				x[i] = -1
			}
		}
		columns = append(columns, x)
	}
	return columns
}

// conclude reports the best step if it is significant, else what can be excluded.
func (r *Report) conclude(days []*Bin, y []float64, best candidate) {
	r.Spread = math.Sqrt(best.rss / float64(best.free))
	if len(best.base)-len(best.alone) == 7 {
		r.Weekdays = weekdays(best.beta)
	}
	if best.p < level {
		trend := make([]float64, len(y))
		for i, d := range days {
			trend[i] = d.Start.Sub(days[0].Start).Hours() / 24
		}
		if drift, ok := regress(y, append(slices.Clip(best.base), trend)); ok && float64(len(y))*math.Log(best.rss/drift.rss) > 2 {
			r.Drift = true
			return
		}
		r.Step = best.describe(days)
		if r.Step.Change < 0 {
			return
		}
	}
	r.Unseen, r.Found = r.bounds(y, best.base)
}

func (c *candidate) describe(days []*Bin) *Step {
	size, deviation := c.step()
	s := newStep(size, deviation, c.free, c.p)
	s.Day = days[c.at].Start
	return s
}

// newStep returns a step of a size on the scale of logarithms, with its intervals.
func newStep(size, deviation float64, free int, p float64) *Step {
	t, wide := quantile(0.975, free), quantile(1-level/2, free)
	return &Step{
		Change: relative(size), P: min(p, 1),
		Low: relative(size - t*deviation), High: relative(size + t*deviation),
		WideLow: relative(size - wide*deviation), WideHigh: relative(size + wide*deviation),
	}
}

// bounds are [Report.Unseen] and [Report.Found] of a step where the rate
// changed, or else where there is a week on either side.
func (r *Report) bounds(y []float64, base [][]float64) (unseen, found float64) {
	var at []int
	for _, c := range r.Changes {
		at = append(at, c.index)
	}
	if len(at) == 0 {
		for i := 7; i <= len(y)-7; i++ {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return 1, 1
	}
	portion := r.portions(len(y))
	for _, i := range at {
		m, ok := regress(y, append(slices.Clip(base), after(len(y), i)))
		if !ok || i < leastSide || i > len(y)-leastSide {
			return 1, 1
		}
		c := candidate{model: m}
		size, deviation := c.step()
		unseen = max(unseen, -relative(size-quantile(0.95, m.free)*deviation))
		found = max(found, power(deviation, level*portion(i), m.free))
	}
	return unseen, found
}

// power is the loss that is found nine times in ten, as a share, by a test of
// this level with these degrees of freedom: nineteen times in twenty by Johnson
// and Welch's approximation of the noncentral t (Biometrika 31, 1940), less the
// steps that look like a drift.
func power(deviation, level float64, free int) float64 {
	const nineteenIn20 = 1.645 // of the normal distribution
	t, n := quantile(1-level, free), float64(free)
	return -relative(-(t*(1-1/(4*n)) + nineteenIn20*math.Sqrt(1+t*t/(2*n))) * deviation)
}

// compare looks at the weighted sums beside the reference, in the stretches
// between the days on which the rate changed, or the sums began to fall short.
func (r *Report) compare(days []*Bin, c *Config) {
	y := make([]float64, len(days))
	for i, d := range days {
		y[i] = math.Log(d.Weighted / c.Reference[d.Start])
	}
	cuts := []int{0, len(days)}
	for _, ch := range r.Changes {
		cuts = append(cuts, ch.index)
	}
	if best, ok := r.bestStep(days, y, [][]float64{after(len(y), 0)}); ok && best.p < level {
		cuts = append(cuts, best.at)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	r.levels(days, y, cuts, c.Tolerance)
	slices.SortFunc(r.Short, func(a, b Short) int { return a.Day.Compare(b.Day) })
}

// levels tests whether a stretch of days falls short of the reference. A day's
// variance is what the sampling makes it, or all together so many times that as
// they turn out to vary (quasi-likelihood). Days that fall short by themselves
// are reported, and left out.
func (r *Report) levels(days []*Bin, y []float64, cuts []int, tolerance float64) {
	taken := make([]int, len(days)) // indices of the days that take part
	for d := range taken {
		taken[d] = d
	}
	for {
		m, ok := stretches(days, y, cuts, taken)
		if !ok {
			return
		}
		i, p := m.outlier(1)
		if i < 0 || p >= shortLevel || m.residuals[i] > 0 || relative(y[taken[i]]) > -tolerance || len(days)-len(taken) == mostAlone {
			r.settle(days, cuts, m)
			return
		}
		r.Short = append(r.Short, Short{days[taken[i]].Start, relative(y[taken[i]])})
		taken = slices.Delete(taken, i, i+1)
	}
}

// stretches fits a level to each stretch, in standard deviations of the days.
func stretches(days []*Bin, y []float64, cuts, taken []int) (model, bool) {
	columns := make([][]float64, len(cuts)-1)
	for i := range columns {
		columns[i] = make([]float64, len(taken))
	}
	scaled := make([]float64, len(taken))
	stretch := 0
	for i, d := range taken {
		for d >= cuts[stretch+1] {
			stretch++
		}
		b := days[d]
		deviation := math.Sqrt(max(0, 1-float64(b.Items)/b.Weight)/float64(b.Items) + borders*borders)
		columns[stretch][i], scaled[i] = 1/deviation, y[d]/deviation
	}
	return regress(scaled, columns)
}

// settle concludes from the levels of the stretches.
func (r *Report) settle(days []*Bin, cuts []int, m model) {
	scale := math.Sqrt(m.rss / float64(m.free))
	r.Spread, r.Unseen, r.Found = scale, 0, leastLoss
	for i, size := range m.beta {
		deviation := m.unit[i] * max(scale, 1)
		p := 2 * survival(math.Abs(size)/deviation, m.free) * float64(len(m.beta))
		s := newStep(size, deviation, m.free, p)
		if i > 0 {
			s.Day = days[cuts[i]].Start
		}
		r.Unseen = max(r.Unseen, -relative(size-quantile(0.95, m.free)*deviation))
		r.Found = max(r.Found, power(deviation, level/float64(2*len(m.beta)), m.free))
		if p < level && s.Change <= -leastLoss && (r.Step == nil || s.Change < r.Step.Change) {
			r.Step = s
		}
	}
}

// weekdays are the factors of a model of [week].
func weekdays(beta []float64) []float64 {
	factors := make([]float64, 7)
	for w := time.Monday; w <= time.Saturday; w++ {
		factors[w] = math.Exp(beta[w])
		factors[time.Sunday] -= beta[w]
	}
	factors[time.Sunday] = math.Exp(factors[time.Sunday])
	return factors
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	if n := len(x); n%2 == 0 {
		return (x[n/2-1] + x[n/2]) / 2
	}
	return x[len(x)/2]
}
