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

// report holds all that was measured.
type report struct {
	Machine struct {
		Processor string `json:"processor,omitempty"`
		CPUs      int    `json:"cpus"`
		System    string `json:"system"`
		Go        string `json:"go"`
		// Databases are the versions of the servers, by kind.
		Databases map[string]string `json:"databases"`
	} `json:"machine"`
	Hubs    []hubFill        `json:"hubs"`
	Results []*result        `json:"results"`
	Latency []*latencyResult `json:"latency"`
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

type latencyResult struct {
	contender
	Rate int         `json:"events_per_second"`
	Runs []*runStats `json:"runs"`
}

func newReport() *report {
	r := &report{}
	m := &r.Machine
	m.Processor, m.CPUs, m.System, m.Go = measure.Processor(), runtime.NumCPU(), runtime.GOOS+"/"+runtime.GOARCH, runtime.Version()
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

func (r *report) addLatency(rate int, c contender, f *runStats) {
	i := slices.IndexFunc(r.Latency, func(l *latencyResult) bool { return l.contender == c })
	if i < 0 {
		i = len(r.Latency)
		r.Latency = append(r.Latency, &latencyResult{contender: c, Rate: rate})
	}
	r.Latency[i].Runs = append(r.Latency[i].Runs, f)
}

func (res *result) median(of func(*outcome) float64) float64 {
	list := make([]float64, len(res.Runs))
	for i, run := range res.Runs {
		list[i] = of(run)
	}
	return measure.Median(list)
}

// print writes tables in Markdown.
func (r *report) print(w io.Writer) {
	m := r.Machine
	fmt.Fprintf(w, "%d CPUs (%s, %s), %s", m.CPUs, m.Processor, m.System, m.Go)
	for _, kind := range slices.Sorted(maps.Keys(m.Databases)) {
		fmt.Fprintf(w, ", %s", cmp.Or(m.Databases[kind], kind))
	}
	fmt.Fprint(w, "\n\n")
	fmt.Fprintln(w, "| database | body | partitions | consumer | events/s | of by hand | CPU µs an event: consumer | hub | database | allocations | peak RSS | peak heap |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, res := range r.Results {
		database, ratio := res.Database, ""
		if res.Name == readContender {
			database = "none"
		}
		if res.Ratio > 0 {
			ratio = fmt.Sprintf("**%.2f**", res.Ratio)
		}
		fmt.Fprintf(w, "| %s | %d B | %d | %s | %s | %s | %.1f | %.1f | %.1f | %.0f | %.0f MB | %.0f MB |\n",
			database, res.Body, res.Partitions, res.contender, measure.Thousands(res.PerSecond), ratio,
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
	if len(r.Latency) == 0 {
		return
	}
	fmt.Fprintln(w, "\n| latency at | consumer | published → committed p50 | p99 | max | enqueued → committed p50 | p99 | events a transaction |\n|---|---|---|---|---|---|---|---|")
	for _, l := range r.Latency {
		of := func(get func(*runStats) float64) float64 {
			list := make([]float64, len(l.Runs))
			for i, f := range l.Runs {
				list[i] = get(f)
			}
			return measure.Median(list)
		}
		fmt.Fprintf(w, "| %s/s | %s | %.1f ms | %.1f ms | %.1f ms | %.1f ms | %.1f ms | %.0f |\n", measure.Thousands(float64(l.Rate)), l.contender,
			of(func(f *runStats) float64 { return f.Published.P50 }), of(func(f *runStats) float64 { return f.Published.P99 }),
			of(func(f *runStats) float64 { return f.Published.Max }), of(func(f *runStats) float64 { return f.Enqueued.P50 }),
			of(func(f *runStats) float64 { return f.Enqueued.P99 }), of(func(f *runStats) float64 { return f.Batch }))
	}
}
