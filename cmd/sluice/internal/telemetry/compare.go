package telemetry

import (
	"math"
	"time"
)

// Step is by how much the weighted sums of a stretch of days differ from those before it, or
// from the reference.
type Step struct {
	Day       time.Time // the first day of the stretch; zero: all days
	Change    float64   // relative: -0.2 means a fifth less
	Low, High float64   // the interval of Change
	// NoiseLow and NoiseHigh are the interval without the rounding of itemCount.
	NoiseLow, NoiseHigh float64
}

// ratio estimates what part of the expected sum there is.
type ratio struct {
	value, deviation float64 // the estimate and its standard deviation, if nothing is lost
	free             int     // degrees of freedom of the days
	low, high        float64 // factors by which the rounding of itemCount may change it
}

// step is the ratio with its interval. If nothing is lost, the interval misses that with the
// probability 2 × level.
func (e *ratio) step(day time.Time, level float64) *Step {
	noise := quantile(1-level, e.free) * e.deviation
	s := &Step{Day: day, Change: e.value - 1, NoiseLow: max(e.value-noise, 0) - 1, NoiseHigh: e.value + noise - 1}
	s.Low, s.High = (s.NoiseLow+1)*e.low-1, (s.NoiseHigh+1)*e.high-1
	return s
}

// cell is the days of one weekday on one side.
type cell struct{ days, items, weighted, low, high float64 }

func (c *cell) add(d *Bin) {
	c.days++
	c.items += float64(d.Items)
	c.weighted += d.Weighted
	c.low += d.Low
	c.high += d.High
}

// week is the days on two sides, by weekday.
type week [7][2]cell

// shares are what part of the days of a weekday are on the second side, and the weight that the
// weekday has in a comparison: none if it is on one side only.
func (w *week) shares(weekday time.Weekday) (second, weight float64) {
	n, m := w[weekday][0].days, w[weekday][1].days
	return m / (n + m), n * m / (n + m)
}

// comparison is of the days from a cut on with those before. Each weekday is compared with
// itself only.
type comparison struct {
	ratio
	days    []*Bin
	cut     time.Time
	week    week
	weights float64    // of the weekdays together
	means   [7]float64 // sum of a day, by weekday, if nothing is lost
	unit    [2]float64 // of the days on either side
	spread  float64    // the days' own variance, relative
}

// step is the ratio with its interval, see [ratio.step].
func (c *comparison) step(level float64) *Step { return c.ratio.step(c.cut, level) }

// score is how far a comparison is from no loss, in standard deviations; below 0 for a loss.
func (c *comparison) score() float64 { return (c.value - 1) / c.deviation }

func (c *comparison) side(d *Bin) int {
	if d.Start.Before(c.cut) {
		return 0
	}
	return 1
}

const (
	// leastItems is how many items each side needs: fewer are not distributed normally.
	leastItems = 30
	// leastFree is how many degrees of freedom it takes to know how much the days vary.
	leastFree = 3
)

// compare compares the days from a cut on with those before. It returns false if too little can
// be compared.
func compare(days []*Bin, cut time.Time) (*comparison, bool) {
	c := &comparison{cut: cut, days: days}
	return c, c.fit() && c.settle()
}

// fit estimates the ratio of the sides of the days.
func (c *comparison) fit() bool {
	w := &c.week
	sides := [2]Bin{}
	for _, d := range c.days {
		side := c.side(d)
		w[d.Start.Weekday()][side].add(d)
		sides[side].sum(d)
	}
	var both [2]cell // what can be compared
	for weekday := range time.Weekday(7) {
		_, weight := w.shares(weekday)
		if !(weight > 0) {
			continue
		}
		c.weights += weight
		for side, of := range w[weekday] {
			both[side].items += of.items
			both[side].weighted += weight * of.weighted / of.days
			both[side].low += weight * of.low / of.days
			both[side].high += weight * of.high / of.days
		}
	}
	c.value = both[1].weighted / both[0].weighted
	// Where much is lost, so are the items that the second side needs.
	enough := both[0].items >= leastItems && both[1].items >= leastItems*min(1, c.value)
	if !enough || both[0].low <= 0 || both[1].low <= 0 {
		return false
	}
	c.low = both[1].low / both[1].weighted * both[0].weighted / both[0].high
	c.high = both[1].high / both[1].weighted * both[0].weighted / both[0].low
	for side := range c.unit {
		c.unit[side] = sides[side].unit()
	}
	for weekday := range time.Weekday(7) {
		before, after := w[weekday][0], w[weekday][1]
		c.means[weekday] = (before.weighted + after.weighted/c.value) / (before.days + after.days)
	}
	return true
}

