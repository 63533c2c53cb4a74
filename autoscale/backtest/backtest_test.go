package backtest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/backtest"
)

func read(t testing.TB, text string) *backtest.Recording {
	t.Helper()
	r, err := backtest.Read("f.csv", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// minutes returns a recording with one column, one value a minute from midnight on.
func minutes(column string, values ...float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "time,%s\n", column)
	for i, v := range values {
		fmt.Fprintf(&b, "%s,%v\n", time.Date(2026, 1, 31, 0, i, 0, 0, time.UTC).Format(time.RFC3339), v)
	}
	return b.String()
}

func repeated(n int, v float64) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = v
	}
	return list
}

func published() *autoscale.Resource {
	return &autoscale.Resource{Name: "r", Metrics: []string{"backlog"}, Rule: autoscale.ThresholdRule{Metric: "backlog", Upper: 500, Lower: 300}}
}

// TestAsRecorded runs without a model: up at the fifth value, then every eleventh
// minute, to the maximum.
func TestAsRecorded(t *testing.T) {
	r := published()
	r.Limits.Max = 3
	got, err := backtest.Run(r, read(t, minutes("backlog", repeated(40, 900)...)), nil)
	if err != nil {
		t.Fatal(err)
	}
	var when []string
	for _, d := range got.Decisions {
		when = append(when, d.Time.Format("15:04"))
	}
	if strings.Join(when, " ") != "00:04 00:15" || got.MaxInstances != 3 || got.Actions != 2 || got.ScaleUps != 2 || got.MaxBacklog != 900 || got.FinalBacklog != 900 || got.MeanBacklog != 900 {
		t.Errorf("decided at %q: %+v", when, got)
	}
	// 4 minutes of 1 instance, 11 of 2, 24 of 3.
	if want := (4 + 22 + 72) / 60.0; got.InstanceHours < want-1e-9 || got.InstanceHours > want+1e-9 {
		t.Errorf("%v instance-hours, want %v", got.InstanceHours, want)
	}
}

// TestModel: 600 arrive a minute, of which an instance processes 300; the second
// instance starts to process half a minute after the decision.
func TestModel(t *testing.T) {
	model := &backtest.Model{Load: "arrivals", DrainRate: 5, StartupTime: 30 * time.Second}
	got, err := backtest.Run(published(), read(t, minutes("arrivals", repeated(8, 600)...)), model)
	if err != nil {
		t.Fatal(err)
	}
	var backlog []float64
	for _, s := range got.Steps {
		backlog = append(backlog, s.Backlog)
	}
	// 600, +300 a minute until 00:04; then the new one does 150, then 300.
	if want := "[600 900 1200 1500 1800 1950 1950 1950]"; fmt.Sprint(backlog) != want {
		t.Errorf("backlog %v, want %s", backlog, want)
	}
}

// TestArrivalsFromBacklog: with the recorded number of instances, the model computes
// the recorded backlog until that is empty; then arrivals are a lower bound.
func TestArrivalsFromBacklog(t *testing.T) {
	text := "time,backlog,instances\n2026-01-31T00:00:00Z,100,2\n2026-01-31T00:01:00Z,400,2\n2026-01-31T00:02:00Z,340,2\n2026-01-31T00:03:00Z,0,2\n"
	got, err := backtest.Run(published(), read(t, text), &backtest.Model{DrainRate: 1})
	if err != nil {
		t.Fatal(err)
	}
	if s := got.Steps; s[1].Backlog != 400 || s[2].Backlog != 340 || s[3].Backlog != 220 || s[0].Instances != 2 {
		t.Errorf("steps %+v", s)
	}
}

