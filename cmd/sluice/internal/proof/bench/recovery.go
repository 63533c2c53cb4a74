//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"
)

// recoveryBench is a run of `bench recovery`.
type recoveryBench struct {
	rate   int
	outage time.Duration
	size   int
	ahead  time.Duration
	steady time.Duration
	svg    string
	json   string
}

// recoveryReport is what it measured.
type recoveryReport struct {
	machine
	Rate    int      `json:"events_per_second"`
	Outage  float64  `json:"outage_seconds"`
	Peak    float64  `json:"peak_per_second"` // before the outage, while the feed runs
	Backlog float64  `json:"backlog"`         // when the database takes connections again
	Bound   float64  `json:"bound_seconds"`   // Backlog / (the higher peak - Rate)
	First   float64  `json:"first_commit_seconds"`
	Caught  float64  `json:"caught_up_seconds"` // both from when the database takes connections again
	Rerun   float64  `json:"peak_after_per_second"`
	Load    float64  `json:"load_before"`
	Tally   *tally   `json:"tally"`
	Samples []sample `json:"samples"`
	Marks   []mark   `json:"marks"`
}

// runRecovery measures how long Sluice takes to catch up after an outage of the database, beside
// the bound that the input rate and the peak rate give.
func runRecovery(ctx context.Context, args []string) error {
	var o recoveryBench
	flag := flag.NewFlagSet("bench recovery", flag.ExitOnError)
	flag.IntVar(&o.rate, "rate", 20_000, "events a second")
	flag.DurationVar(&o.outage, "outage", 10*time.Minute, "how long the database is down")
	flag.IntVar(&o.size, "size", 200, "bytes of a body; the hub keeps all events in memory")
	flag.DurationVar(&o.ahead, "ahead", time.Minute, "how much input is there before the consumer starts; with it the peak rate is measured")
	flag.DurationVar(&o.steady, "steady", 20*time.Second, "how long the consumer keeps up before the outage")
	flag.StringVar(&o.svg, "svg", "", "`file` for the drawing")
	flag.StringVar(&o.json, "json", "", "`file` for the results in JSON")
	_ = flag.Parse(args) // exits on an error
	if flag.NArg() > 0 || o.rate < maxPartitions || o.outage <= 0 || o.ahead < time.Second || o.size < 100 {
		return errors.New("bench recovery takes flags only: a rate, an outage, at least 1s ahead and bodies of at least 100 bytes")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*o.outage+time.Hour)
	defer cancel()
	r, err := o.measure(ctx, os.Stderr)
	if err != nil {
		return err
	}
	r.print(os.Stdout)
	if err := errors.Join(writeJSON(o.json, r), drawTo(o.svg, func(w io.Writer) error { return r.draw(w) })); err != nil {
		return err
	}
	if !r.Tally.exact() {
		return fmt.Errorf("the table is not exact: %v", r.Tally)
	}
	return nil
}

// lagSeconds is the lag in seconds of input above which a consumer has not caught up. A quarter of
// it may be the age of its last report.
const lagSeconds = 1.0

