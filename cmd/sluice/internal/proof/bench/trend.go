//go:build unix

package main

import "github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"

// trend compares the two halves of a run.
type trend struct {
	First   float64 `json:"first_half"`
	Second  float64 `json:"second_half"`
	Most    float64 `json:"at_most"` // that Second may be
	Samples int     `json:"samples"`
	Flat    bool    `json:"flat"`
}

func (t trend) String() string {
	switch {
	case t.Samples < fewestQuiet:
		return "too few quiet seconds"
	case t.Flat:
		return "flat"
	}
	return "not flat"
}

// rule is how much the median of the second half may be above that of the first.
type rule struct{ times, plus float64 }

var (
	// memoryRule allows for a garbage collector that runs at another moment. A leak of a megabyte a
	// minute shows after 40 minutes.
	memoryRule = rule{1.1, 8e6}
	// latencyRule allows for other load on the machine, in milliseconds.
	latencyRule = rule{1.5, 5}
)

// fewestQuiet is how many seconds each half needs.
const fewestQuiet = 20

// quietSample is a sample, with whether it is of the second half.
type quietSample struct {
	*sample
	second bool
}

// quietOf returns the samples of the seconds that no fault disturbs: after the first tenth of the
// duration, without those from a fault until two seconds in a row with a lag of less than a second
// of input have passed, and the two after them.
func quietOf(samples []sample, marks []mark, duration float64, rate int) (quiet []quietSample) {
	const calmFor = 4
	calm := calmFor
	from := 0.1 * duration
	half := from + (duration-from)/2
	for i := range samples {
		now := &samples[i]
		for len(marks) > 0 && marks[0].Seconds <= now.Seconds {
			marks, calm = marks[1:], 0
		}
		if now.lag() >= float64(rate) {
			calm = 0
			continue
		}
		if calm++; calm <= calmFor || now.Seconds < from || now.Seconds > duration {
			continue
		}
		quiet = append(quiet, quietSample{now, now.Seconds > half})
	}
	return quiet
}

// trendOf compares the medians of the halves. Seconds with the value 0 do not count: nothing was
// committed.
func trendOf(quiet []quietSample, of func(*sample) float64, allowed rule) trend {
	var halves [2][]float64
	for _, q := range quiet {
		if v := of(q.sample); v > 0 {
			i := 0
			if q.second {
				i = 1
			}
			halves[i] = append(halves[i], v)
		}
	}
	t := trend{First: measure.Median(halves[0]), Second: measure.Median(halves[1]), Samples: min(len(halves[0]), len(halves[1]))}
	t.Most = t.First*allowed.times + allowed.plus
	t.Flat = t.Samples >= fewestQuiet && t.Second <= t.Most
	return t
}
