package check

import (
	"context"
	"slices"
	"time"
)

// betweenRequests keeps measurements below quotas such as Event Hubs' 50 requests a second.
const betweenRequests = 40 * time.Millisecond

// roundTrips times a request n times, and returns the percentiles. Fewer than n are enough if the
// time runs out.
func roundTrips(ctx context.Context, name string, n int, request func(context.Context) error) ([]Measure, error) {
	var times []time.Duration
	for i := range n {
		if i > 0 {
			_ = pause(ctx, betweenRequests) // the request looks at ctx
		}
		began := time.Now()
		if err := request(ctx); err != nil {
			if len(times) > 0 && ctx.Err() != nil {
				break
			}
			return nil, err
		}
		times = append(times, time.Since(began))
	}
	return []Measure{
		{name + ", p50", milliseconds(percentile(times, 50)), "ms"},
		{name + ", p99", milliseconds(percentile(times, 99)), "ms"},
	}, nil
}

// percentile is the smallest time that p of 100 are not above.
func percentile(times []time.Duration, p int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// perSecond is a rate.
func perSecond(n float64, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return n / took.Seconds()
}

// clockDifference compares the server's clock with this machine's. The answer was made between
// asked and answered.
func clockDifference(server, asked, answered time.Time) (difference, uncertain time.Duration) {
	middle := asked.Add(answered.Sub(asked) / 2)
	return server.Sub(middle), answered.Sub(asked) / 2
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
