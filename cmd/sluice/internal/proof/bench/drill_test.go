//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"strings"
	"testing"
	"time"
)

func TestTally(t *testing.T) {
	published := []int64{130, 1}
	complete := func() *tally {
		t := newTally(published)
		for n := range int64(130) {
			t.add(0, n)
		}
		t.add(1, 0)
		return t
	}
	for name, c := range map[string]struct {
		tally *tally
		want  tally
	}{
		"complete":      {complete(), tally{Rows: 131, Distinct: 131}},
		"none":          {newTally(published), tally{Missing: 131}},
		"duplicated":    {more(complete(), 0, 129), tally{Rows: 132, Distinct: 131, Duplicated: 1}},
		"past end":      {more(complete(), 1, 1), tally{Rows: 132, Distinct: 131, Foreign: 1}},
		"negative":      {more(complete(), 0, -1), tally{Rows: 132, Distinct: 131, Foreign: 1}},
		"partition":     {more(complete(), 2, 0), tally{Rows: 132, Distinct: 131, Foreign: 1}},
		"one for other": {more(newTally([]int64{2}), 0, 1), tally{Rows: 1, Distinct: 1, Missing: 1}},
	} {
		c.tally.finish()
		if c.tally.String() != c.want.String() || c.tally.exact() != (name == "complete") {
			t.Errorf("%s: %v, want %v; exact %v", name, c.tally, &c.want, c.tally.exact())
		}
	}
}

func more(t *tally, partition int, number int64) *tally {
	t.add(partition, number)
	return t
}

// seconds are samples of a run with a lag, memory and p99 at each second.
func seconds(n int, lag func(i int) int64, memory, p99 func(i int) float64) (list []sample) {
	for i := range n {
		s := sample{Seconds: float64(i), Published: int64(i)*100 + lag(i), Committed: int64(i) * 100, P99: p99(i)}
		s.Resident = []int64{0, int64(memory(i))}
		list = append(list, s)
	}
	return list
}

func flat(v float64) func(int) float64 { return func(int) float64 { return v } }
func none(int) int64                   { return 0 }

func TestTrend(t *testing.T) {
	const n = 1000
	spiky := func(i int) float64 {
		if i%100 < 5 { // within each fault's seconds
			return 5000
		}
		return 20
	}
	var marks []mark
	for i := 100; i < n; i += 100 {
		marks = append(marks, mark{Seconds: float64(i) - 0.5, What: "fault"})
	}
	growing := func(by float64) func(int) float64 {
		return func(i int) float64 { return 100e6 + by*float64(i) }
	}
	for name, c := range map[string]struct {
		samples         []sample
		memory, latency bool
	}{
		"flat":           {seconds(n, none, flat(100e6), flat(20)), true, true},
		"faults":         {seconds(n, none, flat(100e6), spiky), true, true},
		"leak":           {seconds(n, none, growing(60e3), flat(20)), false, true},
		"within":         {seconds(n, none, growing(20e3), flat(20)), true, true},
		"slower":         {seconds(n, none, flat(100e6), func(i int) float64 { return 10 + float64(i)/20 }), true, false},
		"always behind":  {seconds(n, func(int) int64 { return 100 }, flat(100e6), flat(20)), false, false},
		"nothing":        {seconds(n, none, flat(0), flat(0)), false, false},
		"too short":      {seconds(40, none, flat(100e6), flat(20)), false, false},
		"less of memory": {seconds(n, none, growing(-50e3), flat(20)), true, true},
	} {
		quiet := quietOf(c.samples, marks, n, 100)
		memory := trendOf(quiet, func(now *sample) float64 { return float64(now.Resident[keptConsumer]) }, memoryRule)
		latency := trendOf(quiet, func(now *sample) float64 { return now.P99 }, latencyRule)
		if memory.Flat != c.memory || latency.Flat != c.latency {
			t.Errorf("%s: memory %+v, latency %+v", name, memory, latency)
		}
	}
}

func TestQuiet(t *testing.T) {
	behindFrom := func(i int) int64 {
		if i >= 52 && i < 60 {
			return 1000
		}
		return 0
	}
	samples := seconds(100, behindFrom, flat(1), flat(1))
	var at []int
	for _, q := range quietOf(samples, []mark{{Seconds: 49.5}}, 100, 100) {
		if q.second != (q.Seconds > 55) {
			t.Errorf("second %v is of the other half", q.Seconds)
		}
		if q.Seconds >= 40 && q.Seconds < 70 {
			at = append(at, int(q.Seconds))
		}
	}
	// From the fault at 49.5 until four calm seconds have passed after the lag.
	want := []int{40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 64, 65, 66, 67, 68, 69}
	if len(at) != len(want) || at[9] != 49 || at[10] != 64 {
		t.Errorf("quiet seconds %v, want %v", at, want)
	}
	if q := quietOf(samples, nil, 100, 100); q[0].Seconds != 10 {
		t.Errorf("the first quiet second is %v: the first tenth does not count", q[0].Seconds)
	}
}

func TestPeak(t *testing.T) {
	var list []sample
	for i, committed := range []int64{0, 0, 0, 500, 1500, 2500} {
		list = append(list, sample{Seconds: float64(i), Committed: committed})
	}
	if p, err := peak(list); err != nil || p < 833 || p > 834 { // of the three seconds from the last one without a commit
		t.Error(p, err)
	}
	// Of a longer time the best ten seconds count.
	for i := range 30 {
		step := int64(1000)
		if i >= 12 && i < 23 {
			step = 4000
		}
		list = append(list, sample{Seconds: float64(6 + i), Committed: list[len(list)-1].Committed + step})
	}
	if p, err := peak(list); err != nil || p != 4000 {
		t.Error(p, err)
	}
	if p, err := peak(list[:3]); err == nil {
		t.Errorf("a peak of %v without a commit", p)
	}
}

