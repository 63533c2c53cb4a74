package telemetry

import (
	"fmt"
	"slices"
	"time"
)

// Bin is what was stored over a stretch of time.
type Bin struct {
	Start    time.Time
	Items    int64
	Raw      float64
	Weight   float64
	Weighted float64
	// Low and High limit Weighted, and Squares are for its noise, as in an [Item].
	Low, High, Squares float64
	Suspect            int64
	SDKs               map[string]int64 // items by the version of the SDK
	// First and Last are the times of the first and the last item.
	First, Last time.Time
}

// Rate is the sampling rate in percent, 100 / avg(itemCount); 0 without items.
func (b *Bin) Rate() float64 {
	if b.Weight == 0 {
		return 0
	}
	return 100 * float64(b.Items) / b.Weight
}

// sum adds the sums of another bin.
func (b *Bin) sum(o *Bin) {
	b.Items += o.Items
	b.Raw += o.Raw
	b.Weight += o.Weight
	b.Weighted += o.Weighted
	b.Low += o.Low
	b.High += o.High
	b.Squares += o.Squares
	b.Suspect += o.Suspect
}

// unit is the variance of Weighted by Weighted itself: an item that stands for w items adds w², as
// events come at random (Poisson) and are kept at random.
func (b *Bin) unit() float64 {
	if !(b.Weighted > 0) {
		return 0
	}
	return b.Squares / b.Weighted
}

// sampled is the part of that variance that sampling makes, where it is known how many events there
// were: w² × (1-1/w) for an item (binomial).
func (b *Bin) sampled() float64 {
	if !(b.Weight > 0) {
		return 0
	}
	return max(0, 1-float64(b.Items)/b.Weight)
}

const (
	// maxBins bounds what one audit holds: eleven years of hours.
	maxBins = 100_000
	// maxSDKs is how many versions a bin distinguishes; the rest are "others".
	maxSDKs = 64
)

// Series gathers items in bins. It is not safe for concurrent use.
type Series struct {
	size time.Duration
	zone *time.Location
	bins map[time.Time]*Bin
}

// NewSeries begins an empty series. The bin's size must divide a day, or be
// one: the verdict is about days. Days begin at midnight in the zone, nil for
// UTC.
func NewSeries(bin time.Duration, zone *time.Location) (*Series, error) {
	if bin < time.Minute || 24*time.Hour%bin != 0 {
		return nil, fmt.Errorf("bins of %v: take a length from 1m to 24h that divides a day", bin)
	}
	if zone == nil {
		zone = time.UTC
	}
	return &Series{size: bin, zone: zone, bins: map[time.Time]*Bin{}}, nil
}

// Add puts an item into its bin.
func (s *Series) Add(it Item) error {
	start := s.start(it.Time)
	b := s.bins[start]
	if b == nil {
		if len(s.bins) == maxBins {
			return fmt.Errorf("more than %d bins of %v: take longer bins, or less time", maxBins, s.size)
		}
		b = &Bin{Start: start, SDKs: map[string]int64{}, First: it.Time, Last: it.Time}
		s.bins[start] = b
	}
	b.add(it)
	return nil
}

func (b *Bin) add(it Item) {
	b.sum(&Bin{
		Items: it.Items, Raw: it.Raw, Weight: it.Weight, Weighted: it.Weighted,
		Low: it.Low, High: it.High, Squares: it.Squares, Suspect: it.Suspect,
	})
	if it.Time.Before(b.First) {
		b.First = it.Time
	}
	if it.Time.After(b.Last) {
		b.Last = it.Time
	}
	if it.SDK == "" {
		return
	}
	if _, known := b.SDKs[it.SDK]; !known && len(b.SDKs) >= maxSDKs {
		it.SDK = "others"
	}
	b.SDKs[it.SDK] += it.Items
}

// start is when the bin of a time begins. Where a clock change makes a day of
// 23 or 25 hours, its bins are counted from midnight and the last is shorter or
// longer.
func (s *Series) start(t time.Time) time.Time {
	midnight := midnightOf(t, s.zone)
	n := t.Sub(midnight) / s.size
	if last := 24*time.Hour/s.size - 1; n > last {
		n = last
	}
	return midnight.Add(n * s.size)
}

func midnightOf(t time.Time, zone *time.Location) time.Time {
	y, m, d := t.In(zone).Date()
	return time.Date(y, m, d, 0, 0, 0, 0, zone)
}

// Bins are the bins that have items, by time.
func (s *Series) Bins() []*Bin {
	list := make([]*Bin, 0, len(s.bins))
	for _, b := range s.bins {
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b *Bin) int { return a.Start.Compare(b.Start) })
	return list
}

// days sums the bins up by days, from the first to the last that has items;
// days between them without any are nil.
func (s *Series) days() []*Bin {
	bins := s.Bins()
	if len(bins) == 0 {
		return nil
	}
	first := midnightOf(bins[0].Start, s.zone)
	var days []*Bin
	for _, b := range bins {
		midnight := midnightOf(b.Start, s.zone)
		// Rounded, because of days of 23 and 25 hours.
		index := int(midnight.Sub(first).Round(24*time.Hour) / (24 * time.Hour))
		for len(days) <= index {
			days = append(days, nil)
		}
		if days[index] == nil {
			days[index] = &Bin{Start: midnight, SDKs: map[string]int64{}, First: b.First, Last: b.Last}
		}
		days[index].join(b)
	}
	return days
}

// join adds what another bin holds.
func (b *Bin) join(o *Bin) {
	b.sum(o)
	if o.Last.After(b.Last) {
		b.Last = o.Last
	}
	for name, n := range o.SDKs {
		if _, known := b.SDKs[name]; !known && len(b.SDKs) >= maxSDKs {
			name = "others"
		}
		b.SDKs[name] += n
	}
}