// settle computes how much the days vary of their own, beside sampling noise, and from both the
// deviation of the ratio. It returns false if the days are too few to show it.
func (c *comparison) settle() bool {
	// rss is of the relative residuals, weighted by the means: large days have the least noise.
	// Sampling makes noise of it, and a variance of the days of 1 makes whole.
	var rss, noise, whole, squares float64
	for _, d := range c.days {
		if residual, sampling, spare := c.residual(d); spare > 0 {
			weight := c.means[d.Start.Weekday()]
			rss += weight * residual * residual
			noise += weight * spare * sampling
			whole += weight * spare
			squares += weight * weight * spare
		}
	}
	// Satterthwaite's formula: the days that are left of each weekday, if weekdays are alike.
	const exactly = 1e-9
	if c.free = int(whole*whole/squares + exactly); !(squares > 0) || c.free < leastFree {
		return false
	}
	c.spread = max(0, (rss-noise)/whole)
	total, variance := 0.0, 0.0
	for weekday, mean := range c.means {
		_, weight := c.week.shares(time.Weekday(weekday))
		if !(weight > 0) || mean == 0 {
			continue
		}
		total += weight * mean
		for side, of := range c.week[weekday] {
			variance += weight * weight * mean * mean / of.days * (c.spread + c.unit[side]/mean)
		}
	}
	c.deviation = math.Sqrt(variance) / total * max(1, c.value)
	return true
}

// residual is by how much a day differs from what is expected, relatively, the sampling variance
// of that, and what part of a residual's variance the fit leaves (one less the leverage); zero
// where nothing is expected.
func (c *comparison) residual(d *Bin) (residual, sampling, spare float64) {
	weekday, side := d.Start.Weekday(), c.side(d)
	expected := c.means[weekday]
	if side == 1 {
		expected *= c.value
	}
	if !(expected > 0) {
		return 0, 0, 0
	}
	second, _ := c.week.shares(weekday)
	x := float64(side) - second
	spare = 1 - 1/(c.week[weekday][0].days+c.week[weekday][1].days) - x*x/c.weights
	return d.Weighted/expected - 1, c.unit[side] / expected, spare
}

// odd returns the day that differs most from what is expected, and by how much, relatively.
func (c *comparison) odd() (day time.Time, by float64) {
	for _, d := range c.days {
		if residual, _, _ := c.residual(d); math.Abs(residual) > math.Abs(by) {
			day, by = d.Start, residual
		}
	}
	return day, by
}

// drifts reports whether sums that fall a little each day explain the days better than sums that
// fall at once.
func (c *comparison) drifts() bool {
	// least is what is left of the squares after a regression on x beside a mean of each weekday.
	least := func(x func(*Bin) float64) float64 {
		var n, sx, sy [7]float64
		for _, d := range c.days {
			weekday := d.Start.Weekday()
			n[weekday]++
			sx[weekday] += x(d)
			sy[weekday] += c.relative(d)
		}
		var xx, xy, yy float64
		for _, d := range c.days {
			weekday := d.Start.Weekday()
			dx, dy := x(d)-sx[weekday]/n[weekday], c.relative(d)-sy[weekday]/n[weekday]
			xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
		}
		return yy - xy*xy/xx
	}
	step := least(func(d *Bin) float64 { return float64(c.side(d)) })
	slope := least(func(d *Bin) float64 { return d.Start.Sub(c.cut).Hours() / 24 })
	return float64(len(c.days))*math.Log(step/slope) > clearly
}

// clearly is by how much an explanation must be better than another (a difference of deviances).
const clearly = 6

// relative is a day's sum as a part of its weekday's mean.
func (c *comparison) relative(d *Bin) float64 {
	if mean := c.means[d.Start.Weekday()]; mean > 0 {
		return d.Weighted / mean
	}
	return 1
}
