//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"
)

// enduranceBench is a run of `bench endurance`.
type enduranceBench struct {
	rate     int
	duration time.Duration
	every    time.Duration
	pause    time.Duration
	size     int
	svg      string
	json     string
}

// enduranceReport is what it measured.
type enduranceReport struct {
	machine
	Rate     int            `json:"events_per_second"`
	Duration float64        `json:"seconds"`
	Faults   map[string]int `json:"faults"`
	Load     float64        `json:"load_before"`
	Tally    *tally         `json:"tally"`
	Memory   trend          `json:"memory_bytes"`
	Latency  trend          `json:"p99_ms"`
	Samples  []sample       `json:"samples"`
	Marks    []mark         `json:"marks"`
}

// The consumers of an endurance run share the partitions. One is killed and stopped; the other one
// runs from the beginning to the end, and so shows whether memory grows.
const (
	struckConsumer = 0
	keptConsumer   = 1
)

// runEndurance publishes for hours while processes and the database fail, and counts the rows.
func runEndurance(ctx context.Context, args []string) error {
	var o enduranceBench
	flag := flag.NewFlagSet("bench endurance", flag.ExitOnError)
	flag.IntVar(&o.rate, "rate", 20_000, "events a second")
	flag.DurationVar(&o.duration, "duration", 2*time.Hour, "how long events are published")
	flag.DurationVar(&o.every, "every", 2*time.Minute, "time between two faults; the first comes after a tenth of the duration")
	flag.DurationVar(&o.pause, "pause", 40*time.Second, "how long a stopped process stays so; a lease lasts 30s")
	flag.IntVar(&o.size, "size", 1000, "bytes of a body")
	flag.StringVar(&o.svg, "svg", "", "`file` for the drawing")
	flag.StringVar(&o.json, "json", "", "`file` for the results in JSON")
	_ = flag.Parse(args) // exits on an error
	if flag.NArg() > 0 || o.rate < maxPartitions || o.every <= 0 || o.pause <= 0 || o.duration < 10*time.Second || o.size < 100 {
		return errors.New("bench endurance takes flags only: a rate, at least 10s, positive times and bodies of at least 100 bytes")
	}
	ctx, cancel := context.WithTimeout(ctx, o.duration+15*time.Minute)
	defer cancel()
	r, err := o.measure(ctx, os.Stderr)
	if err != nil {
		return err
	}
	r.print(os.Stdout)
	if err := errors.Join(writeJSON(o.json, r), drawTo(o.svg, func(w io.Writer) error { return r.draw(w) })); err != nil {
		return err
	}
	return r.verdict()
}

// verdict is nil if every event was counted once, and memory and latency are flat.
func (r *enduranceReport) verdict() error {
	var errs []error
	if !r.Tally.exact() {
		errs = append(errs, fmt.Errorf("the table is not exact: %v", r.Tally))
	}
	for _, t := range []struct {
		name string
		trend
	}{{"memory", r.Memory}, {"latency", r.Latency}} {
		if !t.Flat {
			errs = append(errs, fmt.Errorf("%s is not flat: median %.0f in the first half, %.0f in the second, at most %.0f", t.name, t.First, t.Second, t.Most))
		}
	}
	return errors.Join(errs...)
}

// retained is what the hub keeps of a partition, and so how far a consumer may be behind.
const retained = 512 << 20