func TestMissingNeverScalesDown(t *testing.T) {
	text := minutes("backlog", repeated(10, 0)...)
	for _, missing := range []string{"", "disabled"} {
		var b strings.Builder
		for i, line := range strings.SplitAfter(text, "\n") {
			if i >= 4 {
				line = strings.Replace(line, ",0\n", ","+missing+"\n", 1)
			}
			b.WriteString(line)
		}
		got, err := backtest.Run(published(), read(t, b.String()), &backtest.Model{InitialInstances: 5})
		if err != nil {
			t.Fatal(err)
		}
		if got.Actions != 0 {
			t.Errorf("%q: %+v", missing, got.Decisions)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	hourly := "time,backlog\n2026-01-31T00:00:00Z,1\n2026-01-31T01:00:00Z,1\n"
	for _, c := range []struct {
		text  string
		model backtest.Model
		want  string
	}{
		{hourly, backtest.Model{}, "a value every 1h0m0s: a window of 10m0s never has the 5 values"},
		{minutes("other", 1, 2), backtest.Model{}, "no column backlog, which the rule may use"},
		{minutes("other", 1, 2), backtest.Model{DrainRate: 1}, "neither the column backlog, the backlog, nor a load"},
		{minutes("backlog", 1, 2), backtest.Model{Load: "backlog"}, "a load needs a drain"},
		{minutes("backlog", 1, 2), backtest.Model{Load: "x", DrainRate: 1}, "no column x, which is to be the load"},
		{minutes("backlog", 1, 2), backtest.Model{DrainRate: -1}, "a drain of -1: must be a number of at least 0"},
		{minutes("backlog", 1, 2), backtest.Model{DrainRate: math.NaN()}, "a drain of NaN"},
		{minutes("backlog", 1, 2), backtest.Model{DrainRate: math.Inf(1)}, "a drain of +Inf"},
	} {
		if _, err := backtest.Run(published(), read(t, c.text), &c.model); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want … %s …", c.model, err, c.want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	const head = "time,a,b\n"
	for text, want := range map[string]string{
		"":                                 "f.csv: the file is empty",
		"when,a\n":                         "f.csv:1: the first line must be time",
		"time\n":                           "f.csv:1: the first line must be time",
		"time,a,a\n":                       `f.csv:1: column "a"`,
		"time,a,\n":                        `f.csv:1: column ""`,
		head:                               "no line after the first one",
		head + "now,1,2\n":                 `f.csv:2: time: "now": write RFC 3339`,
		head + "2026-01-31T08:00:00Z,1,x":  `f.csv:2: b: "x": write a number, nothing, or disabled`,
		head + "2026-01-31T08:00:00Z,NaN,": `f.csv:2: a: "NaN"`,
		head + "2026-01-31T08:00:00Z,1\n":  "f.csv:2:1: not CSV: wrong number of fields",
		head + "2026-01-31T08:00:00Z,1,2\n2026-01-31T08:00:00Z,1,2\n": "f.csv:3: time: 2026-01-31T08:00:00Z is not after",
		head + "2026-01-31T08:00:00Z,\"1,2\n":                         `f.csv:2:27: not CSV: extraneous or missing " in quoted-field`,
	} {
		if _, err := backtest.Read("f.csv", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want … %s …", text, err, want)
		}
	}
}

// TestWriter writes what Read reads.
func TestWriter(t *testing.T) {
	var b bytes.Buffer
	w := backtest.NewWriter(&b, []string{"a", "b,\"c\"", "instances"}, false)
	at := time.Date(2026, 1, 31, 8, 0, 0, 5, time.UTC)
	points := []autoscale.Point{{Metric: "a", Value: 1.5}, {Metric: "b,\"c\"", State: autoscale.Disabled}}
	err := errors.Join(
		w.Write(at, points, map[string]float64{"instances": 3}),
		w.Write(at.Add(time.Second), []autoscale.Point{{Metric: "a", State: autoscale.Failed}}, nil),
	)
	if err != nil {
		t.Fatal(err)
	}
	r := read(t, b.String())
	first := r.Rows[0].Values
	if !r.Rows[0].Time.Equal(at) || first[0].Value != 1.5 || first[1].State != autoscale.Disabled || first[2].Value != 3 || r.Rows[1].Values[0].State != autoscale.Failed {
		t.Errorf("%s\nread as %+v", b.String(), r)
	}
}

// TestDepartures compares rules on two days of US departures; see docs/autoscale.md.
func TestDepartures(t *testing.T) {
	file, err := os.Open("testdata/departures.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	recording, err := backtest.Read("departures.csv", file)
	if err != nil {
		t.Fatal(err)
	}
	r := published()
	r.Rule = autoscale.ThresholdRule{Metric: "backlog", Upper: 50, Lower: 30}
	r.Limits.Max = 12
	model := &backtest.Model{Load: "departures", DrainRate: 0.1, StartupTime: 30 * time.Second}
	result, err := backtest.Run(r, recording, model)
	if err != nil {
		t.Fatal(err)
	}
	if result.MaxBacklog != 250 || result.Actions != 160 || result.FinalBacklog != 0 {
		t.Errorf("worst %v, %d actions, %v at the end; docs/autoscale.md says 250, 160, 0", result.MaxBacklog, result.Actions, result.FinalBacklog)
	}
	for i := 1; i < len(result.Decisions); i++ {
		if gap := result.Decisions[i].Time.Sub(result.Decisions[i-1].Time); gap <= 10*time.Minute {
			t.Errorf("two actions within %v", gap)
		}
	}

	var picture bytes.Buffer
	if err := backtest.Plot(&picture, result); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">Backlog<", ">50<", ">30<", ">15 Jan 2001<", ">Instances<", ">up<", ">down<"} {
		if !strings.Contains(picture.String(), want) {
			t.Errorf("the plot lacks %s", want)
		}
	}
	result.Name = "a < b & c"
	picture.Reset()
	if err := backtest.Plot(&picture, result, result); err != nil || strings.Count(picture.String(), ">a &lt; b &amp; c<") != 2 {
		t.Errorf("a plot of two results: %v\n%.2000s", err, picture.String())
	}
}

func TestPlotRefuses(t *testing.T) {
	lone, err := backtest.Run(published(), read(t, minutes("backlog", 1)), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"nothing":     backtest.Plot(io.Discard),
		"one reading": backtest.Plot(io.Discard, lone),
	} {
		if err == nil {
			t.Errorf("a plot of %s", name)
		}
	}
}

// FuzzRead reads anything, and runs a rule on what is a recording.
func FuzzRead(f *testing.F) {
	f.Add(minutes("backlog", 1, 2, 3, 600, 700, 800))
	f.Add("time,backlog,instances\n2026-01-31T00:00:00Z,,2\n2026-01-31T00:01:00.5+01:00,disabled,\n")
	f.Add("time,arrivals\n2026-01-31T00:00:00Z,1e15\n2026-01-31T00:01:00Z,-5\n")
	f.Fuzz(func(t *testing.T, text string) {
		recording, err := backtest.Read("f.csv", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, model := range []*backtest.Model{nil, {DrainRate: 2}, {DrainRate: 2, Load: "arrivals", Backlog: "backlog"}} {
			result, err := backtest.Run(published(), recording, model)
			if err == nil && (len(result.Steps) != len(recording.Rows) || result.MaxInstances < 1 && len(recording.Rows) > 0) {
				t.Errorf("%q: %+v", text, result)
			}
		}
	})
}
