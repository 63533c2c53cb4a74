//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"
	"github.com/sluice-go/sluice/internal/clock"
)

// latencyBench is a run of `bench latency`.
type latencyBench struct {
	runs       int
	rates      []int // events a second
	live       time.Duration
	partitions []int // of the idle processes
	idle       time.Duration
	only       *regexp.Regexp
	profiles   string
	json       string
}

const (
	// fewestTimed is how many events are timed at least at a rate.
	fewestTimed = 60
	// warmUp is how long events are published that do not count, while both ends open their links.
	warmUp = 2 * time.Second
	// settle is how long an idle process runs before it is measured.
	settle = 10 * time.Second
)

// runLatency measures how long an event takes from publishing to the commit at each rate, and then
// what processes use that have nothing to do. The contenders take turns.
func runLatency(ctx context.Context, args []string) error {
	o := latencyBench{only: regexp.MustCompile("")}
	flag := flag.NewFlagSet("bench latency", flag.ExitOnError)
	flag.IntVar(&o.runs, "runs", 3, "runs of each contender, of which the median counts")
	rates := flag.String("rates", "1,1000,10000,50000", "events a second, several with commas; empty for none")
	flag.DurationVar(&o.live, "live", 20*time.Second, "how long events are published; at a low rate until there are 60")
	partitions := flag.String("partitions", "1,32,256", "partitions of the idle processes, several with commas; empty for none")
	flag.DurationVar(&o.idle, "idle", 30*time.Second, "how long an idle process is measured")
	flag.StringVar(&o.profiles, "profiles", "", "`directory` for CPU, allocation and blocking profiles of the consumers")
	flag.StringVar(&o.json, "json", "", "`file` for the results in JSON")
	flag.Func("only", "run what matches a `pattern`: 1000/sluice, idle/32/by hand", func(text string) (err error) {
		o.only, err = regexp.Compile(text)
		return err
	})
	_ = flag.Parse(args) // exits on an error
	var wrong [2]error
	o.rates, wrong[0] = numbers(*rates)
	o.partitions, wrong[1] = numbers(*partitions)
	if err := errors.Join(wrong[:]...); err != nil {
		return err
	}
	if flag.NArg() > 0 || o.runs < 1 || o.live <= 0 || o.idle <= 0 {
		return errors.New("bench latency takes flags only, at least one run, and positive durations")
	}
	r, err := o.measure(ctx, &databases{}, os.Stderr)
	if err != nil {
		return err
	}
	r.print(os.Stdout)
	return writeJSON(o.json, r)
}

// numbers reads positive numbers with commas between them.
func numbers(text string) (list []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q: want positive numbers with commas between them", text)
		}
		list = append(list, n)
	}
	return list, nil
}