func (o *enduranceBench) measure(ctx context.Context, progress io.Writer) (_ *enduranceReport, err error) {
	r := &enduranceReport{machine: describeMachine(), Rate: o.rate, Faults: map[string]int{}, Load: measure.Load()}
	f := &feed{rate: o.rate, size: o.size, body: numbered}
	s, err := newScene(ctx, f, retained)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for range 2 {
		if err := s.start(ctx, "balanced"); err != nil {
			return nil, err
		}
	}
	s.publish(ctx)
	end := time.Now().Add(o.duration)
	next := o.duration / 10
	for i := 0; ; i++ {
		left := time.Until(end)
		if i > 0 {
			next = o.every
		}
		if err := s.watch(ctx, "", left+o.every, lasting(min(left, next))); err != nil {
			return nil, err
		}
		if time.Until(end) < o.every/2 { // the last fault's recovery belongs to the run
			break
		}
		fault := faults[i%len(faults)]
		fmt.Fprintf(progress, "%.0f s: %s; %d events published, %.0f behind\n", s.seconds(), fault.name, s.samples[len(s.samples)-1].Published, s.samples[len(s.samples)-1].lag())
		s.mark(fault.name)
		if err := fault.strike(ctx, s, o); err != nil {
			return nil, fmt.Errorf("%s: %w", fault.name, err)
		}
		r.Faults[fault.name]++
	}
	if err := s.watch(ctx, "", o.every+time.Minute, lasting(max(0, time.Until(end)))); err != nil {
		return nil, err
	}
	r.Duration = s.seconds()
	if r.Tally, err = s.drain(ctx, runWithin); err != nil {
		return nil, err
	}
	r.Samples, r.Marks = s.samples, s.marks
	quiet := quietOf(s.samples, s.marks, o.duration.Seconds(), o.rate)
	r.Memory = trendOf(quiet, func(now *sample) float64 { return float64(now.Resident[keptConsumer]) }, memoryRule)
	r.Latency = trendOf(quiet, func(now *sample) float64 { return now.P99 }, latencyRule)
	return r, nil
}

// faults strike in turn.
var faults = []struct {
	name   string
	strike func(ctx context.Context, s *scene, o *enduranceBench) error
}{
	{"kill -9", func(ctx context.Context, s *scene, _ *enduranceBench) error {
		c := s.consumers[struckConsumer]
		c.kill()
		return c.start(ctx)
	}},
	{"cut connections", func(_ context.Context, s *scene, _ *enduranceBench) error {
		s.link.Reset()
		return nil
	}},
	{"stop, past the lease", func(ctx context.Context, s *scene, o *enduranceBench) error {
		p := s.consumers[struckConsumer].child.cmd.Process
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		err := s.watch(ctx, "", o.pause+time.Minute, lasting(o.pause))
		return errors.Join(err, p.Signal(syscall.SIGCONT))
	}},
	{"restart database", func(_ context.Context, s *scene, _ *enduranceBench) error {
		return errors.Join(s.server.Stop(), s.server.Restart())
	}},
}

// print writes tables in Markdown.
func (r *enduranceReport) print(w io.Writer) {
	fmt.Fprintf(w, "%s, load before %.1f\n\n", r.machine, r.Load)
	fmt.Fprintln(w, "| input, events/s | for | faults | published | rows | distinct | missing | duplicated |")
	fmt.Fprintln(w, "|---:|---:|---|---:|---:|---:|---:|---:|")
	faulted := ""
	for _, f := range faults {
		if n := r.Faults[f.name]; n > 0 {
			faulted += fmt.Sprintf("%d × %s, ", n, f.name)
		}
	}
	fmt.Fprintf(w, "| %s | %.0f s | %s | %d | %d | %d | %d | %d |\n\n", measure.Thousands(float64(r.Rate)), r.Duration, faulted[:max(0, len(faulted)-2)],
		r.Samples[len(r.Samples)-1].Published, r.Tally.Rows, r.Tally.Distinct, r.Tally.Missing, r.Tally.Duplicated)
	fmt.Fprintln(w, "| in quiet seconds, median | first half | second half | at most | |\n|---|---:|---:|---:|---|")
	fmt.Fprintf(w, "| resident memory of the process that is never killed | %.0f MB | %.0f MB | %.0f MB | %v |\n", r.Memory.First/1e6, r.Memory.Second/1e6, r.Memory.Most/1e6, r.Memory)
	fmt.Fprintf(w, "| p99 of a second | %.1f ms | %.1f ms | %.1f ms | %v |\n", r.Latency.First, r.Latency.Second, r.Latency.Most, r.Latency)
}
