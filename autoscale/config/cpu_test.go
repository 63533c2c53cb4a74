package config_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/backtest"
	"github.com/sluice-go/sluice/autoscale/config"
)

// TestCPURule replays the published example of a rule on CPU percentages on a day, and
// compares each decision with what the rule says in words.
func TestCPURule(t *testing.T) {
	const series = "../backtest/testdata/cpu.csv"
	file, err := os.Open(series)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	recording, err := backtest.Read(series, file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadRule("../../examples/autoscale/cpu.yaml", []string{"cpu"})
	if err != nil {
		t.Fatal(err)
	}
	result, err := backtest.Run(&c.Resource, recording, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range result.Decisions {
		got = append(got, fmt.Sprintf("%s %d→%d", d.Time.Format("15:04"), d.Instances, d.Wanted))
	}
	want := byHand(recording)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("decided\n%s\nby hand\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if result.ScaleUps < 3 || result.ScaleDowns < 3 {
		t.Errorf("%d up and %d down show nothing", result.ScaleUps, result.ScaleDowns)
	}
	t.Logf("%d up, %d down, at most %d instances", result.ScaleUps, result.ScaleDowns, result.MaxInstances)
}

// byHand is the rule as a loop over the minutes: from the fifth value on, the average of
// the last ten minutes, as a whole number, above 80 % adds an instance; a maximum below the
// threshold of the number of instances removes one; more than ten minutes pass between.
func byHand(r *backtest.Recording) (list []string) {
	threshold := map[int]float64{1: 25, 2: 30, 3: 35, 4: 40, 5: 45, 6: 50, 7: 55, 8: 60, 9: 60, 10: 60}
	instances, last := int(r.Rows[0].Values[1].Value), time.Time{}
	for i, row := range r.Rows {
		sum, most, n := 0.0, math.Inf(-1), 0.0
		for _, before := range r.Rows[max(0, i-10) : i+1] {
			if v := before.Values[0]; v.State == autoscale.Active {
				sum, most, n = sum+v.Value, max(most, v.Value), n+1
			}
		}
		wanted := instances
		switch {
		case n < 5 || row.Time.Sub(last) <= 10*time.Minute:
		case math.Trunc(sum/n) > 80:
			wanted = min(instances+1, 10)
		case most < threshold[instances]:
			wanted = max(instances-1, 1)
		}
		if wanted != instances {
			list = append(list, fmt.Sprintf("%s %d→%d", row.Time.Format("15:04"), instances, wanted))
			instances, last = wanted, row.Time
		}
	}
	return list
}
