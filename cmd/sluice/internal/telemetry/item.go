package telemetry

import "time"

// Item is one stored item of telemetry, or several that are alike summed up.
type Item struct {
	Time  time.Time
	Items int64   // stored items: 1, or how many this sums up
	Raw   float64 // the measurement, or its sum over the items; without a measurement, Items
	// Weight is how many items it stands for: itemCount, or the sum of them.
	Weight float64
	// Weighted is the sum over the items of measurement × itemCount.
	Weighted float64
	// Suspect is how many of the items said that they stand for themselves
	// alone, beside a sampling rate below 100 %. They are weighed by the rate.
	Suspect int64
	SDK     string // version of the SDK that sent it; empty: not known
}

// single is an item by itself. The rate is the property
// microsoft.sample_rate in percent, 0 if there is none.
func single(at time.Time, value, count, rate float64, sdk string) Item {
	it := Item{Time: at, Items: 1, Raw: value, Weight: max(count, 1), SDK: sdk}
	if it.Weight == 1 && rate > 0 && rate < 100 {
		it.Weight, it.Suspect = 100/rate, 1
	}
	it.Weighted = value * it.Weight
	return it
}
