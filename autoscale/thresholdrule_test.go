package autoscale_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// timeOfDay is a time of that day, written "12:04" or "12:04:30".
func timeOfDay(t *testing.T, text string) time.Time {
	t.Helper()
	if strings.Count(text, ":") == 1 {
		text += ":00"
	}
	clock, err := time.Parse(time.TimeOnly, text)
	if err != nil {
		t.Fatal(err)
	}
	return noon.Truncate(24 * time.Hour).Add(clock.Sub(clock.Truncate(24 * time.Hour)))
}

// points are values a minute apart, up to and with the last at a time.
func points(last time.Time, values ...float64) []autoscale.Point {
	list := make([]autoscale.Point, len(values))
	for i, v := range values {
		list[i] = autoscale.Point{Resource: "r", Metric: "backlog", Time: last.Add(time.Duration(i-len(values)+1) * time.Minute), Value: v}
	}
	return list
}

// TestPublishedRule checks the published rule on histories computed by hand: upper
// threshold 500, lower 300, three instances of 1 to 10.
func TestPublishedRule(t *testing.T) {
	type history struct {
		name   string
		now    string
		points []autoscale.Point
		last   string // when the last action succeeded
		want   autoscale.RecordKind
		reason string
	}
	p := func(last string, values ...float64) []autoscale.Point { return points(timeOfDay(t, last), values...) }
	single := func(when string, v float64) autoscale.Point { return p(when, v)[0] }
	histories := []history{
		{"no value", "12:00", nil, "", autoscale.Hold, "metric backlog is missing: no value"},
		{"four values are too few", "12:00", p("12:00", 900, 900, 900, 900), "", autoscale.Hold, "metric backlog is missing: 4 of 5 required values"},
		{"five are enough, upwards", "12:00", p("12:00", 900, 900, 900, 900, 900), "", autoscale.Up, "900, above the upper threshold 500"},
		{"five are enough, downwards", "12:00", p("12:00", 0, 0, 0, 0, 0), "", autoscale.Down, "0, below the lower threshold 300"},
		{"four of five for another time: the same point twice is one", "12:00", append(p("12:00", 900, 900, 900, 900), single("12:00", 900)), "", autoscale.Hold, "4 of 5 required values"},

		{"an average on the threshold is not above it", "12:00", p("12:00", 500, 500, 500, 500, 500), "", autoscale.Hold, "not above the upper threshold 500"},
		{"an average of 500.8 truncates onto it", "12:00", p("12:00", 500, 501, 501, 501, 501), "", autoscale.Hold, "500, not above the upper threshold 500"},
		{"an average of 501 is above", "12:00", p("12:00", 501, 501, 501, 501, 501), "", autoscale.Up, "501, above the upper threshold 500"},
		{"one high value counts by its weight", "12:00", p("12:00", 0, 0, 0, 0, 2505), "", autoscale.Up, "501, above"},
		{"and not beyond it", "12:00", p("12:00", 0, 0, 0, 0, 2504), "", autoscale.Hold, "500, not above"},

		{"a maximum on the lower threshold is not below it", "12:00", p("12:00", 0, 300, 0, 0, 0), "", autoscale.Hold, "300, not below the lower threshold 300"},
		{"a maximum of 299.5 is below: it is not truncated", "12:00", p("12:00", 299.5, 0, 0, 0, 0), "", autoscale.Down, "299.5, below the lower threshold 300"},
		{"one value above the lower threshold keeps it", "12:00", p("12:00", 0, 0, 0, 301, 0), "", autoscale.Hold, "301, not below"},
		{"between the thresholds nothing is done", "12:00", p("12:00", 400, 400, 400, 400, 400), "", autoscale.Hold, "not above the upper threshold 500"},

		{"a value exactly ten minutes old stays", "12:00", append([]autoscale.Point{single("11:50", 900)}, p("12:00", 0, 0, 0, 0)...), "", autoscale.Hold, "900, not below the lower threshold 300"},
		{"and makes the fifth", "12:00", append([]autoscale.Point{single("11:50", 100)}, p("12:00", 0, 0, 0, 0)...), "", autoscale.Down, "100, below the lower threshold 300"},
		{"one a second older is gone", "12:00", append([]autoscale.Point{single("11:49:59", 900)}, p("12:00", 0, 0, 0, 0)...), "", autoscale.Hold, "4 of 5 required values"},
		{"eleven values, a minute apart, are all there", "12:00", p("12:00", 5511, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), "", autoscale.Up, "501, above the upper threshold 500"},
		{"the twelfth is not", "12:00", p("12:00", 99999, 5511, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), "", autoscale.Up, "501, above the upper threshold 500"},
		{"what lies between reading and deciding pushes nothing out", "12:00:00.9", append([]autoscale.Point{single("11:50", 900)}, p("12:00", 0, 0, 0, 0)...), "", autoscale.Hold, "900, not below the lower threshold 300"},

		{"a source gone silent decides nothing", "12:00", append(p("11:54", 900, 900, 900, 900), single("11:49", 900)), "", autoscale.Hold, "no value since 11:54:00"},
		{"after a gap the values on both its sides count", "12:00", append(p("11:52", 900, 900, 900), p("12:00", 900, 900)...), "", autoscale.Up, "900, above the upper threshold 500"},
		{"after a long gap it starts again", "12:00", append(p("11:30", 900, 900, 900, 900, 900), single("12:00", 900)), "", autoscale.Hold, "1 of 5 required values"},

		{"ten minutes after the last action the cooldown lasts", "12:00", p("12:00", 900, 900, 900, 900, 900), "11:50", autoscale.Hold, "in cooldown: the last action succeeded 10m0s ago, the cooldown is 10m0s"},
		{"strictly more than ten minutes after it does not", "12:00", p("12:00", 900, 900, 900, 900, 900), "11:49:59", autoscale.Up, "900"},
		{"nor downwards", "12:00", p("12:00", 0, 0, 0, 0, 0), "11:50", autoscale.Hold, "cooldown"},
		{"the history goes on during the cooldown", "12:00", p("12:00", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), "11:49:59", autoscale.Down, "below the lower threshold 300"},

		{"the clock set back: values from the future are dropped", "11:00", append(p("11:00", 0, 0, 0, 0), p("12:00", 900, 900, 900, 900, 900)...), "", autoscale.Hold, "4 of 5 required values"},
		{"and an action in the future was just now", "11:00", p("11:00", 900, 900, 900, 900, 900), "12:00", autoscale.Hold, "the last action succeeded 0s ago"},
		{"a collector's clock that is ahead loses nothing", "12:00:00", append(p("11:59:09", 900, 900, 900, 900), single("12:00:10", 900)), "", autoscale.Up, "900"},
		{"its newest value is where the window ends", "12:00:00", append([]autoscale.Point{single("11:50:10", 900)}, p("12:00:10", 0, 0, 0, 0)...), "", autoscale.Hold, "900, not below the lower threshold 300"},
		{"and one a second older is gone", "12:00:00", append([]autoscale.Point{single("11:50:09", 900)}, p("12:00:10", 0, 0, 0, 0)...), "", autoscale.Hold, "4 of 5 required values"},
		{"a clock more than a minute ahead is not believed", "12:00:00", append(p("11:59:00", 900, 900, 900, 900), single("12:01:01", 900)), "", autoscale.Hold, "4 of 5 required values"},
		{"the clock set back by seconds changes nothing", "11:59:50", p("12:00", 900, 900, 900, 900, 900), "", autoscale.Up, "900"},
	}
	limits, err := autoscale.Limits{}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	resource := &autoscale.Resource{Name: "r", Metrics: []string{"backlog"}, Rule: autoscale.ThresholdRule{Metric: "backlog", Upper: 500, Lower: 300}, Limits: limits}
	for _, h := range histories {
		t.Run(h.name, func(t *testing.T) {
			now, w := time.Time{}, &autoscale.Window{}
			if fraction, cut := strings.CutSuffix(h.now, ".9"); cut {
				now = timeOfDay(t, fraction).Add(900 * time.Millisecond)
			} else {
				now = timeOfDay(t, h.now)
			}
			for _, p := range h.points {
				w.Add(p)
			}
			m := &autoscale.ResourceState{Resource: "r", Windows: map[string]*autoscale.Window{"backlog": w}, Instances: 3, Reported: now}
			if h.last != "" {
				m.LastUp = timeOfDay(t, h.last)
			}
			record := resource.Decide(m, now, autoscale.Never)
			if record.Kind != h.want || !strings.Contains(record.Reason, h.reason) {
				t.Fatalf("got %s: %s; want %s: … %s …", record.Kind, record.Reason, h.want, h.reason)
			}
			wanted := map[autoscale.RecordKind]int{autoscale.Up: 4, autoscale.Hold: 3, autoscale.Down: 2}[h.want]
			if record.Wanted != wanted || (m.Pending != nil) != (h.want != autoscale.Hold) {
				t.Errorf("wants %d instances, pending %v; want %d", record.Wanted, m.Pending, wanted)
			}
		})
	}
}
