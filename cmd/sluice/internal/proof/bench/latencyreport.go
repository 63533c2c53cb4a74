//go:build unix

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"
)

// latencyReport holds what `bench latency` measured.
type latencyReport struct {
	machine
	Rates []*rateResult `json:"rates"`
	Idle  []*idleResult `json:"idle"`
}

type rateResult struct {
	contender
	Rate int        `json:"events_per_second"`
	Runs []*rateRun `json:"runs"`
}

type idleResult struct {
	contender
	Partitions int        `json:"partitions"`
	Runs       []*idleRun `json:"runs"`
}

func (r *latencyReport) addRate(rate int, c contender, run *rateRun) {
	of := r.rate(rate, c.Name)
	if of == nil {
		of = &rateResult{contender: c, Rate: rate}
		r.Rates = append(r.Rates, of)
	}
	of.Runs = append(of.Runs, run)
}

func (r *latencyReport) rate(rate int, name string) *rateResult {
	i := slices.IndexFunc(r.Rates, func(of *rateResult) bool { return of.Rate == rate && of.Name == name })
	if i < 0 {
		return nil
	}
	return r.Rates[i]
}

func (r *latencyReport) addIdle(partitions int, c contender, run *idleRun) {
	i := slices.IndexFunc(r.Idle, func(of *idleResult) bool { return of.Partitions == partitions && of.contender == c })
	if i < 0 {
		i = len(r.Idle)
		r.Idle = append(r.Idle, &idleResult{contender: c, Partitions: partitions})
	}
	r.Idle[i].Runs = append(r.Idle[i].Runs, run)
}

// medianOf is the median over runs.
func medianOf[R any](runs []R, of func(R) float64) float64 {
	list := make([]float64, len(runs))
	for i, run := range runs {
		list[i] = of(run)
	}
	return measure.Median(list)
}

// percentiles are the columns of the table, each with the number of events from which on it differs
// from the slowest event.
var percentiles = []struct {
	name      string
	minEvents int
	measure   func(*rateRun) float64
}{
	{"p50", 2, func(run *rateRun) float64 { return run.Published.P50 }},
	{"p99", 100, func(run *rateRun) float64 { return run.Published.P99 }},
	{"p99.9", 1000, func(run *rateRun) float64 { return run.Published.P999 }},
}

// ratio is the median over the rounds of one contender's figure by the other's in the same round; 0
// if they share none.
func ratio(a, b *rateResult, of func(*rateRun) float64) float64 {
	var list []float64
	for _, run := range a.Runs {
		i := slices.IndexFunc(b.Runs, func(other *rateRun) bool { return other.Round == run.Round })
		if i >= 0 && of(b.Runs[i]) > 0 {
			list = append(list, of(run)/of(b.Runs[i]))
		}
	}
	return measure.Median(list)
}

// print writes tables in Markdown.
func (r *latencyReport) print(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", r.machine)
	if len(r.Rates) > 0 {
		fmt.Fprintln(w, "| events/s | consumer | p50 | p99 | p99.9 | slowest | of by hand: p50, p99, p99.9 | events a transaction | consumer's CPU, % of a core | load before |")
		fmt.Fprintln(w, "|---:|---|---:|---:|---:|---:|---|---:|---:|---:|")
	}
	for _, of := range r.Rates {
		hand := r.rate(of.Rate, handContender)
		cells, ratios := []string{}, []string{}
		for _, p := range percentiles {
			cell := "–"
			if of.Runs[0].Published.Events >= p.minEvents {
				cell = fmt.Sprintf("%.1f ms", medianOf(of.Runs, p.measure))
				if hand != nil && of.Name != handContender {
					ratios = append(ratios, fmt.Sprintf("%.2f", ratio(of, hand, p.measure)))
				}
			}
			cells = append(cells, cell)
		}
		rate := measure.Thousands(float64(of.Rate))
		if reached := medianOf(of.Runs, func(run *rateRun) float64 { return run.Reached }); reached < 0.95*float64(of.Rate) {
			rate += " (published: " + measure.Thousands(reached) + ")"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %.1f ms | %s | %.0f | %.1f | %.1f |\n", rate, of.contender, strings.Join(cells, " | "),
			medianOf(of.Runs, func(run *rateRun) float64 { return run.Published.Max }), strings.Join(ratios, ", "),
			medianOf(of.Runs, func(run *rateRun) float64 { return run.Batch }),
			medianOf(of.Runs, func(run *rateRun) float64 { return run.runStats.CPU / run.Seconds * 100 }),
			medianOf(of.Runs, func(run *rateRun) float64 { return run.Load }))
	}
	if len(r.Idle) == 0 {
		return
	}
	fmt.Fprintln(w, "\n| idle, partitions | consumer | CPU, % of a core | wakeups/s | hub's CPU | database's CPU | resident | load before |")
	fmt.Fprintln(w, "|---:|---|---:|---:|---:|---:|---:|---:|")
	for _, of := range r.Idle {
		fmt.Fprintf(w, "| %d | %s | %.2f | %.0f | %.2f | %.2f | %.0f MB | %.1f |\n", of.Partitions, of.contender,
			medianOf(of.Runs, func(run *idleRun) float64 { return run.CPU }), medianOf(of.Runs, func(run *idleRun) float64 { return run.Wakeups }),
			medianOf(of.Runs, func(run *idleRun) float64 { return run.HubCPU }), medianOf(of.Runs, func(run *idleRun) float64 { return run.DatabaseCPU }),
			medianOf(of.Runs, func(run *idleRun) float64 { return float64(run.Resident) / 1e6 }), medianOf(of.Runs, func(run *idleRun) float64 { return run.Load }))
	}
}
