package chart

import (
	"strings"
	"testing"
	"time"
)

func labels(ticks []tick) string {
	var list []string
	for _, t := range ticks {
		list = append(list, strings.TrimSuffix(t.label+"/"+t.sublabel, "/"))
	}
	return strings.Join(list, " ")
}

func TestNumberTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		whole     bool
		want      string
	}{
		{0, 270, false, "0 50 100 150 200 250"},
		{0, 5, false, "0 1 2 3 4 5"},
		{0, 1.3, false, "0 0.5 1"},
		{0, 1.3, true, "0 1"},
		{0, 0.3, false, "0 0.05 0.1 0.15 0.2 0.25 0.3"},
		{-2500, 3100, false, "-2k -1k 0 1k 2k 3k"},
		{0, 6.5e6, true, "0 2M 4M 6M"},
		{0, 9e12, false, "0 2T 4T 6T 8T"},
	} {
		if got := labels(numberTicks(c.low, c.high, 6, c.whole)); got != c.want {
			t.Errorf("%v to %v: %s, want %s", c.low, c.high, got, c.want)
		}
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 999.9: "999.9", 999.96: "1k", -1500: "-1.5k", 999_940: "999.9k", 999_960: "1M", 2e13: "20T",
	} {
		if got := Short(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}

func TestPowerTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{
		{0.5, 20e3, "1 10 100 1k 10k"}, {4, 90, "5 10 20 50"}, {0.02, 3, "0.1 1"}, {1e-9, 1, "1e-09 1e-08 1e-07 1e-06 1e-05 0.0001 0.001 0.01 0.1 1"},
	} {
		if got := labels(powerTicks(c.low, c.high)); got != c.want {
			t.Errorf("%v to %v: %s, want %s", c.low, c.high, got, c.want)
		}
	}
}

func TestTimeTicks(t *testing.T) {
	from := time.Date(2025, 12, 30, 22, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		long time.Duration
		want string
	}{
		{20 * time.Second, "22:00:00/30 Dec 2025 22:00:05 22:00:10 22:00:15 22:00:20"},
		{time.Hour, "22:00/30 Dec 2025 22:15 22:30 22:45 23:00"},
		{36 * time.Hour, "00:00/31 Dec 2025 12:00 00:00/1 Jan 2026"},
		{5 * day, "31 Dec/2025 1 Jan/2026 2 Jan 3 Jan 4 Jan"},
		{1200 * day, "22 Oct/2026 21 Oct/2027 19 Oct/2028"},
		{40 * 365 * day, "14 Oct/2032 3 Oct/2041 22 Sep/2050 11 Sep/2059"},
	} {
		low := float64(from.Unix())
		got := timeTicks(low, low+c.long.Seconds(), 5, false)
		if labels(got) != c.want || len(got) > 6 {
			t.Errorf("%v: %s, want %s", c.long, labels(got), c.want)
		}
	}
	if got := labels(timeTicks(0, 3000, 5, true)); got != "0:00 10:00 20:00 30:00 40:00 50:00" {
		t.Errorf("elapsed: %s", got)
	}
}
