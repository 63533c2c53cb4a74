package telemetry_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/telemetry"
)

// stored are n items of a day that stand for weight events each, exactly.
func stored(day time.Time, n, weight float64, sdk string) telemetry.Item {
	all := n * weight
	return telemetry.Item{Time: day, Items: int64(n), Raw: n, Weight: all, Weighted: all, Low: all, High: all, Squares: all * weight, SDK: sdk}
}

// steady is a series of a thousand events a day, but for some days, and what an
// unsampled count says.
func steady(t *testing.T, days int, but map[int]float64) (*telemetry.Series, map[time.Time]float64) {
	t.Helper()
	s, err := telemetry.NewSeries(24*time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	truth := map[time.Time]float64{}
	for d := range days {
		day := time.Date(2025, 4, 7+d, 0, 0, 0, 0, time.UTC)
		truth[day] = 1000
		n, other := but[d]
		if !other {
			n = 1000
		}
		if n == 0 {
			continue
		}
		if err := s.Add(stored(day, n, 1, "")); err != nil {
			t.Fatal(err)
		}
	}
	return s, truth
}

// TestDaysThatFallShort has the reference tell of single days.
func TestDaysThatFallShort(t *testing.T) {
	holiday := time.Date(2025, 4, 18, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		but     map[int]float64
		verdict telemetry.Verdict
		say     string
	}{
		{nil, telemetry.Neither, "and a loss of 0."},
		{map[int]float64{5: 0}, telemetry.Loss, "On 2025-04-12 there are no items, though the reference counts some."},
		{map[int]float64{5: 500}, telemetry.Loss, "On 2025-04-12 by itself the weighted sum is 50.0 % short of the reference."},
		{map[int]float64{5: 500, 9: 0, 12: 900}, telemetry.Loss, "On 2025-04-19 by itself the weighted sum is 10.0 %"},
		{map[int]float64{5: 990}, telemetry.Neither, "and a loss of 0."},
		{map[int]float64{5: 2000}, telemetry.Undecided, "can't be excluded"},
		{map[int]float64{11: 0}, telemetry.Neither, "2025-04-18 is left out of the verdict: holiday."},
		{map[int]float64{20: 0, 21: 0}, telemetry.Undecided, "Can't tell: the reference has 2 days after the last item"},
	} {
		s, truth := steady(t, 22, c.but)
		r, err := s.Evaluate(&telemetry.Config{Reference: truth, Holidays: []time.Time{holiday}})
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(r.Explain(), "\n"); r.Verdict != c.verdict || !strings.Contains(text, c.say) {
			t.Errorf("%v: %s\n%s", c.but, r.Verdict, text)
		}
		if err := r.WriteJSON(io.Discard); err != nil {
			t.Errorf("%v: %v", c.but, err)
		}
	}
}

func TestFewAndManyDays(t *testing.T) {
	for _, days := range []int{1, 3, 5} {
		s, _ := steady(t, days, nil)
		r, err := s.Evaluate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if text := r.Explain()[0]; r.Verdict != telemetry.Undecided || text != "Can't tell: there are too few days or items to exclude any loss." {
			t.Errorf("%d days: %s", days, text)
		}
	}
	s, _ := steady(t, 1101, nil)
	if _, err := s.Evaluate(nil); err == nil || !strings.Contains(err.Error(), "it is of 1101 days: take 1100 or fewer at a time") {
		t.Error(err)
	}
}