// The bound is that of the higher rate: the peak before the outage may have lasted too short.
func TestBound(t *testing.T) {
	for _, c := range []struct{ peak, rerun, want float64 }{{150, 0, 10}, {150, 250, 5}, {250, 150, 5}} {
		r := &recoveryReport{Rate: 50, Backlog: 1000, Peak: c.peak, Rerun: c.rerun}
		if r.bound(); r.Bound != c.want {
			t.Errorf("peaks of %v and %v: bound %v s, want %v", c.peak, c.rerun, r.Bound, c.want)
		}
	}
}

// A report names what is not flat or not exact.
func TestVerdict(t *testing.T) {
	good := func() *enduranceReport {
		return &enduranceReport{Tally: &tally{Rows: 1, Distinct: 1}, Memory: trend{Flat: true}, Latency: trend{Flat: true}}
	}
	if err := good().verdict(); err != nil {
		t.Error(err)
	}
	for word, spoil := range map[string]func(*enduranceReport){
		"not exact":  func(r *enduranceReport) { r.Tally.Missing = 1 },
		"memory":     func(r *enduranceReport) { r.Memory.Flat = false },
		"latency is": func(r *enduranceReport) { r.Latency.Flat = false },
	} {
		r := good()
		spoil(r)
		if err := r.verdict(); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// texts are the texts of a drawing, which must be well-formed.
func texts(t *testing.T, data []byte) string {
	t.Helper()
	var all strings.Builder
	for d := xml.NewDecoder(bytes.NewReader(data)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return all.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			all.Write(text)
		}
	}
}

func TestDrawings(t *testing.T) {
	samples := seconds(3000, func(i int) int64 { return int64(i % 700) }, flat(90e6), flat(12))
	for i := range samples {
		samples[i].Resident[struckConsumer] = 80e6
		samples[i].P50 = 4
	}
	var out bytes.Buffer
	lag := &recoveryReport{Rate: 100, Peak: 300, Backlog: 600, Bound: 3, Samples: samples, Marks: []mark{{3, "start"}, {20, "database down"}, {80, "database up"}}}
	if err := lag.draw(&out); err != nil {
		t.Fatal(err)
	}
	text := texts(t, out.Bytes())
	for _, want := range []string{"database down", "database up", "lag", "bound: peak 300/s − input 100/s"} {
		if !strings.Contains(text, want) {
			t.Errorf("the drawing of the lag lacks %q: %s", want, text)
		}
	}
	if n := out.Len(); n > 200_000 {
		t.Errorf("a drawing of %d bytes", n)
	}
	out.Reset()
	long := &enduranceReport{Samples: samples, Marks: []mark{{700, "kill -9"}, {900, "cut connections"}, {1100, "kill -9"}, {1300, "cut connections"}}}
	if err := long.draw(&out); err != nil {
		t.Fatal(err)
	}
	text = texts(t, out.Bytes())
	for _, want := range []string{"kill -9", "never killed", "p99", "Resident memory, MB", "45:00"} {
		if !strings.Contains(text, want) {
			t.Errorf("the drawing of the endurance lacks %q: %s", want, text)
		}
	}
	for _, name := range []string{"kill -9", "cut connections"} {
		if n := strings.Count(text, name); n != 1 {
			t.Errorf("the drawing has %q %d times: the names of later faults would cover the curves", name, n)
		}
	}
	if err := (&recoveryReport{Marks: []mark{{}}}).draw(io.Discard); err == nil {
		t.Error("a drawing of nothing")
	}
}

// A long run's curve has the median of each part, so that one second does not stand for it.
func TestCurve(t *testing.T) {
	samples := seconds(6000, none, flat(1), func(i int) float64 {
		if i%10 == 0 {
			return 1e6
		}
		return 7
	})
	c := curveOf("p99", samples, func(s *sample) float64 { return s.P99 })
	if len(c.Points) != mostPoints {
		t.Fatalf("%d points", len(c.Points))
	}
	for _, at := range c.Points {
		if at.Y != 7 {
			t.Fatalf("%v at %v", at.Y, at.X)
		}
	}
	if c := curveOf("none", seconds(100, none, flat(1), flat(0)), func(s *sample) float64 { return s.P99 }); len(c.Points) != 0 {
		t.Errorf("%d points without a value", len(c.Points))
	}
}

func TestNumberedHasItsSize(t *testing.T) {
	now := time.Now()
	for _, size := range []int{100, 200, 1000} {
		body := numbered(123456789, size, now)
		var r struct{ Number int }
		if err := json.Unmarshal(body, &r); err != nil || len(body) != size || r.Number != 123456789 {
			t.Errorf("%d bytes: %d, %+v, %v", size, len(body), r, err)
		}
		if at, err := published(body); err != nil || now.Sub(at).Abs() > time.Microsecond {
			t.Errorf("published %v, not %v: %v", at, now, err)
		}
	}
	if at, err := published([]byte(`{"at":"2026`)); err == nil {
		t.Errorf("a body that is cut off: %v", at)
	}
}
