package telemetry

import (
	"math"
	"time"
)

// Item is one stored item of telemetry, or several that are alike summed up.
type Item struct {
	Time  time.Time
	Items int64   // stored items: 1, or how many this sums up
	Raw   float64 // the measurement, or its sum over the items; without a measurement, Items
	// Weight is how many items it stands for, or the sum of that.
	Weight float64
	// Weighted is the sum over the items of measurement × weight. Low and High are the least
	// and the most that it can be: itemCount is a whole number, so 3 is 2.5 to 3.5.
	Weighted, Low, High float64
	// Squares is the sum of (measurement × weight)², from which sampling noise is computed.
	Squares float64
	// Suspect is how many of the items have an itemCount that contradicts their rate.
	Suspect int64
	SDK     string // version of the SDK that sent it; empty: not known
}

// halfCount is by how much itemCount, a whole number, differs from what it stands for.
const halfCount = 0.5

// weigh returns how many items one of this itemCount and this rate in percent stands for,
// between which limits that is, and whether the two contradict each other. A count below 1
// and a rate that is not above 0 and at most 100 are not there.
func weigh(count, rate float64) (weight, low, high float64, suspect bool) {
	counted, rated := count >= 1, rate > 0 && rate <= 100
	low, high = max(1, count-halfCount), count+halfCount
	if !rated {
		return count, low, high, false
	}
	exact := 100 / rate
	suspect = counted && math.Abs(exact-count) > halfCount*(1+1e-9)
	if !suspect || count == 1 {
		// Exporters that do not write itemCount leave it at 1.
		return exact, exact, exact, suspect
	}
	return count, min(low, exact), max(high, exact), true
}

// single is an item by itself.
func single(at time.Time, value, count, rate float64, sdk string) Item {
	weight, low, high, suspect := weigh(count, rate)
	it := Item{
		Time: at, Items: 1, Raw: value, Weight: weight, Weighted: value * weight,
		Low: min(value*low, value*high), High: max(value*low, value*high),
		Squares: value * weight * value * weight, SDK: sdk,
	}
	if suspect {
		it.Suspect = 1
	}
	return it
}

// roughly completes sums of items of which only the sums are known: each may be rounded, and
// all are alike.
func (it *Item) roughly() {
	rounding := halfCount * math.Abs(it.Raw)
	it.Low, it.High = it.Weighted-rounding, it.Weighted+rounding
	if it.Weighted >= it.Raw && it.Raw >= 0 {
		it.Low = max(it.Low, it.Raw) // nothing stands for less than itself
	}
	it.Squares = it.Weighted * it.Weighted / float64(max(it.Items, 1))
}