func (o *recoveryBench) measure(ctx context.Context, progress io.Writer) (_ *recoveryReport, err error) {
	r := &recoveryReport{machine: describeMachine(), Rate: o.rate, Load: measure.Load()}
	ahead := int(float64(o.rate) * o.ahead.Seconds() / maxPartitions)
	f := &feed{rate: o.rate, size: o.size, body: numbered, ahead: ahead}
	s, err := newScene(ctx, f, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	defer func() { r.Samples, r.Marks = s.samples, s.marks }()
	s.publish(ctx)
	most := runWithin + 10*o.ahead
	if err := s.watch(ctx, "the events before the start are published", most, func(now *sample) bool { return now.Published >= int64(ahead*maxPartitions) }); err != nil {
		return nil, err
	}
	if err := s.start(ctx, "all"); err != nil {
		return nil, err
	}
	s.mark("start")
	from := len(s.samples)
	caught := func(now *sample) bool { return now.lag() <= lagSeconds*float64(o.rate) }
	if err := s.watch(ctx, "the consumer keeps up with the rate; try a lower one", most, caught); err != nil {
		return nil, err
	}
	if r.Peak, err = peak(s.samples[from:]); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "peak %.0f/s beside %d/s of input\n", r.Peak, o.rate)
	if err := s.watch(ctx, "", o.steady+time.Minute, lasting(o.steady)); err != nil {
		return nil, err
	}
	if err := s.server.Stop(); err != nil {
		return nil, err
	}
	s.mark("database down")
	if err := s.watch(ctx, "", o.outage+time.Minute, lasting(o.outage)); err != nil {
		return nil, err
	}
	if err := s.server.Restart(); err != nil {
		return nil, err
	}
	s.mark("database up")
	down, up := s.marks[1].Seconds, s.marks[2].Seconds
	at := s.sample()
	r.Outage, r.Backlog = up-down, at.lag()
	r.bound()
	fmt.Fprintf(progress, "%.0f events behind after %.0f s, bound %.1f s by the peak before\n", r.Backlog, r.Outage, r.Bound)
	from = len(s.samples) - 1
	most = runWithin + time.Duration(10*r.Bound)*time.Second
	if err := s.watch(ctx, "the consumer has caught up", most, caught); err != nil {
		return nil, err
	}
	after := s.samples[from:]
	r.Caught = after[len(after)-1].Seconds - up
	for _, now := range after {
		if now.Committed > after[0].Committed {
			r.First = now.Seconds - up
			break
		}
	}
	if r.Rerun, err = peak(after); err != nil {
		return nil, err
	}
	r.bound()
	fmt.Fprintf(progress, "first commit after %.1f s, caught up after %.1f s, peak %.0f/s, bound %.1f s\n", r.First, r.Caught, r.Rerun, r.Bound)
	if err := s.watch(ctx, "", o.steady+time.Minute, lasting(o.steady)); err != nil {
		return nil, err
	}
	r.Tally, err = s.drain(ctx, most)
	return r, err
}

// bound sets Bound by the higher of the peaks: the one before the outage lasts only as long as the
// input that was there before the start.
func (r *recoveryReport) bound() { r.Bound = r.Backlog / (r.highest() - float64(r.Rate)) }

func (r *recoveryReport) highest() float64 { return max(r.Peak, r.Rerun) }

// lasting returns a condition that holds after a time.
func lasting(d time.Duration) func(*sample) bool {
	began := time.Now()
	return func(*sample) bool { return time.Since(began) >= d }
}

// peakOver is how long the peak rate lasts at least, in seconds.
const peakOver = 10

// peak is the highest rate of commits over peakOver seconds; of fewer samples the rate from the
// last one without a commit on.
func peak(samples []sample) (highest float64, err error) {
	i := 0
	for i+1 < len(samples) && samples[i+1].Committed == samples[i].Committed {
		i++
	}
	if i+1 >= len(samples) {
		return 0, errors.New("too few samples for the peak rate: take more input before the start (-ahead)")
	}
	samples = samples[i:]
	rate := func(from, to sample) float64 {
		return float64(to.Committed-from.Committed) / (to.Seconds - from.Seconds)
	}
	from := 0
	for _, to := range samples {
		for ; to.Seconds-samples[from].Seconds >= peakOver; from++ {
			highest = max(highest, rate(samples[from], to))
		}
	}
	if highest == 0 {
		highest = rate(samples[0], samples[len(samples)-1])
	}
	return highest, nil
}

// print writes a table in Markdown.
func (r *recoveryReport) print(w io.Writer) {
	fmt.Fprintf(w, "%s, load before %.1f\n\n", r.machine, r.Load)
	fmt.Fprintln(w, "| input, events/s | outage | backlog | peak before, events/s | peak while catching up | bound: backlog / (higher peak − input) | first commit | caught up | of the bound | events counted |")
	fmt.Fprintln(w, "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|")
	fmt.Fprintf(w, "| %s | %.0f s | %s | %s | %s | %.1f s | %.1f s | %.1f s | **%.2f** | %v |\n", measure.Thousands(float64(r.Rate)), r.Outage,
		measure.Thousands(r.Backlog), measure.Thousands(r.Peak), measure.Thousands(r.Rerun), r.Bound, r.First, r.Caught, r.Caught/r.Bound, r.Tally)
}
