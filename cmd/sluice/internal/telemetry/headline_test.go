package telemetry_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
)

var (
	upTo     = regexp.MustCompile(`a loss (?:under|of) ([0-9.]+) %`)
	interval = regexp.MustCompile(`^About ([0-9.]+) % of the events are missing \(99.5 % interval ([0-9.]+) to ([0-9.]+) %\); sampling`)
)

// TestHeadlineNumbers: in data with a known loss, the loss is at most what the headline does not exclude,
// or within its interval, in 92 of 100 sets: the model is fitted to the same days, which costs some of the
// 95.
func TestHeadlineNumbers(t *testing.T) {
	const sets = 400
	for _, c := range []struct {
		loss     float64
		sampled  bool
		referred bool
		spread   float64
		weeks    int
	}{
		{0, true, false, 0.05, 0}, {0.02, true, false, 0.05, 0}, {0.05, true, false, 0.05, 0}, {0.3, true, false, 0.05, 0},
		{0, false, false, 0.05, 0}, {0.3, false, false, 0.05, 0}, {0.02, true, false, 0.01, 4}, {0.1, true, true, 0.05, 0},
	} {
		t.Run(fmt.Sprintf("loss %v sampled %v referred %v spread %v", c.loss, c.sampled, c.referred, c.spread), func(t *testing.T) {
			t.Parallel()
			right, bounds, intervals := 0, 0, 0
			for seed := range uint64(sets) {
				p := published{volume: 50_000, spread: c.spread, sampled: c.sampled, loss: c.loss, holiday: int(seed % setDays), weeks: c.weeks}
				text := p.judge(t, seed, c.referred).Explain()[0]
				if m := upTo.FindStringSubmatch(text); m != nil {
					bounds++
					if 100*c.loss <= number(t, m[1]) {
						right++
					}
				} else if m := interval.FindStringSubmatch(text); m != nil {
					intervals++
					if about := number(t, m[1]); number(t, m[2]) <= 100*c.loss && 100*c.loss <= number(t, m[3]) && number(t, m[2]) <= about && about <= number(t, m[3]) {
						right++
					}
				} else if text != "Can't tell: the days drift." && !c.referred {
					t.Fatalf("the headline has no number: %s", text)
				} else {
					right++ // it says nothing about a loss
				}
			}
			t.Logf("right in %d of %d: %d bounds, %d intervals", right, sets, bounds, intervals)
			if right < sets*92/100 {
				t.Errorf("right in %d of %d sets", right, sets)
			}
			if c.loss >= 0.1 && intervals < sets*95/100 || c.loss == 0 && bounds < sets*95/100 {
				t.Errorf("%d bounds, %d intervals", bounds, intervals)
			}
		})
	}
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
