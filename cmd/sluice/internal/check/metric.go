package check

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/source/azuremonitor"
)

// metricChecks are the checks of a metric of an autoscaler.
var metricChecks = []check[*metricSystem]{
	{"metric.read", "A metric is read within 30 seconds: one that is missing blocks every scale-down.", 0, (*metricSystem).checkRead},
	{"metric.late", "Azure Monitor has the value of an interval within three minutes after its end: one that is five minutes late is missing.", 0, (*metricSystem).checkLate},
	{"metric.settled", "Azure Monitor does not change the value of an interval that ended more than a minute ago: it is read from then on.", 0, (*metricSystem).checkSettled},
}

const (
	metricWithin = 30 * time.Second // the collector's bound of a reading
	metricLate   = 3 * time.Minute
	// settledAfter is the time between two readings of the same interval.
	settledAfter = 30 * time.Second
)

// intervals is a source that aggregates over intervals.
type intervals interface {
	Values(ctx context.Context) ([]azuremonitor.Value, error)
}

// metricSystem is a metric that is checked.
type metricSystem struct {
	name     string
	source   autoscale.Source
	requests int // that are measured
}

// OpenMetric makes a [System] of a metric's source. Its checks only read. It does not close the
// source.
func OpenMetric(name string, source autoscale.Source) System {
	return &metricSystem{name, source, 5}
}

// Name implements [System].
func (s *metricSystem) Name() string { return "metric " + s.name }

func (s *metricSystem) Checks() []Check                        { return bind(s, metricChecks) }
func (s *metricSystem) Creates() []string                      { return nil }
func (s *metricSystem) Prepare(context.Context, *Ledger) error { return nil }
func (s *metricSystem) Close(context.Context)                  {}

// Rights implements [System].
func (s *metricSystem) Rights(ctx context.Context) []Right {
	r := Right{Name: "read the metric"}
	_, err := s.source.Read(ctx)
	r.grant(err, "correct what the error names; docs/autoscale.md says which role each kind of metric needs")
	return []Right{r}
}

func (s *metricSystem) checkRead(ctx context.Context) Finding {
	var last autoscale.Reading
	times, err := roundTrips(ctx, "reading", s.requests, func(ctx context.Context) (err error) {
		last, err = s.source.Read(ctx)
		return err
	})
	if err != nil {
		return failed("reading the metric", err)
	}
	slowest := time.Duration(times[len(times)-1].Value * float64(time.Millisecond))
	switch {
	case slowest > metricWithin:
		return differed("a reading took %v", slowest.Round(time.Second)).with(times...).next("look for what makes the metric's source slow")
	case last.State == autoscale.Disabled:
		return held("it is switched off at its source, so it has no value").with(times...)
	}
	return held("its value is %s", autoscale.FormatNumber(last.Value)).with(times...)
}

// values reads the intervals of a source that has them.
func (s *metricSystem) values(ctx context.Context) (list []azuremonitor.Value, finding Finding) {
	source, ok := s.source.(intervals)
	if !ok {
		return nil, skipped("it is not a metric of Azure Monitor")
	}
	list, err := source.Values(ctx)
	switch {
	case err != nil:
		return nil, failed("reading the metric", err)
	case len(list) == 0:
		return nil, undecided("none of the last intervals has a value").next("run the command while the resource is in use")
	}
	return list, Finding{}
}

func (s *metricSystem) checkLate(ctx context.Context) Finding {
	list, finding := s.values(ctx)
	if len(list) == 0 {
		return finding
	}
	newest := list[len(list)-1]
	// The interval after it is the first whose value is not there.
	late := time.Since(newest.To) - newest.To.Sub(newest.From)
	o := held("the newest value is of an interval that ended %v ago", time.Since(newest.To).Round(time.Second))
	if late > metricLate {
		o.State = Warning
		o = o.next("if the metric is often missing, choose another one: Azure has not had a value of it for %v", late.Round(time.Second))
	}
	return o.with(Measure{"age of the newest value", time.Since(newest.To).Seconds(), "s"})
}

func (s *metricSystem) checkSettled(ctx context.Context) Finding {
	before, finding := s.values(ctx)
	if len(before) == 0 {
		return finding
	}
	if err := pause(ctx, settledAfter); err != nil {
		return failed("waiting for a second reading", err)
	}
	after, finding := s.values(ctx)
	if len(after) == 0 {
		return finding
	}
	same := 0
	for _, old := range before {
		for _, now := range after {
			switch {
			case !now.From.Equal(old.From):
			case now.Value != old.Value:
				return tolerated("the value of an interval changed from %s to %s, %v after its end", autoscale.FormatNumber(old.Value), autoscale.FormatNumber(now.Value), time.Since(now.To).Round(time.Second)).
					next("choose a rule that averages over several intervals")
			default:
				same++
			}
		}
	}
	if same == 0 {
		return undecided("no interval was read twice").next("run the command again")
	}
	return held("%d intervals had the same value half a minute later", same)
}
