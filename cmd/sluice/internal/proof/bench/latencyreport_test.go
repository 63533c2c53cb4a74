//go:build unix

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func rateRunOf(round int, millis float64, events int) *rateRun {
	run := &rateRun{Round: round, Reached: 1000}
	run.Published = spread{P50: millis, P99: 2 * millis, P999: 4 * millis, Max: 8 * millis, Events: events}
	run.runStats.CPU, run.Seconds = 1, 4
	return run
}

// The ratios are those of the rounds, and not that of the medians.
func TestLatencyTable(t *testing.T) {
	r := &latencyReport{}
	for round, millis := range []float64{3, 40, 10} {
		r.addRate(1000, contender{Name: sluiceContender}, rateRunOf(round, millis, 999))
	}
	for round, millis := range []float64{6, 10, 30} {
		r.addRate(1000, contender{Name: handContender}, rateRunOf(round, millis, 999))
	}
	r.addRate(5000, contender{Name: handContender}, rateRunOf(0, 1, 99))
	r.addIdle(32, contender{Name: sluiceContender}, &idleRun{CPU: 1, Wakeups: 100})
	r.addIdle(32, contender{Name: sluiceContender}, &idleRun{CPU: 3, Wakeups: 300})
	var out bytes.Buffer
	r.print(&out)
	for _, row := range []string{
		"| 1.0k | sluice | 10.0 ms | 20.0 ms | – | 80.0 ms | 0.50, 0.50 | 0 | 25.0 | 0.0 |\n",
		"| 1.0k | by hand | 10.0 ms | 20.0 ms | – | 80.0 ms |  | 0 | 25.0 | 0.0 |\n",
		"| 5.0k (published: 1.0k) | by hand | 1.0 ms | – | – | 8.0 ms |  | 0 | 25.0 | 0.0 |\n",
		"| 32 | sluice | 2.00 | 200 |",
	} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("the tables lack %q:\n%s", row, &out)
		}
	}
}

func TestSpreadOfTheSlowest(t *testing.T) {
	var list []time.Duration
	for i := range 10_000 {
		list = append(list, time.Duration(i)*time.Millisecond)
	}
	if s := spreadOf(list); s != (spread{5000, 9900, 9990, 9999, 10_000}) {
		t.Error(s)
	}
}

func TestNumbers(t *testing.T) {
	if list, err := numbers("1,20,,300"); err != nil || len(list) != 3 || list[2] != 300 {
		t.Error(list, err)
	}
	for _, wrong := range []string{"0", "-1", "1;2", "x"} {
		if list, err := numbers(wrong); err == nil {
			t.Errorf("%q: %v", wrong, list)
		}
	}
}
