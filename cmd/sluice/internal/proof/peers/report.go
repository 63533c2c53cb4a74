//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"
)

// report holds all that was measured.
type report struct {
	Machine struct {
		Processor  string `json:"processor,omitempty"`
		CPUs       int    `json:"cpus"`
		System     string `json:"system"`
		Go         string `json:"go"`
		PostgreSQL string `json:"postgresql"`
		// Load is the load average of the last minute before the run: what else the
		// machine does.
		Load string `json:"load_before"`
	} `json:"machine"`
	Body       int       `json:"body_bytes"`
	Partitions int       `json:"partitions"`
	Results    []*result `json:"results"`
}

// result is what was measured of a peer.
type result struct {
	*peer
	PerSecond float64  `json:"median_events_per_second"`
	OfLoop    float64  `json:"median_ratio_to_loop,omitempty"`
	Runs      []*speed `json:"runs,omitempty"`
	Killed    *killed  `json:"killed,omitempty"`
}

func newReport() *report {
	r := &report{Body: bodySize, Partitions: partitions}
	m := &r.Machine
	m.Processor, m.CPUs, m.System, m.Go = measure.Processor(), runtime.NumCPU(), runtime.GOOS+"/"+runtime.GOARCH, runtime.Version()
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(load), " ")
	}
	return r
}

func (r *report) find(p *peer) *result {
	i := slices.IndexFunc(r.Results, func(res *result) bool { return res.peer == p })
	if i < 0 {
		i = len(r.Results)
		r.Results = append(r.Results, &result{peer: p})
	}
	return r.Results[i]
}

func (r *report) addSpeed(p *peer, s *speed) {
	res := r.find(p)
	res.Runs = append(res.Runs, s)
	r.compare()
}

func (r *report) addKilled(p *peer, k *killed) { r.find(p).Killed = k }

// compare computes the medians, and the ratios to the loop by hand, round by round.
func (r *report) compare() {
	loop := map[int]float64{}
	for _, res := range r.Results {
		if res.Name == loopPeer {
			for _, s := range res.Runs {
				loop[s.Round] = s.PerSecond
			}
		}
	}
	for _, res := range r.Results {
		var ratios []float64
		for _, s := range res.Runs {
			if l := loop[s.Round]; l > 0 {
				s.OfLoop = s.PerSecond / l
				ratios = append(ratios, s.OfLoop)
			}
		}
		res.OfLoop = measure.Median(ratios)
		res.PerSecond = res.median(func(s *speed) float64 { return s.PerSecond })
	}
}

func (res *result) median(of func(*speed) float64) float64 {
	list := make([]float64, len(res.Runs))
	for i, s := range res.Runs {
		list[i] = of(s)
	}
	return measure.Median(list)
}

// print writes tables in Markdown.
func (r *report) print(w io.Writer) {
	m := r.Machine
	fmt.Fprintf(w, "%d CPUs (%s, %s), %s, PostgreSQL %s, load before %s\n", m.CPUs, m.Processor, m.System, m.Go, m.PostgreSQL, m.Load)
	if slices.ContainsFunc(r.Results, func(res *result) bool { return len(res.Runs) > 0 }) {
		fmt.Fprintf(w, "\n| consumer | events/s | of the loop | CPU µs an event: consumer | database | broker | rows a transaction | peak RSS |\n|---|---|---|---|---|---|---|---|\n")
	}
	for _, res := range r.Results {
		if len(res.Runs) == 0 {
			continue
		}
		fmt.Fprintf(w, "| %s | %s | %.2f | %.1f | %.1f | %.1f | %.0f | %.0f MB |\n", res.title(), measure.Thousands(res.PerSecond), res.OfLoop,
			res.median(func(s *speed) float64 { return s.CPU }), res.median(func(s *speed) float64 { return s.DatabaseCPU }),
			res.median(func(s *speed) float64 { return s.BrokerCPU }), res.median(func(s *speed) float64 { return float64(s.Rows) / float64(s.Transactions) }),
			res.median(func(s *speed) float64 { return float64(s.PeakRSS) / 1e6 }))
	}
	if slices.ContainsFunc(r.Results, func(res *result) bool { return res.Killed != nil }) {
		fmt.Fprintf(w, "\n| consumer | promises | kill -9 | events | lost | doubled | rows of aborted transactions | slowest restart |\n|---|---|---|---|---|---|---|---|\n")
	}
	for _, res := range r.Results {
		if k := res.Killed; k != nil {
			fmt.Fprintf(w, "| %s | %s | %d | %d | %d | %d | %d | %.1f s |\n", res.title(), res.Promise, k.Kills, k.Events, k.Lost, k.Doubled, k.Aborted, k.Back)
		}
	}
	r.printConfigs(w)
}

func (res *result) title() string {
	if res.Version == "" {
		return res.Name
	}
	return res.Name + " (" + res.Version + ")"
}

// printConfigs writes how each peer ran.
func (r *report) printConfigs(w io.Writer) {
	for _, res := range r.Results {
		fmt.Fprintf(w, "\n%s: `%s`\n", res.title(), strings.Join(res.Command, " "))
		for _, name := range res.Config {
			if data, err := configs.ReadFile("config/" + name); err == nil {
				fmt.Fprintf(w, "\n```\n%s```\n", data)
			}
		}
	}
}