// writeJSON writes a file, if it has a name.
func writeJSON(path string, v any) error {
	if path == "" {
		return nil
	}
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

func (o *latencyBench) measure(ctx context.Context, db *databases, progress io.Writer) (*latencyReport, error) {
	defer db.close()
	r := &latencyReport{machine: describeMachine()}
	for _, rate := range o.rates {
		for i := range o.runs {
			for _, c := range measure.Alternate(sluiceAndByHand(), i) {
				if !o.only.MatchString(fmt.Sprintf("%d/%s", rate, c)) {
					continue
				}
				run, err := o.publishing(ctx, db, rate, c)
				if err != nil {
					return nil, fmt.Errorf("%d/s, %s: %w", rate, c, err)
				}
				run.Round = i
				fmt.Fprintf(progress, "%d/s %d/%d %s: p50 %.1f ms, p99 %.1f ms, p99.9 %.1f ms, published at %.0f/s, load %.1f\n",
					rate, i+1, o.runs, c, run.Published.P50, run.Published.P99, run.Published.P999, run.Reached, run.Load)
				r.addRate(rate, c, run)
			}
		}
	}
	for _, partitions := range o.partitions {
		for i := range o.runs {
			for _, c := range measure.Alternate(sluiceAndByHand(), i) {
				if !o.only.MatchString(fmt.Sprintf("idle/%d/%s", partitions, c)) {
					continue
				}
				run, err := o.idling(ctx, db, partitions, c)
				if err != nil {
					return nil, fmt.Errorf("idle with %d partitions, %s: %w", partitions, c, err)
				}
				fmt.Fprintf(progress, "idle %d/%d with %d partitions %s: %.2f %% of a core, %.0f wakeups/s, load %.1f\n",
					i+1, o.runs, partitions, c, run.CPU, run.Wakeups, run.Load)
				r.addIdle(partitions, c, run)
			}
		}
	}
	return r, nil
}

// rateRun is one contender's run at a rate.
type rateRun struct {
	runStats
	Round   int     `json:"round"`
	Reached float64 `json:"published_per_second"`
	Load    float64 `json:"load_before"`
}

// eachWithin is how many events of each partition are published at a rate within a time, rounded
// up.
func eachWithin(rate int, d time.Duration) int {
	const each = maxPartitions * time.Second
	return int((time.Duration(rate)*d + each - 1) / each)
}

// publishing measures a contender that reads events while they are published.
func (o *latencyBench) publishing(ctx context.Context, db *databases, rate int, c contender) (*rateRun, error) {
	h, err := startHub(ctx, maxPartitions)
	if err != nil {
		return nil, err
	}
	defer h.end()
	d, err := db.fresh(ctx, "postgres", c)
	if err != nil {
		return nil, err
	}
	defer d.drop()
	warm := eachWithin(rate, warmUp)
	f := &feed{rate: rate, size: 1000, body: reading, each: warm + eachWithin(rate, max(o.live, fewestTimed*time.Second/time.Duration(rate)))}
	j := &job{Contender: c.Name, Hub: h.connection, Partitions: maxPartitions, Events: f.each, Database: d.url, Live: true, Warm: warm}
	if o.profiles != "" {
		j.Profiles = filepath.Join(o.profiles, fmt.Sprintf("latency-%d-%s-", rate, c))
	}
	run := &rateRun{Load: measure.Load()}
	published := make(chan error, 1)
	var seconds float64
	err = consumeBy(ctx, j, &run.runStats, func() {
		go func() {
			began := time.Now()
			err := f.publish(ctx, h)
			seconds = time.Since(began).Seconds()
			published <- err
		}()
	}, func() {})
	if err != nil {
		return nil, err
	}
	if err := <-published; err != nil {
		return nil, err
	}
	run.Reached = float64(f.each*maxPartitions) / seconds
	return run, d.hasRows(ctx, f.each*maxPartitions)
}

// idleRun is what was measured of a process without events, and of those that serve it.
type idleRun struct {
	// Percent of a core.
	CPU         float64 `json:"cpu_percent"`
	HubCPU      float64 `json:"hub_cpu_percent"`
	DatabaseCPU float64 `json:"database_cpu_percent"`
	Wakeups     float64 `json:"wakeups_per_second"`
	Resident    int64   `json:"resident_bytes"`
	Load        float64 `json:"load_before"`
}

// idling measures a contender that owns the partitions of an empty hub.
func (o *latencyBench) idling(ctx context.Context, db *databases, partitions int, c contender) (*idleRun, error) {
	ctx, cancel := context.WithTimeout(ctx, runWithin+o.idle)
	defer cancel()
	h, err := startHub(ctx, partitions)
	if err != nil {
		return nil, err
	}
	defer h.end()
	d, err := db.fresh(ctx, "postgres", c)
	if err != nil {
		return nil, err
	}
	defer d.drop()
	j := &job{Contender: c.Name, Hub: h.connection, Partitions: partitions, Events: 1, Database: d.url, Live: true, Idle: true}
	if o.profiles != "" {
		j.Profiles = filepath.Join(o.profiles, fmt.Sprintf("idle-%d-%s-", partitions, c))
	}
	child, err := spawnQuiet(ctx, consumerRole, j)
	if err != nil {
		return nil, err
	}
	defer child.end() // with an error: its events have not come
	if err := child.receive(new(string)); err != nil {
		child.end()
		return nil, fmt.Errorf("%w: %s", err, child.errors)
	}
	if err := child.confirm(); err != nil {
		return nil, err
	}
	if err := clock.Sleep(ctx, settle); err != nil {
		return nil, err
	}
	run := &idleRun{Load: measure.Load()}
	pid := child.cmd.Process.Pid
	before, hub, database := measure.ActivityOf(pid), measure.CPUOf(h.cmd.Process.Pid), measure.CPUOf(d.pid)
	began := time.Now()
	if err := clock.Sleep(ctx, o.idle); err != nil {
		return nil, err
	}
	after, seconds := measure.ActivityOf(pid), time.Since(began).Seconds()
	percent := func(used time.Duration) float64 { return used.Seconds() / seconds * 100 }
	run.CPU, run.HubCPU, run.DatabaseCPU = percent(after.CPU-before.CPU), percent(measure.CPUOf(h.cmd.Process.Pid)-hub), percent(measure.CPUOf(d.pid)-database)
	run.Wakeups = float64(after.Wakeups-before.Wakeups) / seconds
	run.Resident = measure.ResidentOf(pid)
	if run.Resident == 0 {
		child.end()
		return nil, fmt.Errorf("the idle process has ended: %s", child.errors)
	}
	return run, nil
}
