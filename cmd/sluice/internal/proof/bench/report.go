//go:build unix

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"
)

// machine is where a report was made.
type machine struct {
	Processor string `json:"processor,omitempty"`
	CPUs      int    `json:"cpus"`
	System    string `json:"system"`
	Go        string `json:"go"`
}

func describeMachine() machine {
	return machine{measure.Processor(), runtime.NumCPU(), runtime.GOOS + "/" + runtime.GOARCH, runtime.Version()}
}

func (m machine) String() string {
	return fmt.Sprintf("%d CPUs (%s, %s), %s", m.CPUs, m.Processor, m.System, m.Go)
}

// report holds all that was measured beside the loop by hand.
type report struct {
	Machine struct {
		machine
		// Databases are the versions of the servers, by kind.
		Databases map[string]string `json:"databases"`
	} `json:"machine"`
	Hubs    []hubFill `json:"hubs"`
	Results []*result `json:"results"`
}

type hubFill struct {
	Body       int     `json:"body_bytes"`
	Partitions int     `json:"partitions"`
	PerSecond  float64 `json:"produced_per_second"`
}

// result is what was measured of a contender in a trial.
type result struct {
	trial
	contender
	PerSecond float64    `json:"median_events_per_second"`
	Ratio     float64    `json:"ratio_to_by_hand,omitempty"` // of the medians
	Runs      []*outcome `json:"runs"`
}

func newReport() *report {
	r := &report{}
	m := &r.Machine
	m.machine = describeMachine()
	m.Databases = map[string]string{}
	return r
}

func (r *report) addHub(body, partitions int, perSecond float64) {
	r.Hubs = append(r.Hubs, hubFill{body, partitions, perSecond})
}

func (r *report) add(t trial, c contender, run *outcome) {
	of := r.find(t, c)
	if of == nil {
		of = &result{trial: t, contender: c}
		r.Results = append(r.Results, of)
	}
	of.Runs = append(of.Runs, run)
	of.PerSecond = of.median(func(o *outcome) float64 { return o.PerSecond })
	for _, res := range r.Results {
		if hand := r.find(res.trial, contender{handContender, res.Raw}); hand != nil && (res.Name == sluiceContender || res.Name == observedContender) {
			res.Ratio = res.PerSecond / hand.PerSecond
		}
	}
}

func (r *report) find(t trial, c contender) *result {
	i := slices.IndexFunc(r.Results, func(res *result) bool { return res.trial.String() == t.String() && res.contender == c })
	if i < 0 {
		return nil
	}
	return r.Results[i]
}

func (res *result) median(of func(*outcome) float64) float64 { return medianOf(res.Runs, of) }

func (r *report) printMachine(w io.Writer) {
	m := r.Machine
	fmt.Fprint(w, m.machine)
	for _, kind := range slices.Sorted(maps.Keys(m.Databases)) {
		fmt.Fprintf(w, ", %s", cmp.Or(m.Databases[kind], kind))
	}
	fmt.Fprint(w, "\n\n")
}

// print writes tables in Markdown.
func (r *report) print(w io.Writer) {
	r.printMachine(w)
	fmt.Fprintln(w, "| database | body | partitions | consumer | events/s | of by hand | CPU µs an event: consumer | hub | database | allocations | peak RSS | peak heap |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, res := range r.Results {
		ratio := ""
		if res.Ratio > 0 {
			ratio = fmt.Sprintf("**%.2f**", res.Ratio)
		}
		fmt.Fprintf(w, "| %s | %d B | %d | %s | %s | %s | %.1f | %.1f | %.1f | %.0f | %.0f MB | %.0f MB |\n",
			res.Database, res.Body, res.Partitions, res.contender, measure.Thousands(res.PerSecond), ratio,
			res.median(func(o *outcome) float64 { return o.ConsumerCPU }), res.median(func(o *outcome) float64 { return o.HubCPU }),
			res.median(func(o *outcome) float64 { return o.DatabaseCPU }), res.median(func(o *outcome) float64 { return o.Allocs }),
			res.median(func(o *outcome) float64 { return float64(o.PeakRSS) / 1e6 }), res.median(func(o *outcome) float64 { return float64(o.PeakHeap) / 1e6 }))
	}
	if len(r.Hubs) > 0 {
		fmt.Fprintln(w, "\n| hub filled with | partitions | events/s |\n|---|---|---|")
		for _, h := range r.Hubs {
			fmt.Fprintf(w, "| %d B | %d | %s |\n", h.Body, h.Partitions, measure.Thousands(h.PerSecond))
		}
	}
}
